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

from .election import Member
from .model import Lease
from .settings import LeaseTiming

MAX_FAILURES = 3
# A Lease seen for the first time whose renewal is older than this by the wall clock is dead. Clocks
# of nodes in one cluster are taken to be closer together than this.
LONG_EXPIRED = 300.0
# How long past its end a Lease still counts while it is being asked for. A watch that stands still
# looks as if every node had died at once, and who believed that would take every address.
CONFIRMATION = 2.0


NONE_DRAINED: Mapping[str, str] = {}


class RenewalState(str, Enum):
    """What the own Lease is worth."""

    ABSENT = "absent"
    HELD = "held"
    DOUBTFUL = "doubtful"
    LOST = "lost"
    RELEASED = "released"


class RenewalEvent(str, Enum):
    """What can happen to the own Lease."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LAPSED = "lapsed"
    STOPPED = "stopped"


_S, _E = RenewalState, RenewalEvent
TRANSITIONS: Dict[Tuple[RenewalState, RenewalEvent], RenewalState] = {
    (_S.ABSENT, _E.SUCCEEDED): _S.HELD,
    (_S.ABSENT, _E.FAILED): _S.ABSENT,
    (_S.HELD, _E.SUCCEEDED): _S.HELD,
    (_S.HELD, _E.FAILED): _S.DOUBTFUL,
    (_S.HELD, _E.LAPSED): _S.LOST,
    (_S.DOUBTFUL, _E.SUCCEEDED): _S.HELD,
    (_S.DOUBTFUL, _E.FAILED): _S.DOUBTFUL,
    (_S.DOUBTFUL, _E.LAPSED): _S.LOST,
    (_S.LOST, _E.SUCCEEDED): _S.HELD,
    (_S.LOST, _E.FAILED): _S.LOST,
    **{(state, _E.STOPPED): _S.RELEASED for state in _S},
}
_WITH_RIGHT = (RenewalState.HELD, RenewalState.DOUBTFUL)


@dataclass(frozen=True)
class Renewal:
    """The own Lease: its state, when the last good renewal was sent, when to try again."""

    timing: LeaseTiming
    state: RenewalState = RenewalState.ABSENT
    sent_at: float = 0.0
    failures: int = 0
    next_attempt: float = 0.0

    def _to(self, event: RenewalEvent) -> Renewal:
        return replace(self, state=TRANSITIONS[self.state, event])

    def succeeded(self, sent_at: float, now: float) -> Renewal:
        """Take note of a renewal sent at `sent_at` and answered by `now`."""
        renewal = replace(
            self._to(RenewalEvent.SUCCEEDED),
            sent_at=sent_at,
            failures=0,
            next_attempt=max(now, sent_at + self.timing.renew_period),
        )
        return renewal.at(now)

    def failed(self, now: float) -> Renewal:
        """Take note of a renewal that did not succeed."""
        renewal = replace(
            self._to(RenewalEvent.FAILED),
            failures=self.failures + 1,
            next_attempt=now + self.timing.retry_period,
        )
        return renewal.at(now)

    def at(self, now: float) -> Renewal:
        """Look at the clock: the right lapses at its deadline or with the third failure."""
        lapsed = self.failures >= MAX_FAILURES or now >= self.sent_at + self.timing.renew_deadline
        if self.state in _WITH_RIGHT and lapsed:
            return self._to(RenewalEvent.LAPSED)
        return self

    def stopped(self) -> Renewal:
        """Leave the election for good."""
        return self._to(RenewalEvent.STOPPED)

    @property
    def right(self) -> Optional[Right]:
        """What this Lease allows, or None."""
        if self.state not in _WITH_RIGHT:
            return None
        return Right(
            announce_until=self.sent_at + self.timing.renew_deadline,
            ends_at=self.sent_at + self.timing.duration,
        )


@dataclass(frozen=True)
class Right:
    """The right to hold addresses, on the node's monotonic clock.

    At `announce_until` the node withdraws by itself; at `ends_at` its peers may take over, and by
    then the kernel has removed whatever a dead or frozen agent left.
    """

    announce_until: float
    ends_at: float


@dataclass(frozen=True)
class Sighting:
    """A Lease and when the observer saw its last renewal; `doubtful`: saw only the Lease itself."""

    lease: Lease
    seen_at: float
    doubtful: bool = False

    @property
    def expires_at(self) -> float:
        """When the Lease ends for this observer, if it sees no renewal until then."""
        return self.seen_at + self.lease.duration


def _is_of(lease: Lease, node_uid: Optional[str]) -> bool:
    return node_uid is not None and lease.node_uid in ("", node_uid)


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
    """

    sightings: Mapping[str, Sighting] = field(default_factory=dict)
    listed_at: float = float("-inf")

    def observe(self, lease: Lease, *, now: float, wall_time: float) -> Membership:
        """Take note of a Lease as it is at `now` (monotonic) and `wall_time` (the wall clock)."""
        known = self.sightings.get(lease.node)
        if known is None:
            age = wall_time - (lease.renew_time or 0.0)
            if age > LONG_EXPIRED:
                sighting = Sighting(lease, float("-inf"))
            else:
                sighting = Sighting(lease, now, doubtful=abs(age) > lease.duration)
        elif _same_renewal(known.lease, lease):
            sighting = replace(known, lease=lease)
        else:
            sighting = Sighting(lease, now)
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
        membership = Membership(known, asked_at)
        for lease in found.values():
            membership = membership.observe(lease, now=now, wall_time=wall_time)
        return membership

    def live(self, now: float, drained: Mapping[str, str] = NONE_DRAINED) -> Tuple[Member, ...]:
        """Nodes whose Lease has not ended for this observer.

        `drained` gives the UIDs of Nodes that are to hold nothing, by name: a Lease that another
        Node of that name owns is not theirs.
        """
        return tuple(
            Member(node, lease.subnets, draining=_is_of(lease, drained.get(node)))
            for node, lease in (
                (node, sighting.lease)
                for node, sighting in sorted(self.sightings.items())
                if now < self._counts_until(sighting)
            )
        )

    def _counts_until(self, sighting: Sighting) -> float:
        is_confirmed = sighting.expires_at <= self.listed_at
        return sighting.expires_at + (0.0 if is_confirmed else CONFIRMATION)

    def has_unconfirmed_end(self, now: float) -> bool:
        """Whether a Lease has ended that no list since has confirmed: time to ask for one."""
        return any(self.listed_at < s.expires_at <= now for s in self.sightings.values())

    def next_expiry(self, now: float) -> Optional[float]:
        """When the next Lease ends, or counts no longer, if nothing else is seen."""
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
