# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The right of a node to hold addresses: from its own Lease, or because no node can renew one.

The right counts from the moment at which the last successful renewal was *sent*, which is never
later than what any observer saw. It is told the time and returns when it ends; it reads no clock.

An epoch is the time in which the renewals of a Lease followed each other in time and its subnets
were the same. Its name stands in the Lease, so a node that sees another one knows that what was
agreed on in the epoch before is void.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Optional, Tuple

from ..model import Network
from ..settings import LeaseTiming

# The others count the Lease by their own clocks, so a right ends earlier by this part of its
# duration: the rates of two clocks that are both kept by NTP differ by less (500 ppm each).
_CLOCK_RATES = 0.001
# Seconds that a failed renewal waits at least before it is tried again.
_MIN_PAUSE = 0.5
_NEVER = float("-inf")


def same_start(epoch: str, other: str) -> bool:
    """Whether two epochs are of one start of an agent, so that their numbers have an order."""
    return epoch.rpartition(".")[0] == other.rpartition(".")[0] != ""


def is_earlier(epoch: str, other: str) -> bool:
    """Whether of two epochs of one start this one is the earlier."""
    # As text: a Lease may have any number of digits.
    return (len(epoch), epoch) < (len(other), other)


@dataclass(frozen=True)
class HoldDeadline:
    """Until when a node may hold addresses, on its own monotonic clock.

    `announce_until`: the agent withdraws its addresses at this time. `hold_until`: the peers may
    take over from this time on; the kernel has then removed what a dead or frozen agent left.
    """

    announce_until: float
    hold_until: float

    def extended_to(self, other: HoldDeadline) -> HoldDeadline:
        """Return the later of two deadlines."""
        return HoldDeadline(
            max(self.announce_until, other.announce_until), max(self.hold_until, other.hold_until)
        )


class RightState(str, Enum):
    """What the right rests on, as the log names it.

    DOUBTFUL: the last renewal failed. HOLDING: no node can renew, so none can take over.
    """

    ABSENT = "absent"
    HELD = "held"
    DOUBTFUL = "doubtful"
    HOLDING = "holding"
    LOST = "lost"
    RELEASED = "released"


