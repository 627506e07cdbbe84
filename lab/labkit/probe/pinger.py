# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""A client that pings many addresses at a fixed rate and records when each of them answered.

It is cheap enough for hundreds of addresses, for which `Prober` would open thousands of connections
a second. The pings use the host's neighbour table, so an address answers only after the host has
learned its new MAC address. A process in the host's network namespace does the work (this file, run
as a script); times are of the monotonic clock.
"""

import contextlib
import json
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from labkit.lab import Lab

Times = Mapping[str, Sequence[float]]
# Pings to an absent address wait in the kernel for neighbour discovery and fill the send buffer.
_BUFFER = 64 << 20
_ECHO = {socket.AF_INET: 8, socket.AF_INET6: 128}
_PROTOCOL = {socket.AF_INET: socket.IPPROTO_ICMP, socket.AF_INET6: socket.IPPROTO_ICMPV6}
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h
_LONGEST_REPLY = 256


class Recorder:
    """A process in a host's network namespace that records until stopped; a context manager.

    It ends when it reads a line, and prints what it has recorded as JSON.
    """

    def __init__(self, lab: "Lab", host: str, argv: Sequence[str]) -> None:
        """Start it."""
        pipe = subprocess.PIPE
        self._process = lab.popen_in(host, argv, text=True, stdin=pipe, stdout=pipe)

    def __enter__(self) -> Self:
        """Return the running process."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process and wait for it."""
        self._process.kill()
        self._process.communicate()

    def _recorded(self) -> Any:
        """Stop it; return what it has recorded."""
        answer, _errors = self._process.communicate("\n")
        return json.loads(answer)


class Pinger(Recorder):
    """Pings each address at intervals of `every` seconds until stopped; a context manager."""

    def __init__(
        self, lab: "Lab", *addresses: str, host: str = "client", every: float = 0.02
    ) -> None:
        """Start pinging from a host of the lab."""
        argv = [sys.executable, "-I", str(Path(__file__)), str(every), *addresses]
        super().__init__(lab, host, argv)

    def stop(self) -> Times:
        """Stop pinging; return the times of the answers of each address."""
        times: Times = self._recorded()
        return times


def longest_gap(times: Sequence[float], *, since: float, until: float) -> float:
    """Return the longest time in seconds without an answer between `since` and `until`."""
    moments = [since, *(t for t in times if since < t < until), until]
    return max(later - earlier for earlier, later in pairwise(moments))


def _open(family: socket.AddressFamily) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_DGRAM, _PROTOCOL[family])
    opened.setblocking(False)
    opened.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER)
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    return opened


class _Pings:
    """A ping socket per family; the kernel delivers only its own replies to each."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.times: dict[str, list[float]] = {address: [] for address in addresses}
        self._sockets = {family: _open(family) for family in _ECHO}
        self._targets = [
            (self._sockets[family], struct.pack("!BBHHH", _ECHO[family], 0, 0, 0, 0), address)
            for address in addresses
            for family in [socket.AF_INET6 if ":" in address else socket.AF_INET]
        ]

    def send(self) -> None:
        """Ping each address once; ignores errors, as the next ping may succeed."""
        for opened, packet, address in self._targets:
            with contextlib.suppress(OSError):
                opened.sendto(packet, (address, 0))

    def receive_until(self, moment: float) -> bool:
        """Record replies until then; return False if a line on standard input asks to stop."""
        while (left := moment - time.monotonic()) > 0:
            readable = [sys.stdin, *self._sockets.values()]
            ready, _writable, _failed = select.select(readable, [], [], left)
            if sys.stdin in ready:
                return False
            for opened in self._sockets.values():
                self._drain(opened)
        return True

    def _drain(self, opened: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                _reply, sender = opened.recvfrom(_LONGEST_REPLY)
                self.times[sender[0]].append(time.monotonic())


def _ping(every: float, addresses: Sequence[str]) -> None:
    pings, due = _Pings(addresses), time.monotonic()
    pings.send()
    while pings.receive_until(due := due + every):
        pings.send()
    print(json.dumps(pings.times))


if __name__ == "__main__":
    # End silently if the reader of the output has been killed.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _ping(float(sys.argv[1]), sys.argv[2:])
