# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The right of a node to hold addresses: from its own Lease, or because no node can renew one.

The right counts from the moment at which the last successful renewal was *sent*, which is never
later than what any observer saw. It says when to renew next; it is told the time.

An epoch is the time in which the renewals of a Lease followed each other in time and its subnets
were the same. Its name stands in the Lease, so a node that sees another one knows that what was
agreed on in the epoch before is void.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Iterable, NamedTuple, Optional, Tuple

from ..model import Network
from ..settings import LeaseTiming
from .deadline import HoldDeadline

# The others count the Lease by their own clocks, so a right ends earlier by this part of its
# duration: the rates of two clocks that are both kept by NTP differ by less (500 ppm each).
_CLOCK_RATES = 0.001
# Seconds between two renewals at least, but for one that writes a change.
_MIN_PAUSE = 0.5
# Renewals that may wait for their answers at a time.
_MOST_UNDER_WAY = 2
# A renewal that gives a right back takes less than this part of what one may take that keeps it: if
# it took as long, a node whose renewals take about that would lose it again and again.
_RETURN = 0.75
_NEVER, _NOT_DUE = float("-inf"), float("inf")


def same_start(epoch: str, other: str) -> bool:
    """Whether two epochs are of one start of an agent, so that their numbers have an order."""
    return epoch.rpartition(".")[0] == other.rpartition(".")[0] != ""


def is_earlier(epoch: str, other: str) -> bool:
    """Whether of two epochs of one start this one is the earlier."""
    # As text: a Lease may have any number of digits.
    return (len(epoch), epoch) < (len(other), other)


class RightState(str, Enum):
    """What the right rests on, as the log names it.

    DOUBTFUL: the last renewal failed. AGREED: no node can renew, so none can take over.
    """

    ABSENT = "absent"
    RENEWED = "renewed"
    DOUBTFUL = "doubtful"
    AGREED = "agreed"
    OVER = "over"
    RELEASED = "released"


class Renewal(NamedTuple):
    """A renewal that was sent: in which epoch, with which subnets and timing, and when."""

    epoch: str
    subnets: Tuple[Network, ...]
    timing: LeaseTiming
    sent_at: float

    @property
    def deadline(self) -> HoldDeadline:
        """Until when it lets its node hold addresses.

        From its end on the others may find the Lease ended, at the earliest, if none follows.
        """
        return HoldDeadline(
            self.sent_at + self.timing.renew_deadline,
            self.sent_at + self.timing.duration * (1 - _CLOCK_RATES),
        )


