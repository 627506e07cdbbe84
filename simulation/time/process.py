# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A process: a program on an event loop of its own, which runs when the timeline says so.

The program's code takes no time. When it waits, its next timer becomes an appointment. What arrives
from outside comes by `deliver`, which a dead process ignores. One that is frozen, or whose machine
does not run, finds it later.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from purelb_agent.runtime import clock
from simulation.time.machine import Machine
from simulation.time.timeline import Appointment, microseconds

# Passes of one loop at one moment. A program that needs more does not wait for anything.
_ENDLESS = 1_000


def nothing() -> None:
    """Do nothing: for callbacks that are not needed."""


class SpinsError(Exception):
    """A program runs on and on without letting time pass."""


class _KilledError(SystemExit):
    """Ends a pass in its middle: of what a loop runs, only this exception leaves it at once."""


class _Idle(selectors.BaseSelector):
    """Has no files. Where a loop would wait, it stops the loop and keeps for how long."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.seconds: float | None = None
        self.passes = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            self.passes += 1
            if self.passes > _ENDLESS:
                raise SpinsError
            return []
        self.seconds = timeout
        if self.loop is not None:
            self.loop.stop()
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise NotImplementedError(f"{fileobj} is a real file")

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise NotImplementedError(f"{fileobj} is a real file")

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop without files and threads, on the monotonic clock of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._monotonic = machine.monotonic
        self._idle = _Idle()
        super().__init__(self._idle)
        self._idle.loop = self

    def time(self) -> float:
        """Return what the machine's monotonic clock shows."""
        return self._monotonic.read()

    def run_until_idle(self) -> float | None:
        """Run all that is ready; return for how many seconds nothing will be, None for ever."""
        self._idle.passes = 0
        self.run_forever()
        return self._idle.seconds

    # A loop on real files wakes itself from other threads by a pair of sockets.
    def _make_self_pipe(self) -> None: ...

    def _close_self_pipe(self) -> None: ...

    def _write_to_self(self) -> None: ...

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        """Call back whenever a model's socket has something to read."""
        fd.on_readable(lambda: callback(*args))

    def remove_reader(self, fd: Any) -> bool:
        """Do not call back any more."""
        fd.on_readable(None)
        return True

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """Refuse: a thread has time of its own."""
        raise NotImplementedError(f"{func} would run in a thread, on real time")


