# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The life of Leases: the own one's renewal, and which of the others are live.

Both are told the time and say when they want to be asked again; neither reads a clock. A Lease of
another node counts from the moment that this observer saw it renewed, on the observer's own
monotonic clock, so the nodes' clocks need not agree. The own Lease counts from the moment at which
its last good renewal was *sent*, which is never later than what any observer saw.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Dict, Iterable, Mapping, Optional, Tuple

from ..model import Lease
from ..settings import LeaseTiming
from .election import Member

MAX_FAILURES = 3
# A Lease seen for the first time whose renewal is older than this by the wall clock is dead. Clocks
# of nodes in one cluster are taken to be closer together than this.
LONG_EXPIRED = 300.0
# How long past its end a Lease still counts while it is being asked for. A watch that stands still
# looks as if every node had died at once, and who believed that would take every address.
CONFIRMATION = 2.0


class RenewalState(str, Enum):
    """What the own Lease is worth."""

    ABSENT = "absent"
    HELD = "held"
    DOUBTFUL = "doubtful"
    # The API is down for everybody, as the peers say: nobody can take over.
    HOLDING = "holding"
    LOST = "lost"
    RELEASED = "released"


class RenewalEvent(str, Enum):
    """What can happen to the own Lease."""

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
_WITH_RIGHT = (RenewalState.HELD, RenewalState.DOUBTFUL, RenewalState.HOLDING)


@dataclass(frozen=True)
class Renewal:
    """The own Lease: its state, when the last good renewal was sent, when to try again.

    `failed_at`: when the last failure that counts was known. `extension`: the right that the peers'
    answers gave last, while nobody can renew.
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
        """Take note of a renewal sent at `sent_at` and answered by `now`."""
        renewal = replace(
            self._to(RenewalEvent.SUCCEEDED),
            sent_at=sent_at,
            failures=0,
            extension=None,
            next_attempt=max(now, sent_at + self.timing.renew_period),
        )
        return renewal.at(now)

    def failed(self, now: float) -> Renewal:
        """Take note of a renewal that did not succeed.

        Those that peers ask for come in between. They do not count, or the more peers ask, the
        sooner a node would have failed for good.
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
        """Take note that nobody can renew. A right that is gone does not come back by this.

        The node may have been taken for dead before the others lost the API, too.
        """
        if self.state not in _WITH_RIGHT:
            return self
        return replace(self._to(RenewalEvent.EXTENDED), extension=extension)

    def sooner(self, moment: float) -> Renewal:
        """Try again at this moment, if not before."""
        return replace(self, next_attempt=min(self.next_attempt, moment))

    def at(self, now: float) -> Renewal:
        """Look at the clock: the right lapses at its deadline or with the third failure.

        While nobody can renew, failures say nothing new.
        """
        right = self.right
        if right is None:
            return self
        failed = self.failures >= MAX_FAILURES and self.state is not RenewalState.HOLDING
        if failed or now >= right.announce_until:
            return replace(self._to(RenewalEvent.LAPSED), extension=None)
        return self

    def stopped(self) -> Renewal:
        """Leave the election for good."""
        return self._to(RenewalEvent.STOPPED)

    @property
    def right(self) -> Optional[HoldDeadline]:
        """What this Lease allows, or None."""
        if self.state not in _WITH_RIGHT:
            return None
        right = HoldDeadline(
            announce_until=self.sent_at + self.timing.renew_deadline,
            ends_at=self.sent_at + self.timing.duration,
        )
        return right if self.extension is None else right.or_later(self.extension)


@dataclass(frozen=True)
class HoldDeadline:
    """The right to hold addresses, on the node's monotonic clock.

    At `announce_until` the node withdraws by itself; at `ends_at` its peers may take over, and by
    then the kernel has removed whatever a dead or frozen agent left.
    """

    announce_until: float
    ends_at: float

    def or_later(self, other: HoldDeadline) -> HoldDeadline:
        """The right that lasts as long as the longer of two."""
        return HoldDeadline(
            max(self.announce_until, other.announce_until), max(self.ends_at, other.ends_at)
        )


@dataclass(frozen=True)
class ObservedLease:
    """A Lease and when the observer saw its last renewal; `doubtful`: saw only the Lease itself."""

    lease: Lease
    seen_at: float
    doubtful: bool = False

    @property
    def expires_at(self) -> float:
        """When the Lease ends for this observer, if it sees no renewal until then."""
        return self.seen_at + self.lease.duration


def is_drained(lease: Lease, drained: Mapping[str, str]) -> bool:
    """Whether the Node of a Lease is among these, given by name and UID."""
    return lease.node in drained and lease.node_uid in ("", drained[lease.node])


def _same_renewal(one: Lease, other: Lease) -> bool:
    # Not the resource version: somebody who labels a dead node's Lease must not revive the node.
    return (one.renew_time, one.holder, one.instance) == (
        other.renew_time,
        other.holder,
        other.instance,
    )


