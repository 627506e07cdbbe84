# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""One Lease as an observer counts it, and what is to be found out before its end is believed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Optional

from ..model import Lease
from .right import is_earlier, same_start

# How long before the end of a Lease its node is asked, so that the answer is there when it ends.
ASKED_BEFORE = 0.45
# Pause between questions to a node that does not count and may not know of this observer.
ASKED_AGAIN = 2.0
_NEVER = float("-inf")


class Check(str, Enum):
    """What is to be found out next before the end of a Lease is believed."""

    ASK_NODE = "askNode"
    READ = "read"
    ASK_OTHERS = "askOthers"


@dataclass(frozen=True)
class Findings:
    """What was found out about the end of one Lease, each at the time at which it was asked for.

    `silent_at`: the node did not say that it has a right after the end. `read_at`: the Lease, read
    by a request of its own, had not been renewed. `others_at`: of the others, some denied that they
    promised the node to let it hold, and the rest did not answer.
    """

    silent_at: float = _NEVER
    read_at: float = _NEVER
    others_at: float = _NEVER


@dataclass(frozen=True)
class CountedLease:
    """A Lease, and until when it counts at least.

    `renewed_at`: when this observer saw it renewed last; promises and answers make it count longer.
    `is_first`: it was never seen renewed, so it may be old. `over`: the epoch in which its node
    said that it has no right any more. `is_deleted`: the object is gone, but its node did not say
    that it leaves. `is_ended`: its end is believed.
    """

    lease: Lease
    until: float
    renewed_at: float = _NEVER
    is_first: bool = False
    over: str = ""
    is_deleted: bool = False
    is_ended: bool = False
    found: Findings = Findings()

    @property
    def counts(self) -> bool:
        """Whether its node takes part in elections, and in permissions if it has an epoch."""
        return not (self.is_ended or self.lease.is_released or self.is_over)

    @property
    def is_over(self) -> bool:
        """Whether its node said that it has no right in its present epoch, or in a later one."""
        epoch, over = self.lease.epoch, self.over
        if not (over and epoch):
            return False
        return epoch == over or (same_start(epoch, over) and is_earlier(epoch, over))

    @property
    def is_stranger(self) -> bool:
        """Whether its node was out of reach at the end, and may not know of this observer.

        It can hold for as long as it reaches no API server, by agreement of those whom it knows.
        """
        return self.is_ended and self.is_first and not self.is_over

    def is_past(self, epoch: str) -> bool:
        """Whether an epoch is one from before the present one: no node is in it again."""
        if same_start(epoch, self.lease.epoch):
            return is_earlier(epoch, self.lease.epoch)
        return bool(epoch) and epoch == self.over

    def next_check(self, now: float, *, is_near: bool) -> Optional[Check]:
        """Return what is to be found out now about the end of this Lease; None: nothing.

        `is_near`: whether its node shares a subnet with this observer. Of others no node is asked.
        """
        asks_from = self.until - ASKED_BEFORE
        is_asked = is_near and self.lease.epoch != ""
        if not self.counts:
            is_due = self.is_stranger and now >= self.found.silent_at + ASKED_AGAIN
            return Check.ASK_NODE if is_asked and is_due else None
        if is_asked and now >= asks_from and self.found.silent_at < asks_from:
            return Check.ASK_NODE
        if now >= self.until and self.found.read_at < self.until:
            return Check.READ
        # After the read: who is asked knows from then on that a node reaches the API.
        if is_asked and now >= self.until and self.found.others_at < self.found.read_at:
            return Check.ASK_OTHERS
        return None