class Process:
    """A program that runs on a machine.

    `error` is what ended it, None if it ended by itself or still runs. `pass_seconds`: for how long
    it is not run again after each pass, as on a machine without enough processors; what a pass has
    sent has left at its beginning.
    """

    running: Process | None = None
    """The process whose code runs now."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name
        self.error: BaseException | None = None
        self.has_ended = self.is_dead = self.is_frozen = self.stands_still = False
        self.pass_seconds = 0.0
        self._began = machine.monotonic.read()
        self._loop = SimulatedLoop(machine)
        self._task: asyncio.Task[None] | None = None
        self._next: Appointment | None = None
        # Whether it has something to do at once, or else when, by the monotonic clock.
        self._is_due = False
        self._wakes_at: float | None = None
        self._is_in_pass = False
        self._busy_until = 0
        self._ended: list[Callable[[], None]] = []
        self._passed: list[Callable[[], None]] = []
        machine.monotonic.follow(self._plan)

    def start(self, program: Coroutine[Any, Any, None]) -> None:
        """Run a program, from now on."""
        self._task = self._loop.create_task(program)
        self._task.add_done_callback(self._end)
        self._is_due = True
        self._plan()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call back when the program has ended by itself or by an error, not if it is killed."""
        self._ended.append(callback)

    def has_run_for(self) -> float:
        """Return the seconds since it started, by its machine's monotonic clock."""
        return self.machine.monotonic.read() - self._began

    def after_pass(self, callback: Callable[[], None]) -> None:
        """Call back, once, when it has done all that there is to do now, or when it runs next."""
        self._passed.append(callback)

    def deliver(self, callback: Callable[..., object], *args: Any) -> None:
        """Call back in the program, as soon as it runs."""
        if self.is_dead or self.has_ended:
            return
        self._loop.call_soon(callback, *args)
        self._is_due = True
        self._plan()

    def kill(self) -> None:
        """End it in the middle of its work; nothing of it runs any more."""
        self.is_dead = True
        self._cancel()

    def close(self) -> None:
        """Give up what is left of it, at the end of the simulation."""
        self.is_dead = True
        self._cancel()
        self._loop.set_exception_handler(lambda _loop, _context: None)
        before, Process.running = Process.running, self
        try:
            for task in asyncio.all_tasks(self._loop):
                _give_up(task.get_coro())
        finally:
            Process.running = before
        self._loop.close()

    def freeze(self) -> None:
        """Let none of its code run; time continues."""
        self.is_frozen = True
        self._plan()

    def thaw(self) -> None:
        """Let its code run again."""
        self.is_frozen = False
        self._plan()

    def stand_still(self, seconds: float, *, noted: Callable[[], None] = nothing) -> None:
        """Stop it in the middle of its pass, while all others continue; called from its own code.

        `noted` is called when it stands still and when it resumes.

        If another one stops meanwhile, it resumes when that one does. Frozen or paused meanwhile,
        it still ends its pass; killed, it does not.
        """
        self.stands_still = True
        try:
            noted()
            self.spend(seconds)
        finally:
            self.stands_still = False
            noted()

    def spend(self, seconds: float) -> None:
        """Let its code take so long, in the middle of its pass; called from its own code.

        Meanwhile it is as one that stands still, but it runs.
        """
        timeline, loop = self.machine.timeline, asyncio.get_running_loop()
        before, Process.running = Process.running, None
        # A thread has one loop that runs, and now it is the turn of others.
        asyncio._set_running_loop(None)  # noqa: SLF001 - for makers of loops
        try:
            timeline.run(timeline.now + microseconds(seconds))
        finally:
            asyncio._set_running_loop(loop)  # noqa: SLF001 - for makers of loops
            Process.running = before
        if self.is_dead:
            raise _KilledError

    def _cancel(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _plan(self) -> None:
        """Make an appointment with the next pass, as things are now."""
        self._cancel()
        can_run = self.machine.runs and not (self.is_dead or self.has_ended or self.is_frozen)
        if self._is_in_pass or not can_run:
            return
        timeline, moment = self.machine.timeline, None
        if self._is_due:
            moment = timeline.now
        elif self._wakes_at is not None:
            moment = self.machine.monotonic.moment_of(self._wakes_at)
        if moment is not None:
            self._next = timeline.at(max(moment, self._busy_until), self._run)

    def _run(self) -> None:
        self._next = None
        before, Process.running = Process.running, self
        self._is_in_pass, seconds = True, None
        try:
            seconds = self._loop.run_until_idle()
        except SpinsError:
            names = ", ".join(sorted(t.get_name() for t in asyncio.all_tasks(self._loop)))
            raise SpinsError(f"{self.name}: it spins, with the tasks {names}") from None
        except _KilledError:
            return
        finally:
            Process.running = before
            self._is_in_pass = self._is_due = False
        if self.has_ended:
            for callback in self._ended:
                callback()
            return
        passed, self._passed = self._passed, []
        for callback in passed:
            callback()
        self._wakes_at = None if seconds is None else self.machine.monotonic.read() + seconds
        self._busy_until = self.machine.timeline.now + microseconds(self.pass_seconds)
        self._plan()

    def _end(self, task: asyncio.Task[None]) -> None:
        self.has_ended = True
        if not task.cancelled():
            self.error = task.exception()


def _give_up(work: Any) -> None:
    """Close a coroutine, however often it waits in what it does at its end.

    One that is collected while it waits would be reported, at a moment that chance decides.
    """
    for _wait in range(_ENDLESS):
        try:
            work.close()
        except RuntimeError:
            continue  # it has ignored that it was to end, by waiting once more
        except (Exception, BaseExceptionGroup):  # noqa: BLE001 - no one is left to handle it
            return
        return


@contextmanager
def simulated_clocks() -> Iterator[None]:
    """Let the programs' clocks be those of the machine whose process runs."""

    def machine() -> Machine:
        if Process.running is None:
            raise RuntimeError("a model reads the clock of the programs")
        return Process.running.machine

    def now() -> float:
        return machine().boot.read()

    def monotonic() -> float:
        return machine().monotonic.read()

    def wall_time() -> float:
        return machine().wall.read()

    before = clock.now, clock.monotonic, clock.wall_time
    clock.now, clock.monotonic, clock.wall_time = now, monotonic, wall_time
    try:
        yield
    finally:
        clock.now, clock.monotonic, clock.wall_time = before