@dataclass(frozen=True)
class Membership:
    """The Leases of all nodes as one observer saw them; replaced whole with each change.

    `listed_at` is when the last complete list was asked for. A Lease that ended since then has
    ended only for this observer's watch: it counts until a list confirms it, for a short while.
    `frozen_at`: since then it is in doubt who can renew, and no Lease ends. `promises`: this node
    told these that it cannot renew, and that their Leases therefore count for it until then.
    """

    sightings: Mapping[str, ObservedLease] = field(default_factory=dict)
    listed_at: float = float("-inf")
    frozen_at: Optional[float] = None
    promises: Mapping[str, float] = field(default_factory=dict)

    def observe(self, lease: Lease, *, now: float, wall_time: float) -> Membership:
        """Take note of a Lease as it is at `now` (monotonic) and `wall_time` (the wall clock)."""
        known = self.sightings.get(lease.node)
        if known is None:
            age = wall_time - (lease.renew_time or 0.0)
            if age > LONG_EXPIRED:
                sighting = ObservedLease(lease, float("-inf"))
            else:
                sighting = ObservedLease(lease, now, doubtful=abs(age) > lease.duration)
        elif _same_renewal(known.lease, lease):
            sighting = replace(known, lease=lease)
        else:
            sighting = ObservedLease(lease, now)
        return replace(self, sightings={**self.sightings, lease.node: sighting})

    def forget(self, node: str) -> Membership:
        """Take note that a node's Lease was deleted."""
        return replace(self, sightings={n: s for n, s in self.sightings.items() if n != node})

    def listed(
        self, leases: Iterable[Lease], *, asked_at: float, now: float, wall_time: float
    ) -> Membership:
        """Take note of a complete list, which was asked for at `asked_at`."""
        found = {lease.node: lease for lease in leases}
        known = {n: s for n, s in self.sightings.items() if n in found}
        membership = replace(self, sightings=known, listed_at=asked_at)
        for lease in found.values():
            membership = membership.observe(lease, now=now, wall_time=wall_time)
        return membership

    def live(self, now: float, drained: Optional[Mapping[str, str]] = None) -> Tuple[Member, ...]:
        """Nodes whose Lease has not ended for this observer.

        `drained` gives the UIDs of Nodes that are to hold nothing, by name: a Lease that another
        Node of that name owns is not theirs.
        """
        return tuple(
            Member(node, lease.subnets, draining=is_drained(lease, drained or {}))
            for node, lease in (
                (node, sighting.lease)
                for node, sighting in sorted(self.sightings.items())
                if self._moment(now) < self._counts_until(sighting)
            )
        )

    def counts(self, node: str, now: float) -> bool:
        """Whether a node takes part in elections."""
        sighting = self.sightings.get(node)
        return sighting is not None and self._moment(now) < self._counts_until(sighting)

    def _moment(self, now: float) -> float:
        return now if self.frozen_at is None else min(now, self.frozen_at)

    def _counts_until(self, sighting: ObservedLease) -> float:
        is_confirmed = sighting.expires_at <= self.listed_at
        ends_at = sighting.expires_at + (0.0 if is_confirmed else CONFIRMATION)
        return max(ends_at, self.promises.get(sighting.lease.node, ends_at))

    def has_unconfirmed_end(self, now: float) -> bool:
        """Whether a Lease has ended that no list since has confirmed: time to ask for one."""
        moment = self._moment(now)
        return any(self.listed_at < s.expires_at <= moment for s in self.sightings.values())

    def next_expiry(self, now: float) -> Optional[float]:
        """When the next Lease ends, or counts no longer, if nothing else is seen."""
        if self.frozen_at is not None:
            return None
        moments = (
            moment
            for s in self.sightings.values()
            for moment in (s.expires_at, self._counts_until(s))
        )
        return min((moment for moment in moments if now < moment), default=None)

    def settles_at(self, now: float) -> Optional[float]:
        """When at the latest each Lease is known to be live or dead; None: that is known now.

        A node that joins before would judge by a dead node's Lease and leave addresses unheld that
        its peers, who know better, leave to it.
        """
        return max(
            (s.expires_at for s in self.sightings.values() if s.doubtful and now < s.expires_at),
            default=None,
        )

    def promise(self, node: str, *, until: float, now: float) -> Membership:
        """Let a node's Lease count until then, whatever else is seen of it."""
        kept = {name: moment for name, moment in self.promises.items() if now < moment}
        return replace(self, promises={**kept, node: until})

    def freeze(self, now: float) -> Membership:
        """Take note that from now on it is in doubt who can renew; again changes nothing."""
        return self if self.frozen_at is not None else replace(self, frozen_at=now)

    def unfreeze(self) -> Membership:
        """Take note that the doubt was unfounded: what ended meanwhile has ended."""
        return self if self.frozen_at is None else replace(self, frozen_at=None)

    def resume_expiry(self, now: float) -> Membership:
        """Take note that renewals succeed again: who counted gets a full duration to renew."""
        sightings = {
            node: replace(sighting, seen_at=now) if self.counts(node, now) else sighting
            for node, sighting in self.sightings.items()
        }
        return replace(self, sightings=sightings, frozen_at=None)

    def rejoin(self, *, since: float, now: float, patience: float) -> Membership:
        """Doubt Leases that ended while this observer could not see, from `since` to `now`.

        Their nodes may have seen as little, and be about to renew: they have `patience` seconds. An
        observer that took part before would take their addresses from under them.
        """
        sightings = {
            node: replace(sighting, seen_at=now + patience - sighting.lease.duration, doubtful=True)
            if since < sighting.expires_at <= now
            else sighting
            for node, sighting in self.sightings.items()
        }
        return replace(self, sightings=sightings, frozen_at=None)
