# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Writes that others undo: how long to wait before the next one.

Two programs that answer each other at once write an object a hundred times a second. The first
undone write is repeated at once, as it may have been a single act of a user; from then on the pause
doubles. Time is on the caller's monotonic clock, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Optional, TypeVar

T = TypeVar("T")
_FIRST_PAUSE = 1.0


@dataclass(frozen=True)
class Written(Generic[T]):
    """What was written last to an object, when, and how often the same was undone before.

    `longest`: the longest pause. A write that lasted for twice as long was not undone in a dispute.
    """

    what: T
    at: float
    longest: float
    undone: int = 0

    def pause(self, what: T, now: float) -> float:
        """Return how long to wait before this is written."""
        if self.undone == 0 or not self.is_undone_by(what, now):
            return 0.0
        # A float has an end.
        pause = min(_FIRST_PAUSE * 2.0 ** min(self.undone - 1, 30), self.longest)
        return max(0.0, self.at + pause - now)

    def is_undone_by(self, what: T, now: float) -> bool:
        """Whether the need to write this means that another program undid the last write."""
        return what == self.what and now < self.at + 2 * self.longest


def written(before: Optional[Written[T]], what: T, now: float, *, longest: float) -> Written[T]:
    """Return the record of what has just been written."""
    is_again = before is not None and before.is_undone_by(what, now)
    return Written(what, now, longest, before.undone + 1 if before and is_again else 0)
