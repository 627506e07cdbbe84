# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The life of Leases: the renewal of the own one, and which of the others are live.

Both receive the time as an argument and return when they must be called again; neither reads a
clock. Another node's Lease counts from the moment at which this observer saw it renewed, on the
observer's monotonic clock, so the nodes' clocks need not agree. The own Lease counts from the
moment at which its last successful renewal was *sent*, which is never later than what any observer
saw.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Dict, Iterable, Iterator, Mapping, Optional, Tuple

from ..model import Lease
from ..settings import LeaseTiming
from .draining import Drained
from .election import Member

MAX_FAILURES = 3
# A Lease that is seen for the first time is dead if its renewal is older than this by the wall
# clock. Clocks of nodes in one cluster are assumed to differ by less.
LONG_EXPIRED = 300.0
# How long an expired Lease still counts until a list confirms the expiry. A stalled watch looks as
# if every node had died at once, and a node that believed it would take every address.
CONFIRMATION = 2.0


class RenewalState(str, Enum):
    """The state of the own Lease."""

    ABSENT = "absent"
    HELD = "held"
    DOUBTFUL = "doubtful"
    # The peers answer that the API is down for all nodes, so none of them can take over.
    HOLDING = "holding"
    LOST = "lost"
    RELEASED = "released"


class RenewalEvent(str, Enum):
    """An event in the life of the own Lease."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXTENDED = "extended"
    LAPSED = "lapsed"
    STOPPED = "stopped"


_S, _E = RenewalState, RenewalEvent
TRANSITIONS: Dict[Tuple[RenewalState, RenewalEvent], RenewalState] = {
    (_S.ABSENT, _E.SUCCEEDED): _S.HELD,
    (_S.ABSENT, _E.FAILED): _S.ABSENT,
    (_S.HELD, _E.SUCCEEDED): _S.HELD,
    (_S.HELD, _E.FAILED): _S.DOUBTFUL,
    (_S.HELD, _E.EXTENDED): _S.HOLDING,
    (_S.HELD, _E.LAPSED): _S.LOST,
    (_S.DOUBTFUL, _E.SUCCEEDED): _S.HELD,
    (_S.DOUBTFUL, _E.FAILED): _S.DOUBTFUL,
    (_S.DOUBTFUL, _E.EXTENDED): _S.HOLDING,
    (_S.DOUBTFUL, _E.LAPSED): _S.LOST,
    (_S.HOLDING, _E.SUCCEEDED): _S.HELD,
    (_S.HOLDING, _E.FAILED): _S.HOLDING,
    (_S.HOLDING, _E.EXTENDED): _S.HOLDING,
    (_S.HOLDING, _E.LAPSED): _S.LOST,
    (_S.LOST, _E.SUCCEEDED): _S.HELD,
    (_S.LOST, _E.FAILED): _S.LOST,
    **{(state, _E.STOPPED): _S.RELEASED for state in _S},
}
_MAY_HOLD = (RenewalState.HELD, RenewalState.DOUBTFUL, RenewalState.HOLDING)


@dataclass(frozen=True)
class Renewal:
    """The own Lease: its state, when its last successful renewal was sent, when to try again.

    `failed_at`: time of the last failure that was counted. `extension`: the deadline that the last
    answers of the peers allow, while no node can renew.
    """

    timing: LeaseTiming
    state: RenewalState = RenewalState.ABSENT
    sent_at: float = 0.0
    failures: int = 0
    failed_at: float = float("-inf")
    next_attempt: float = 0.0
    extension: Optional[HoldDeadline] = None

    def _to(self, event: RenewalEvent) -> Renewal:
        return replace(self, state=TRANSITIONS[self.state, event])

    def succeeded(self, sent_at: float, now: float) -> Renewal:
        """Record a successful renewal, sent at `sent_at` and answered by `now`."""
        renewal = replace(
            self._to(RenewalEvent.SUCCEEDED),
            sent_at=sent_at,
            failures=0,
            extension=None,
            next_attempt=max(now, sent_at + self.timing.renew_period),
        )
        return renewal.at(now)

    def failed(self, now: float) -> Renewal:
        """Record a failed renewal.

        Extra attempts that answer a peer's question are not counted: otherwise, the more peers ask,
        the sooner the node would lose its Lease.
        """
        counts = self.failures == 0 or now >= self.failed_at + self.timing.retry_period
        renewal = replace(
            self._to(RenewalEvent.FAILED),
            failures=self.failures + (1 if counts else 0),
            failed_at=now if counts else self.failed_at,
            next_attempt=now + self.timing.retry_period,
        )
        return renewal.at(now)

    def extended(self, extension: HoldDeadline) -> Renewal:
        """Record that no node can renew. This never restores a Lease that is already lost.

        The peers may have declared this node dead before they lost the API, too.
        """
        if self.state not in _MAY_HOLD:
            return self
        return replace(self._to(RenewalEvent.EXTENDED), extension=extension)

    def sooner(self, moment: float) -> Renewal:
        """Schedule the next attempt at this moment at the latest."""
        return replace(self, next_attempt=min(self.next_attempt, moment))

    def at(self, now: float) -> Renewal:
        """Return the state at this time: it lapses at the deadline or with the third failure.

        While no node can renew, failures are expected and do not count.
        """
        deadline = self.hold_deadline
        if deadline is None:
            return self
        failed = self.failures >= MAX_FAILURES and self.state is not RenewalState.HOLDING
        if failed or now >= deadline.announce_until:
            return replace(self._to(RenewalEvent.LAPSED), extension=None)
        return self

    def stopped(self) -> Renewal:
        """Leave the election permanently."""
        return self._to(RenewalEvent.STOPPED)

    @property
    def hold_deadline(self) -> Optional[HoldDeadline]:
        """Until when this node may hold addresses; None if it may not hold any."""
        if self.state not in _MAY_HOLD:
            return None
        deadline = HoldDeadline(
            announce_until=self.sent_at + self.timing.renew_deadline,
            hold_until=self.sent_at + self.timing.duration,
        )
        return deadline if self.extension is None else deadline.extended_to(self.extension)


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


@dataclass(frozen=True)
class ObservedLease:
    """A Lease and when the observer saw it renewed; `doubtful`: it has not seen a renewal yet."""

    lease: Lease
    seen_at: float
    doubtful: bool = False

    @property
    def expires_at(self) -> float:
        """When the Lease expires for this observer unless it sees a renewal."""
        return self.seen_at + self.lease.duration


def taint_of(lease: Lease, drained: Mapping[str, Drained]) -> str:
    """Return the draining taint of the Node that owns a Lease; empty: none.

    A Lease that is owned by another Node of the same name is not affected.
    """
    node = drained.get(lease.node)
    return node.taint if node and lease.node_uid in ("", node.uid) else ""


def _same_renewal(one: Lease, other: Lease) -> bool:
    # The resource version is ignored: labelling a dead node's Lease must not revive the node.
    return (one.renew_time, one.holder, one.instance) == (
        other.renew_time,
        other.holder,
        other.instance,
    )


@dataclass(frozen=True)
class Membership:
    """The Leases of all nodes as one observer saw them; each change returns a new record.

    `listed_at`: when the last complete list was requested. A Lease that expired since then has
    expired only for this observer's watch, and counts a little longer until a list confirms it.
    `frozen_at`: since this time it is unknown who can renew, and no Lease expires. `promises`:
    nodes whose Leases this observer counts as live until the given time, because it answered them
    that it cannot renew.
    """

    observed: Mapping[str, ObservedLease] = field(default_factory=dict)
    listed_at: float = float("-inf")
    frozen_at: Optional[float] = None
    promises: Mapping[str, float] = field(default_factory=dict)

    def observe(self, lease: Lease, *, now: float, wall_time: float) -> Membership:
        """Record a Lease as seen at `now` (monotonic) and `wall_time` (wall clock)."""
        known = self.observed.get(lease.node)
        if known is None:
            age = wall_time - (lease.renew_time or 0.0)
            if age > LONG_EXPIRED:
                observed = ObservedLease(lease, float("-inf"))
            else:
                observed = ObservedLease(lease, now, doubtful=abs(age) > lease.duration)
        elif _same_renewal(known.lease, lease):
            observed = replace(known, lease=lease)
        else:
            observed = ObservedLease(lease, now)
        return replace(self, observed={**self.observed, lease.node: observed})

    def forget(self, node: str) -> Membership:
        """Record that a node's Lease was deleted."""
        return replace(self, observed={n: s for n, s in self.observed.items() if n != node})

    def listed(
        self, leases: Iterable[Lease], *, asked_at: float, now: float, wall_time: float
    ) -> Membership:
        """Record a complete list of Leases, requested at `asked_at`."""
        found = {lease.node: lease for lease in leases}
        known = {n: s for n, s in self.observed.items() if n in found}
        membership = replace(self, observed=known, listed_at=asked_at)
        for lease in found.values():
            membership = membership.observe(lease, now=now, wall_time=wall_time)
        return membership

    def live(
        self, now: float, drained: Optional[Mapping[str, Drained]] = None
    ) -> Tuple[Member, ...]:
        """Return the nodes whose Lease has not expired for this observer, sorted by name.

        `drained`: the draining Nodes by name.
        """
        return tuple(
            Member(node, lease.subnets, taint=taint_of(lease, drained or {}))
            for node, lease in (
                (node, observed.lease)
                for node, observed in sorted(self.observed.items())
                if self._moment(now) < self._live_until(observed)
            )
        )

    def is_live(self, node: str, now: float) -> bool:
        """Whether a node's Lease is live, so that it takes part in elections."""
        observed = self.observed.get(node)
        return observed is not None and self._moment(now) < self._live_until(observed)

    def live_with_duplicates(self, now: float) -> Iterator[Lease]:
        """Yield the live Leases that list addresses of other hosts."""
        for node, observed in self.observed.items():
            # In this order: hardly any Lease lists one, and this is asked whenever one changes.
            if observed.lease.duplicates and self.is_live(node, now):
                yield observed.lease

    def _moment(self, now: float) -> float:
        return now if self.frozen_at is None else min(now, self.frozen_at)

    def _live_until(self, observed: ObservedLease) -> float:
        is_confirmed = observed.expires_at <= self.listed_at
        ends_at = observed.expires_at + (0.0 if is_confirmed else CONFIRMATION)
        return max(ends_at, self.promises.get(observed.lease.node, ends_at))

    def has_unconfirmed_expiry(self, now: float) -> bool:
        """Whether a Lease expired after the last list, so that a new list is needed."""
        moment = self._moment(now)
        return any(self.listed_at < s.expires_at <= moment for s in self.observed.values())

    def next_expiry(self, now: float) -> Optional[float]:
        """Return when the next Lease expires or stops counting if nothing else is seen."""
        if self.frozen_at is not None:
            return None
        moments = (
            moment for s in self.observed.values() for moment in (s.expires_at, self._live_until(s))
        )
        return min((moment for moment in moments if now < moment), default=None)

    def settles_at(self, now: float) -> Optional[float]:
        """Return when every Lease is known to be live or dead; None if that is already known.

        A node that joined earlier could count a dead node's Lease, and leave addresses to it that
        its peers leave to the joining node.
        """
        return max(
            (s.expires_at for s in self.observed.values() if s.doubtful and now < s.expires_at),
            default=None,
        )

    def promise(self, node: str, *, until: float, now: float) -> Membership:
        """Record the promise to count a node's Lease as live until then."""
        kept = {name: moment for name, moment in self.promises.items() if now < moment}
        return replace(self, promises={**kept, node: until})

    def freeze(self, now: float) -> Membership:
        """Record that it is unknown from now on who can renew; a second call changes nothing."""
        return self if self.frozen_at is not None else replace(self, frozen_at=now)

    def unfreeze(self) -> Membership:
        """Record that other nodes can renew: Leases that expired meanwhile stay expired."""
        return self if self.frozen_at is None else replace(self, frozen_at=None)

    def resume_expiry(self, now: float) -> Membership:
        """Record that renewals succeed again: each live Lease gets its full duration."""
        observed = {
            node: replace(observed, seen_at=now) if self.is_live(node, now) else observed
            for node, observed in self.observed.items()
        }
        return replace(self, observed=observed, frozen_at=None)

    def rejoin(self, *, since: float, now: float, patience: float) -> Membership:
        """Treat Leases as doubtful that expired while this observer was cut off, `since` to `now`.

        Their nodes may have been cut off as well and be about to renew, so they get `patience`
        seconds. Otherwise this observer would take over addresses that they still hold.
        """
        observed = {
            node: replace(observed, seen_at=now + patience - observed.lease.duration, doubtful=True)
            if since < observed.expires_at <= now
            else observed
            for node, observed in self.observed.items()
        }
        return replace(self, observed=observed, frozen_at=None)
