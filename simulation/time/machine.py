# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The clocks of a machine."""

from __future__ import annotations

from simulation.time.timeline import MICROSECONDS, Timeline, microseconds

# 2026-01-01T00:00:00Z
_EPOCH = 1_767_225_600.0


class Clock:
    """A clock that goes at a rate of its own; 0 while it stands still."""

    def __init__(self, timeline: Timeline, shows: float) -> None:
        self._timeline = timeline
        self._since, self._shown, self._rate = timeline.now, shows, 1.0

    def read(self) -> float:
        """Return what the clock shows, in seconds."""
        passed = (self._timeline.now - self._since) / MICROSECONDS
        return self._shown + passed * self._rate

    def set_rate(self, rate: float) -> None:
        """Go at another rate from now on."""
        self._shown, self._since = self.read(), self._timeline.now
        self._rate = rate

    def step(self, seconds: float) -> None:
        """Show so much more at once, or less."""
        self._shown += seconds

    def moment_after(self, seconds: float) -> int | None:
        """Return the moment at which the clock will show so much more; None if it stands."""
        if not self._rate:
            return None
        return self._timeline.now + microseconds(seconds / self._rate)


class Machine:
    """A machine with its three clocks, as the kernel has them.

    `boot` goes on while the machine is suspended, `monotonic` does not. `wall` is what others read.
    They show different numbers, so that one taken for another is noticed.
    """

    def __init__(self, timeline: Timeline, name: str) -> None:
        self.name = name
        self.timeline = timeline
        self.boot = Clock(timeline, 2_000.0)
        self.monotonic = Clock(timeline, 1_000.0)
        self.wall = Clock(timeline, _EPOCH + timeline.now / MICROSECONDS)