@dataclass(frozen=True)
class Right:
    """The own Lease, and until when this node may hold addresses.

    `token`: differs for each start of the agent. `number`: of the epoch in which the last write
    succeeded; 0: none yet, or it is over. `next_number`: of the next epoch. `sent_at`: when the
    last successful renewal of the epoch was sent; `is_failing`: one after it failed. `is_shown`: a
    watch or a list has shown this node its own Lease in this epoch, and so every Lease that was
    written before. `is_left`: a renewal in another epoch has been sent. `is_deleted`: a program
    deleted the Lease. `agreed`: until when it may hold because no node can renew. `subnets`: what
    the Lease lists in this epoch.
    """

    timing: LeaseTiming
    token: str
    number: int = 0
    next_number: int = 1
    sent_at: float = _NEVER
    is_failing: bool = False
    is_shown: bool = False
    is_left: bool = False
    is_deleted: bool = False
    agreed: Optional[HoldDeadline] = None
    subnets: Tuple[Network, ...] = ()
    is_released: bool = False

    @property
    def epoch(self) -> str:
        """The epoch that this node is in; empty if it has no right."""
        return self._named(self.number) if self.number else ""

    def _named(self, number: int) -> str:
        return f"{self.token}.{number}"

    @property
    def ends_at(self) -> float:
        """Until when the own Lease gives the right to announce, counted from the last renewal."""
        return self.sent_at + self.timing.renew_deadline

    def epoch_to_write(self, subnets: Tuple[Network, ...], *, now: float) -> str:
        """Return the epoch that a renewal sent now carries: another one if the present is over."""
        ends = now >= self.ends_at or subnets != self.subnets or self.is_deleted or self.is_left
        return self._named(self.number if self.number and not ends else self.next_number)

    def sent(self, epoch: str) -> Right:
        """Record that a renewal in this epoch has been sent, which others may see from now on.

        Then they take what was agreed on in another epoch for void, so that one is never written
        again, even if the subnets are the same again.
        """
        if epoch == self.epoch:
            return self
        return replace(self, is_shown=False, is_left=True)

    def succeeded(
        self, epoch: str, subnets: Tuple[Network, ...], *, sent_at: float, now: float
    ) -> Right:
        """Record that a renewal was written which was sent at `sent_at` with this epoch.

        One that comes too late, after the right of its epoch has ended, gives none: by then the
        others may have found the Lease ended.
        """
        if self.is_released or now >= sent_at + self.timing.renew_deadline:
            return self
        if self.number and epoch == self._named(self.number):
            if now >= self.ends_at:
                return self
            return replace(self, sent_at=sent_at, is_failing=False, agreed=None)
        if epoch != self._named(self.next_number):
            return self
        return replace(
            self,
            number=self.next_number,
            next_number=self.next_number + 1,
            sent_at=sent_at,
            is_failing=False,
            is_shown=False,
            is_left=False,
            is_deleted=False,
            agreed=None,
            subnets=subnets,
        )

    def failed(self, epoch: str) -> Right:
        """Record a failed renewal; it may have been written, so no other enters its new epoch."""
        is_next = epoch == self._named(self.next_number)
        return replace(self, is_failing=True, next_number=self.next_number + (1 if is_next else 0))

    def retry_at(self, now: float) -> float:
        """Return when to try again after a failure: while it lasts, halfway to the right's end.

        So one that fails, as it were at the last moment, is followed by one that can be in time.
        """
        pause, left = self.timing.retry_period, self.ends_at - now
        if left > 0:
            pause = min(pause, max(left / 2, _MIN_PAUSE))
        return now + pause

    def is_over(self, epoch: str, now: float) -> bool:
        """Whether this node may hold nothing now, and never will in this epoch of its Lease.

        Who is in a later epoch does not say so: it may hold what it had before.
        """
        return self.deadline(now) is None and epoch != self._named(self.next_number)

    def shown(self, epoch: str) -> Right:
        """Record that a watch or a list has shown the own Lease in this epoch."""
        if self.is_shown or self.is_left or epoch != self.epoch or not epoch:
            return self
        return replace(self, is_shown=True)

    def deleted(self) -> Right:
        """Record that the own Lease is gone: a node that joins now does not see this node."""
        return replace(self, is_shown=False, is_deleted=True)

    def extended(self, agreed: HoldDeadline, *, now: float) -> Right:
        """Record that no node can renew; this never restores a right that has ended."""
        return replace(self, agreed=agreed) if self.deadline(now) else self

    def at(self, now: float) -> Right:
        """Return the right at this time; once it has ended, so has its epoch."""
        if not self.number or self.deadline(now) is not None:
            return self
        return replace(self, number=0, is_shown=False, agreed=None)

    def resigned(self) -> Right:
        """Leave the election permanently."""
        return replace(self, number=0, is_shown=False, agreed=None, is_released=True)

    def deadline(self, now: float) -> Optional[HoldDeadline]:
        """Return until when this node may hold addresses; None if it may not hold any."""
        if not self.number:
            return None
        lasts = self.timing.duration * (1 - _CLOCK_RATES)
        own = HoldDeadline(self.ends_at, self.sent_at + lasts)
        if self.agreed is not None and now < self.agreed.announce_until:
            return own.extended_to(self.agreed)
        return own if now < self.ends_at else None

    def state(self, now: float) -> RightState:
        """Return what the right rests on now."""
        if self.is_released:
            return RightState.RELEASED
        if self.deadline(now) is None:
            return RightState.ABSENT if self.sent_at == _NEVER else RightState.LOST
        if self.agreed is not None and now < self.agreed.announce_until:
            return RightState.HOLDING
        return RightState.DOUBTFUL if self.is_failing else RightState.HELD

    def may_add(self, now: float) -> bool:
        """Whether the permissions of this epoch are valid for addresses that are not held yet.

        Once the own Lease has ended the others may have taken theirs back, so who holds by
        agreement only keeps what it has.
        """
        return self.is_shown and now < self.ends_at and self.deadline(now) is not None
