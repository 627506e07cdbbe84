# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The clocks of a machine."""

from __future__ import annotations

from collections.abc import Callable

from simulation.time.timeline import MICROSECONDS, Timeline, microseconds


class Clock:
    """A clock that goes at a rate of its own; 0 while it stands still."""

    def __init__(self, timeline: Timeline, shows: float) -> None:
        self._timeline = timeline
        self._since, self._shown, self._rate = timeline.now, shows, 1.0
        self._followers: list[Callable[[], None]] = []

    def follow(self, follower: Callable[[], None]) -> None:
        """Call back whenever it has begun to go otherwise: all appointments by it are stale."""
        self._followers.append(follower)

    def read(self) -> float:
        """Return what the clock shows, in seconds."""
        passed = (self._timeline.now - self._since) / MICROSECONDS
        return self._shown + passed * self._rate

    def set_rate(self, rate: float) -> None:
        """Go at another rate from now on."""
        self._shown, self._since = self.read(), self._timeline.now
        self._rate = rate
        self._tell()

    def step(self, seconds: float) -> None:
        """Show so much more at once, or less."""
        self._shown += seconds
        self._tell()

    def _tell(self) -> None:
        for follower in self._followers:
            follower()

    def moment_of(self, shows: float) -> int | None:
        """Return the moment at which the clock will show this; None if it stands."""
        if not self._rate:
            return None
        return self._timeline.now + microseconds((shows - self.read()) / self._rate)


class Machine:
    """A machine with its three clocks, as the kernel has them.

    `boot` continues while the machine is suspended, `monotonic` does not. `wall` is what others
    read. They show different numbers, so that one taken for another is noticed. `runs`: whether its
    programs run and its kernel answers; False while it is paused or suspended. `hears`: whether
    what is sent to it gets there, be it found later; False while it is suspended.
    """

    def __init__(self, timeline: Timeline, name: str) -> None:
        self.name = name
        self.timeline = timeline
        self.runs = self.hears = True
        self.boot = Clock(timeline, 2_000.0)
        self.monotonic = Clock(timeline, 1_000.0)
        self.wall = Clock(timeline, self.timeline.true_time())
        self._rate = 1.0
        self._resumed: list[Callable[[], None]] = []

    def on_resume(self, callback: Callable[[], None]) -> None:
        """Call back whenever it resumes after a sleep; of a pause it knows nothing."""
        self._resumed.append(callback)

    def set_rate(self, rate: float) -> None:
        """Let all its clocks go at a rate, as those of a machine do that has a quartz of its own.

        One that does not run has it when it resumes.
        """
        self._rate = rate
        if self.runs:
            self.resume()

    def pause(self) -> None:
        """Stop it with all its clocks, as a hypervisor stops a virtual machine."""
        self.runs = False
        for clock in (self.boot, self.wall, self.monotonic):
            clock.set_rate(0)

    def suspend(self) -> None:
        """Let it sleep: of its clocks only the monotonic one stands, and with it all its timers."""
        self.runs = self.hears = False
        # Also if it was paused before.
        for clock in (self.boot, self.wall):
            clock.set_rate(self._rate)
        self.monotonic.set_rate(0)

    def resume(self, *, sets_wall_clock: bool = False) -> None:
        """Let it resume; `sets_wall_clock`: it learns the true time at once, as from its host."""
        has_slept = not self.hears
        self.runs = self.hears = True
        if sets_wall_clock:
            self.wall.step(self.timeline.true_time() - self.wall.read())
        # Who follows the monotonic clock finds all of the machine as it resumes.
        for clock in (self.boot, self.wall, self.monotonic):
            clock.set_rate(self._rate)
        for callback in self._resumed if has_slept else ():
            callback()
