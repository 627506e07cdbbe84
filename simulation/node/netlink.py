# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The netlink sockets of a process, and when it is stopped while it uses them."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from purelb.core.node import rtnetlink
from simulation.time.process import Process, nothing

if TYPE_CHECKING:
    from simulation.node.kernel import Kernel


@dataclass
class Stop:
    """A process is stopped when it has sent so many more requests, all of this kind.

    `kind`: of rtnetlink, or see `simulation.node.fence`. The last of them has taken effect, and the
    process has not seen its answer. `seconds`: for how
    long the process stands still. `noted` is called when it stops and when it resumes.
    """

    requests: int
    kind: int
    seconds: float
    noted: Callable[[], None] = nothing


def take_time(kernel: Kernel, process: Process, kind: int) -> None:
    """Let a request of a process take its time, and stop the process there if that is due."""
    if kernel.busy:
        process.spend(kernel.busy)
    stop = kernel.stop
    if stop is None or stop.kind != kind:
        return
    stop.requests -= 1
    if not stop.requests:
        kernel.stop = None
        process.stand_still(stop.seconds, noted=stop.noted)


class ModelResumes:
    """Informs a process when its machine resumes after a sleep; see `purelb_agent.node.resumes`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._read: Callable[[], None] | None = None
        process.machine.on_resume(self._tell)

    def _tell(self) -> None:
        if self._read is not None:
            self._process.deliver(self._read)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Call back after each sleep."""
        self._read = callback

    def read(self) -> None:
        """Each sleep is told once in any case."""

    def close(self) -> None:
        """Tell nothing any more."""
        self._read = None


class KernelSocket:
    """A netlink socket of a process: requests are answered at once, news can be read later."""

    def __init__(self, kernel: Kernel, process: Process, groups: int) -> None:
        self.groups = groups
        self._kernel = kernel
        self._process = process
        self._received: deque[bytes] = deque()
        self._late: list[bytes] = []
        self._read: Callable[[], None] | None = None
        self._is_told = self._has_lost = False

    def settimeout(self, seconds: float) -> None:
        """Answers come at once."""

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001 - as socket.socket
        """Nothing blocks."""

    def send(self, data: bytes) -> int:
        """Carry out a request."""
        # What came after its time limit is read before the next answer.
        self._received.extend(self._late)
        self._late.clear()
        for request in rtnetlink.parse_messages(data):
            answer = self._kernel.answer(request)
            if self._kernel.late_answers:
                self._kernel.late_answers -= 1
                self._late.append(answer)
            else:
                self._received.append(answer)
            take_time(self._kernel, self._process, request.kind)
        return len(data)

    def recv(self, size: int) -> bytes:  # noqa: ARG002 - datagrams are small
        """Return a datagram; BlockingIOError without news, TimeoutError without an answer."""
        if self._has_lost:
            # Once, and before the news that did not get lost.
            self._has_lost = False
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        if not self._received and not self.groups:
            raise TimeoutError("timed out")
        if not self._received:
            self._is_told = False
            raise BlockingIOError
        return self._received.popleft()

    def put(self, data: bytes | None) -> None:
        """Receive news; None if there was no room for it."""
        if data is None:
            self._has_lost = True
        else:
            self._received.append(data)
        if self._read is not None and not self._is_told:
            self._is_told = True
            self._process.deliver(self._tell)

    def _tell(self) -> None:
        self._is_told = False
        if self._read is not None:
            self._read()

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Call back when there is something to read."""
        self._read = callback

    def close(self) -> None:
        """Receive nothing any more."""
        self._read = None
        self._kernel.forget(self)
