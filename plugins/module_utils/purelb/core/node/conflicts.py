# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Whether another host has an address that this node holds: when to ask, and what to believe.

A claim alone proves nothing: when the winner changes, the new one announces before the old one has
heard of it. So a claim only makes an address suspect. A second later, when whoever lost it has let
go, the address is probed, and a claim that then comes while it is still held is a conflict. Nothing
here lets go of an address: who should have it is the election's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from ..model import Address
from .packets import AddressClaim

Place = Tuple[int, Address]

PROBE_EVERY = 30.0
# How long after it was gained an address is first probed: its former holder has let go by then.
FIRST_PROBE = 2.0
CONFIRM_AFTER = 1.0
# RFC 5227, 2.1.1 waits as long for answers to a probe (PROBE_MIN), RFC 4861 too (RETRANS_TIMER).
ANSWER_WITHIN = 1.0
# A host not heard of for so long is news when it is heard again.
ABSENT_AFTER = 300.0
# So many probes in so many seconds: a hundred a second, which no switch takes for a storm.
BATCH, BATCH_EVERY = 25, 0.25
# Hosts reported for one address: more of them is one fault, or somebody who invents them.
MOST_HOSTS = 4


@dataclass(frozen=True)
class DuplicateAddress:
    """A host that has an address which this node holds on a link."""

    address: Address
    link: int
    mac: bytes


@dataclass(frozen=True)
class AddressProbe:
    """What is known of one held address.

    `conflict_until` is how long a claim answers the probe of a suspicion; `hosts` are those that
    were reported, each with the time at which it was last heard.
    """

    probe_at: float
    is_suspect: bool = False
    conflict_until: float = float("-inf")
    hosts: Mapping[bytes, float] = field(default_factory=dict)

    def heard(self, mac: bytes, *, now: float) -> Tuple[AddressProbe, bool]:
        """Take note that another host claims the address; whether that is a new conflict."""
        hosts = {host: at for host, at in self.hosts.items() if now < at + ABSENT_AFTER}
        if mac in hosts:
            return replace(self, hosts={**hosts, mac: now}), False
        if self.is_suspect or len(hosts) == MOST_HOSTS:
            return self, False
        if now <= self.conflict_until:
            return replace(self, hosts={**hosts, mac: now}), True
        return replace(self, is_suspect=True, probe_at=now + CONFIRM_AFTER), False

    def probed(self, now: float) -> AddressProbe:
        """Take note of a probe sent now."""
        until = now + ANSWER_WITHIN if self.is_suspect else self.conflict_until
        return replace(self, probe_at=now + PROBE_EVERY, is_suspect=False, conflict_until=until)


@dataclass(frozen=True)
class ConflictDetector:
    """The held addresses under guard, the MACs of this node, and when the next batch may be sent.

    Held addresses are (link index, address).
    """

    guards: Mapping[Place, AddressProbe] = field(default_factory=dict)
    own: FrozenSet[bytes] = frozenset()
    batch_at: float = float("-inf")

    def holding(
        self, places: Iterable[Place], own: Iterable[bytes], *, now: float
    ) -> ConflictDetector:
        """Guard these places and no others; `own` are the MACs of all links of this node."""
        fresh = AddressProbe(now + FIRST_PROBE)
        guards = {place: self.guards.get(place, fresh) for place in places}
        return replace(self, guards=guards, own=frozenset(own))

    def heard(
        self, link: int, claim: AddressClaim, *, now: float
    ) -> Tuple[ConflictDetector, Optional[DuplicateAddress]]:
        """Take note of a claim heard on a link, and the conflict that it proves."""
        place = (link, claim.address)
        guard = self.guards.get(place)
        if guard is None or claim.mac in self.own:
            return self, None
        after, is_conflict = guard.heard(claim.mac, now=now)
        watch = replace(self, guards={**self.guards, place: after})
        return watch, DuplicateAddress(claim.address, link, claim.mac) if is_conflict else None

    def due(self, *, now: float) -> Tuple[ConflictDetector, List[Place]]:
        """What to probe now, suspects first."""
        if now < self.batch_at:
            return self, []
        ready = [place for place, guard in self.guards.items() if guard.probe_at <= now]
        ready.sort(key=self._urgency)
        batch = ready[:BATCH]
        if not batch:
            return self, []
        probed: Dict[Place, AddressProbe] = {
            place: self.guards[place].probed(now) for place in batch
        }
        return replace(self, guards={**self.guards, **probed}, batch_at=now + BATCH_EVERY), batch

    def _urgency(self, place: Place) -> Tuple[bool, float]:
        guard = self.guards[place]
        return not guard.is_suspect, guard.probe_at

    @property
    def next_at(self) -> Optional[float]:
        """When the next probe is due."""
        soonest = min((guard.probe_at for guard in self.guards.values()), default=None)
        return None if soonest is None else max(soonest, self.batch_at)
