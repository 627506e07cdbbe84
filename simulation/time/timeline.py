# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The order of everything that happens in a simulation.

Moments are whole microseconds: a duration that is computed on one clock and added on another must
not end a rounding error before its time, which would keep a loop spinning.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from simulation.chance import stream

MICROSECONDS = 1_000_000
# 2026-01-01T00:00:00Z: when a simulation begins, in seconds.
_BEGINS = 1_767_225_600.0
Action = Callable[[], None]


def microseconds(seconds: float) -> int:
    """Return a duration in whole microseconds: rounded up, so that waiting for it takes time."""
    # A duration of whole microseconds is seldom one exactly as a float.
    return max(1, math.ceil(seconds * MICROSECONDS - 1e-3)) if seconds > 0 else 0


class Appointment:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        """Do not let it happen."""
        self.action = None


class Timeline:
    """Actions in the order of their moments; of those of one moment, chance decides which is first.

    `now` is the present moment, in microseconds since the simulation began.
    """

    def __init__(self, seed: int) -> None:
        self.now = 0
        self._ties = stream(seed, "ties")
        self._count = 0
        self._coming: list[tuple[int, int, int, Appointment]] = []

    def true_time(self) -> float:
        """Return the seconds since 1970, as a clock that is right shows them."""
        return _BEGINS + self.now / MICROSECONDS

    def at(self, moment: int, action: Action) -> Appointment:
        """Let an action happen at a moment, but not before the present one."""
        made = Appointment(action)
        self._count += 1
        order = (max(moment, self.now), self._ties.getrandbits(32), self._count)
        heapq.heappush(self._coming, (*order, made))
        return made

    def after(self, seconds: float, action: Action) -> Appointment:
        """Let an action happen so much later."""
        return self.at(self.now + microseconds(seconds), action)

    def step(self, until: int) -> bool:
        """Let the next thing happen that comes before `until`; without one, stop there.

        Returns whether something happened.
        """
        coming = self._coming
        while coming and coming[0][0] < until:
            moment, _tie, _count, next_one = heapq.heappop(coming)
            if next_one.action is not None:
                self.now = moment
                next_one.action()
                return True
        self.now = max(self.now, until)
        return False

    def run(self, until: int) -> None:
        """Let everything happen that comes before `until`, in microseconds; stop there."""
        while self.step(until):
            pass
