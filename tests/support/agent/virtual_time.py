# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Event loops for tests: one whose clock jumps instead of waiting, and one on real time.

How to use it: every async test under tests/unit/agent and tests/unit/support runs on a
`VirtualTimeLoop`, and the agent's clock (`purelb_agent.runtime.clock`) follows it. Sleep as long as
the code under test needs; a test of a 10 s Lease takes a millisecond:

    async def test_a_lease_expires():
        began = clock.now()
        await asyncio.sleep(10)
        assert clock.now() == began + 10

Time moves only when nothing can run: no callback is ready, no socket is readable and no thread of
`asyncio.to_thread` is at work. It then jumps to the next timer. Code that blocks takes no time; use
the fixture `virtual_clock` to let time pass without running anything (a suspended machine):

    async def test_a_suspended_node_may_not_announce(virtual_clock):
        virtual_clock.advance(30)

A test that waits for something that can no longer happen (no timer, no thread, no socket) fails at
once with `NothingToWaitForError`.

TCP and UDP sockets and child processes need time that the loop cannot see. A test that uses one
gets `NeedsRealTimeError`; mark the test, its class or its module:

    pytestmark = pytest.mark.real_time

Pipes and `socket.socketpair()` work in virtual time: what is written to them is readable at once.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
import stat
from collections.abc import Mapping
from typing import Any

from simulation.time.machine import Machine
from simulation.time.timeline import Timeline, microseconds

# Real seconds that a test without a timer waits for a pipe or socket pair.
_PATIENCE = 2.0
_INTERNET = (socket.AF_INET, socket.AF_INET6)


class NothingToWaitForError(Exception):
    """No timer, thread or socket is left that could ever wake the test."""


class NeedsRealTimeError(Exception):
    """The test uses a network socket or a child process in virtual time."""


class VirtualClock:
    """The clocks of a test: those of one machine of a simulation, with one program."""

    def __init__(self) -> None:
        self.timeline = Timeline(0)
        self.machine = Machine(self.timeline, "test")

    def now(self) -> float:
        """Replaces `purelb_agent.runtime.clock.now`."""
        return self.machine.boot.read()

    def monotonic(self) -> float:
        """Replaces `purelb_agent.runtime.clock.monotonic`."""
        return self.machine.monotonic.read()

    def wall_time(self) -> float:
        """Replaces `purelb_agent.runtime.clock.wall_time`."""
        return self.machine.wall.read()

    def advance(self, seconds: float) -> None:
        """Let time pass; timers that became due fire when the loop runs next."""
        if seconds < 0:
            raise ValueError("time goes forward only")
        self.timeline.run(self.timeline.now + microseconds(seconds))

    def wait(self, seconds: float) -> None:
        """Let time pass, but not beyond what a model does: it may wake the program."""
        self.timeline.step(self.timeline.now + microseconds(seconds))


def _family(file: Any) -> int | None:
    """The address family of a socket or file descriptor; None for what is no socket."""
    number = file if isinstance(file, int) else file.fileno()
    if not stat.S_ISSOCK(os.fstat(number).st_mode):
        return None
    with socket.socket(fileno=os.dup(number)) as same:
        return same.family


class _JumpingSelector(selectors.BaseSelector):
    """Polls real files; where a selector would wait, it moves the virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._real = selectors.DefaultSelector()
        self._clock = clock
        self.threads = 0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if _family(fileobj) in _INTERNET:
            raise NeedsRealTimeError("a network socket: mark the test with pytest.mark.real_time")
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if self.threads:
            # The thread wakes the loop over its self-pipe.
            return self._real.select(None)
        if timeout is not None:
            self._clock.wait(timeout)
            return []
        # The self-pipe alone is no source of news.
        ready = self._real.select(_PATIENCE) if len(self.get_map()) > 1 else []
        if not ready:
            raise NothingToWaitForError("the test waits, and nothing is left that could wake it")
        return ready

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class TrackingLoop(asyncio.SelectorEventLoop):
    """An event loop on real time that keeps what a leak check needs: its tasks and its selector."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self.watched = selector or selectors.DefaultSelector()
        self.created: list[asyncio.Task[Any]] = []
        super().__init__(self.watched)
        self.set_task_factory(self._create)

    def _create(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **more)
        self.created.append(task)
        return task


class VirtualTimeLoop(TrackingLoop):
    """An event loop whose clock moves only when nothing can run."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._jumping = _JumpingSelector(clock)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._clock.machine.monotonic.read()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """Run a function in a thread; time stands still until it returns."""
        future = super().run_in_executor(executor, func, *args)
        self._jumping.threads += 1
        future.add_done_callback(self._returned)
        return future

    def _returned(self, _future: asyncio.Future[Any]) -> None:
        self._jumping.threads -= 1

    async def shutdown_default_executor(self) -> None:
        self._jumping.threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._jumping.threads -= 1

    async def subprocess_exec(self, *_args: Any, **_more: Any) -> Any:
        raise NeedsRealTimeError("a child process: mark the test with pytest.mark.real_time")

    async def subprocess_shell(self, *_args: Any, **_more: Any) -> Any:
        raise NeedsRealTimeError("a child process: mark the test with pytest.mark.real_time")
