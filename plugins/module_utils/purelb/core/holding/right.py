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
# A renewal that gives a right back takes less than this part of what one may take that keeps it: if
# it took as long, a node whose renewals take about that would lose it again and again.
_RETURN = 0.75
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
    last successful renewal of the epoch was sent, and `took`: seconds until it was answered;
    `is_failing`: one after it failed. `is_shown`: a watch or a list has shown this node its own
    Lease in this epoch, and so every Lease that was written before. `is_left`: a renewal in another
    epoch has been sent. `is_deleted`: a program deleted the Lease. `agreed`: until when it may hold
    because no node can renew; `is_cut_off`: another one can. `subnets`: what the Lease lists in
    this epoch.
    """

    timing: LeaseTiming
    token: str
    number: int = 0
    next_number: int = 1
    sent_at: float = _NEVER
    took: float = 0.0
    is_failing: bool = False
    is_shown: bool = False
    is_left: bool = False
    is_deleted: bool = False
    agreed: Optional[HoldDeadline] = None
    is_cut_off: bool = False
    subnets: Tuple[Network, ...] = ()
    is_released: bool = False

    @property
    def epoch(self) -> str:
        """The epoch that this node is in; empty if it has no right."""
        return self._named(self.number) if self.number else ""

    @property
    def over(self) -> str:
        """The last epoch that may have been written, if this node has no right; empty if it has.

        It never had one in this epoch, or has it no more, and neither in those before.
        """
        return "" if self.number or self.next_number == 1 else self._named(self.next_number - 1)

    def _named(self, number: int) -> str:
        return f"{self.token}.{number}"

    @property
    def ends_at(self) -> float:
        """Until when the own Lease gives the right to announce, counted from the last renewal."""
        return self.sent_at + self.timing.renew_deadline

    @property
    def _lease_ends_at(self) -> float:
        """When the others may find the own Lease ended, at the earliest."""
        return self.sent_at + self.timing.duration * (1 - _CLOCK_RATES)

    @property
    def is_quick(self) -> bool:
        """Whether renewals are answered so soon that each one is in time for the next."""
        return self.is_quick_by(1.0)

    def is_quick_by(self, share: float) -> bool:
        """Whether the last renewal took less than this part of what it may take."""
        return self.took < share * self.timing.renew_deadline / 2

    @property
    def renew_at(self) -> float:
        """When to send the next renewal: the time left then is twice what the last one took."""
        pause = self.timing.renew_deadline - 2 * self.took
        return max(self.sent_at + min(self.timing.renew_period, pause), self.sent_at + self.took)

    def can_renew(self, since: float) -> bool:
        """Whether a renewal that was sent since then shows that this node can renew.

        A read shows nothing: an API server that cannot write may well be able to read.
        """
        is_known = self.number > 0 and self.sent_at >= since
        return is_known and self.is_quick and not self.is_failing

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

        One that comes too late gives none and counts as failed: after its own end, or after the
        Lease's, by which the others may have found it ended. So does a slow one of a node that has
        lost its right while others can renew: the next one would not be in time.
        """
        if self.is_released:
            return self
        renewed = replace(self, sent_at=sent_at, took=now - sent_at, is_failing=False)
        has_right = self.deadline(now) is not None
        is_late = now >= renewed.ends_at
        if has_right and epoch == self.epoch and now < self._lease_ends_at and not is_late:
            return renewed
        had_none = has_right or self.sent_at == _NEVER
        is_useful = had_none or not self.is_cut_off or renewed.is_quick_by(_RETURN)
        if epoch == self._named(self.next_number) and is_useful and not is_late:
            return _begun(renewed, subnets)
        return self.failed(epoch)

    def failed(self, epoch: str) -> Right:
        """Record a failed renewal; it may have been written, so no other enters its new epoch."""
        is_next = epoch == self._named(self.next_number)
        return replace(self, is_failing=True, next_number=self.next_number + (1 if is_next else 0))

    def retry_at(self, now: float, *, hangs: bool = False) -> float:
        """Return when to try again after a failure: while it lasts, halfway to the right's end.

        So one that fails, as it were at the last moment, is followed by one that can be in time.
        `hangs`: the last one has no answer yet, and may be answered as long as a right lasts.
        """
        pause = self.timing.renew_deadline / 2 if hangs else self.timing.retry_period
        left = self.ends_at - now
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

    def cut_off(self, *, is_cut_off: bool) -> Right:
        """Record whether another node can renew while this one cannot."""
        return self if is_cut_off == self.is_cut_off else replace(self, is_cut_off=is_cut_off)

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
        own = HoldDeadline(self.ends_at, self._lease_ends_at)
        if self.agreed is not None and now < self.agreed.announce_until:
            return own.extended_to(self.agreed)
        return own if now < self.ends_at else None

    def state(self, now: float) -> RightState:
        """Return what the right rests on now."""
        if self.is_released:
            return RightState.RELEASED
        if self.deadline(now) is None:
            return RightState.ABSENT if self.sent_at == _NEVER else RightState.LOST
        is_doubtful = self.is_failing or now >= self.ends_at
        if is_doubtful and self.agreed is not None and now < self.agreed.announce_until:
            return RightState.HOLDING
        return RightState.DOUBTFUL if self.is_failing else RightState.HELD

    def may_add(self, now: float) -> bool:
        """Whether the permissions of this epoch are valid for addresses that are not held yet.

        Once the own Lease has ended the others may have taken theirs back, so who holds by
        agreement only keeps what it has.
        """
        return self.is_shown and now < self.ends_at and self.deadline(now) is not None


def _begun(right: Right, subnets: Tuple[Network, ...]) -> Right:
    """Return a right in its next epoch; what was agreed on with other neighbors is void."""
    return replace(
        right,
        number=right.next_number,
        next_number=right.next_number + 1,
        is_shown=False,
        is_left=False,
        is_deleted=False,
        agreed=right.agreed if subnets == right.subnets else None,
        subnets=subnets,
    )