@dataclass(frozen=True)
class Right:
    """The own Lease, its renewals, and until when this node may hold addresses.

    `timing`: that of the last successful renewal. `token`: differs for each start of the agent, and
    once another program has written epochs of it. `number`: of the epoch in which the last write
    succeeded; 0: none yet, or it is over. `next_number`: of the next epoch. `sent_at`: when the
    last successful renewal of the epoch was sent, and `took`: seconds until it was answered, or one
    after it that failed, if that took longer; `is_failing`: one after it failed. `is_shown`: a
    watch or a list has shown this node its own Lease in this epoch, and so every Lease that was
    written before. `is_left`: a renewal in another epoch has been sent. `is_deleted`: a program
    deleted the Lease, or wrote an epoch of this node. `agreed`: until when it may hold because no
    node can renew; `is_cut_off`: another one can. `subnets`: what the Lease lists in this epoch.
    `under_way`: renewals without an answer; `failing_since`: when the first one after the last that
    succeeded was sent. `next_at`: when to send the next one, and `change_at`: when to write what
    else the Lease is to say. `limit`: where a renewal with a shorter duration has been sent since,
    and may have been written: who has seen no other waits no longer than it says.
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
    under_way: Tuple[Renewal, ...] = ()
    failing_since: Optional[float] = None
    next_at: float = _NEVER
    change_at: float = _NOT_DUE
    limit: Optional[HoldDeadline] = None

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
    def own_deadline(self) -> HoldDeadline:
        """Until when the own Lease gives the right, counted from the last renewal."""
        last = Renewal(self.epoch, self.subnets, self.timing, self.sent_at)
        return last.deadline.limited_to(self.limit)

    @property
    def ends_at(self) -> float:
        """Until when the own Lease gives the right to announce."""
        return self.own_deadline.announce_until

    @property
    def is_quick(self) -> bool:
        """Whether renewals are answered so soon that each one is in time for the next."""
        return self.is_quick_by(1.0)

    def is_quick_by(self, share: float) -> bool:
        """Whether the last renewal took less than this part of what it may take."""
        return self.took < share * self.timing.renew_deadline / 2

    @property
    def is_in_doubt(self) -> bool:
        """Whether renewals fail, hang, or take so long that the next one may come too late."""
        is_doubtful = self.is_failing or len(self.under_way) > 1 or not self.is_quick
        return is_doubtful and not self.is_released

    def slowness(self, now: float) -> float:
        """Return how long renewals take at present, in seconds, with the one that is under way."""
        return max([self.took, *(now - renewal.sent_at for renewal in self.under_way)])

    def can_renew(self, since: float) -> bool:
        """Whether a renewal that was sent since then shows that this node can renew.

        A read shows nothing: an API server that cannot write may well be able to read.
        """
        return self.number > 0 and self.sent_at >= since and not self.is_in_doubt

    def due_at(self, now: float) -> float:
        """Return when to send a renewal; a change is no reason to hurry where writes fail.

        One that is under way is not given up, as it may just be slow: another one is sent.
        """
        if self.is_released or len(self.under_way) >= _MOST_UNDER_WAY:
            return _NOT_DUE
        if self.under_way or self.state(now) is RightState.OVER:
            return self.next_at
        return min(self.next_at, self.change_at)

    def changing(self, at: float) -> Right:
        """Record that what else the Lease says is to be written at this time or before."""
        return replace(self, change_at=min(self.change_at, at))

    def unchanged(self) -> Right:
        """Record that the Lease says already what it is to say."""
        return replace(self, change_at=_NOT_DUE)

    def renewing(self, now: float) -> Right:
        """Record that a renewal is to be sent now, or soon after the last one."""
        soon = max(now, self.sent_at + _MIN_PAUSE)
        return self if self.under_way else replace(self, next_at=min(self.next_at, soon))

    def sent(
        self, subnets: Tuple[Network, ...], *, now: float, timing: Optional[LeaseTiming] = None
    ) -> Tuple[Right, Renewal]:
        """Record that a renewal is sent, which others may see from now on.

        `timing`: what the Lease says from now on; None: what it said before.

        It is in another epoch if the present one is over. Then others take what was agreed on in
        that for void, so it is never written again, even if the subnets are the same again.
        """
        ends = now >= self.ends_at or subnets != self.subnets or self.is_deleted or self.is_left
        number = self.number if self.number and not ends else self.next_number
        renewal = Renewal(self._named(number), subnets, timing or self.timing, now)
        right = replace(
            self,
            limit=renewal.deadline.limited_to(self.limit),
            is_shown=self.is_shown and number == self.number,
            is_left=self.is_left or number != self.number,
            under_way=(*self.under_way, renewal),
            failing_since=now if self.failing_since is None else self.failing_since,
            next_at=self._retry_at(now, hangs=True),
            change_at=_NOT_DUE,
        )
        return right, renewal

    def succeeded(self, renewal: Renewal, *, now: float) -> Right:
        """Record that a renewal was written: others that are under way name the version before.

        One that comes too late gives none and counts as failed: after its own end, or after the
        Lease's, by which the others may have found it ended. So does a slow one of a node that has
        lost its right while others can renew: the next one would not be in time.
        """
        if self.is_released:
            return self
        sent_at, took, timing = renewal.sent_at, now - renewal.sent_at, renewal.timing
        alone = replace(self, under_way=())
        renewed = replace(
            alone,
            timing=timing,
            sent_at=sent_at,
            took=took,
            is_failing=False,
            failing_since=None,
            limit=_earliest(other for other in self.under_way if other.sent_at > sent_at),
        )
        # The time left when the next one is sent is twice what this one took.
        pause = min(timing.renew_period, timing.renew_deadline - 2 * took)
        renewed = replace(renewed, next_at=sent_at + max(pause, took))
        has_right = self.deadline(now) is not None
        is_late = now >= renewed.ends_at
        is_ended = now >= self.own_deadline.hold_until
        if has_right and renewal.epoch == self.epoch and not is_ended and not is_late:
            return renewed
        had_none = has_right or self.sent_at == _NEVER
        is_useful = had_none or not self.is_cut_off or renewed.is_quick_by(_RETURN)
        if renewal.epoch == self._named(self.next_number) and is_useful and not is_late:
            return _begun(renewed, renewal.subnets)
        return alone.failed(renewal, now=now)

    def failed(self, renewal: Renewal, *, now: float) -> Right:
        """Record a failed renewal; it may have been written, so no other enters its new epoch."""
        under_way = tuple(other for other in self.under_way if other != renewal)
        is_next = renewal.epoch == self._named(self.next_number)
        return replace(
            self,
            is_failing=True,
            took=max(self.took, now - renewal.sent_at),
            next_number=self.next_number + (1 if is_next else 0),
            under_way=under_way,
            next_at=self.next_at if under_way else self._retry_at(now),
        )

    def _retry_at(self, now: float, *, hangs: bool = False) -> float:
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

    def shown(self, epoch: str, *, now: float) -> Right:
        """Record that a watch or a list has shown the own Lease in this epoch.

        In a later one than this node has written it is another program's, and who has seen it takes
        all that this node writes for past: it begins with another token.
        """
        last = self._named(self.next_number if self.is_left else self.next_number - 1)
        if same_start(epoch, last) and is_earlier(last, epoch):
            first, _dash, count = self.token.partition("-")
            token = f"{first}-{int(count or 0) + 1}"
            return replace(self, token=token, is_shown=False, is_deleted=True).renewing(now)
        if self.is_shown or self.is_left or epoch != self.epoch or not epoch:
            return self
        return replace(self, is_shown=True)

    def deleted(self, *, now: float) -> Right:
        """Record that the own Lease is gone: a node that joins now does not see this node."""
        if not self.is_shown:
            return self
        return replace(self, is_shown=False, is_deleted=True).renewing(now)

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

    def released(self) -> Right:
        """Leave the election permanently."""
        return replace(self, number=0, is_shown=False, agreed=None, is_released=True)

    def deadline(self, now: float) -> Optional[HoldDeadline]:
        """Return until when this node may hold addresses; None if it may not hold any."""
        if not self.number:
            return None
        own = self.own_deadline
        if self.agreed is not None and now < self.agreed.announce_until:
            is_doubtful = self.is_failing or now >= own.announce_until
            return own.extended_to(self.agreed, is_agreed=is_doubtful)
        return own if now < own.announce_until else None

    def state(self, now: float) -> RightState:
        """Return what the right rests on now."""
        if self.is_released:
            return RightState.RELEASED
        deadline = self.deadline(now)
        if deadline is None:
            return RightState.ABSENT if self.sent_at == _NEVER else RightState.OVER
        if deadline.is_agreed:
            return RightState.AGREED
        return RightState.DOUBTFUL if self.is_failing else RightState.RENEWED

    def may_add(self, now: float) -> bool:
        """Whether the permissions of this epoch are valid for addresses that are not held yet.

        Once the own Lease has ended the others may have taken theirs back, so who holds by
        agreement only keeps what it has.
        """
        return self.is_shown and now < self.ends_at and self.deadline(now) is not None


def _earliest(renewals: Iterable[Renewal]) -> Optional[HoldDeadline]:
    limit: Optional[HoldDeadline] = None
    for renewal in renewals:
        limit = renewal.deadline.limited_to(limit)
    return limit


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
