# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Detection of another host that has an address of this node: when to probe, what to conclude.

A claim alone proves nothing: after a change of the winner, the new holder announces before the old
one knows. So a claim only makes an address suspect. The address is probed a second later, when a
former holder has withdrawn it; a claim that then arrives while it is still held proves a conflict.
Nothing here removes an address: only the election decides who holds it. But the allocator gives no
Service an address that another host was found to have, see allocation/duplicates.

Another node of the cluster that answers, too, is no reason to set an address aside: on each node it
would be the same. kube-proxy in IPVS mode has every Service's address on every node, and without
strictARP their kernels answer for it. Each such node is reported for a few addresses, not for all.

Hosts believe the last claim that they heard. So an address is announced again after each probe of
it that is not answered: all announcements may have got lost. It is urgent where another host had
claimed it, as hosts look for it there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from ..model import Address
from ..names import MAX_DUPLICATES
from .packets import AddressClaim

Place = Tuple[int, Address]

PROBE_EVERY = 30.0
# An address is probed up to so much earlier, together with others: to wake up for each of them
# costs more than the probes.
TOGETHER = 10.0
# How long after it was gained an address is first probed; its former holder has withdrawn by then.
FIRST_PROBE = 2.0
CONFIRM_AFTER = 1.0
# RFC 5227, 2.1.1 waits as long for answers to a probe (PROBE_MIN), RFC 4861 too (RETRANS_TIMER).
ANSWER_WITHIN = 1.0
# A host that was silent for this long is reported again.
ABSENT_AFTER = 300.0
# For so many addresses another node is reported; who answers for more may answer for all.
MOST_ADDRESSES = 4
# Another node answers as long as it does so after each probe.
ANSWERING_FOR = PROBE_EVERY + 15.0
# Probes per batch, and seconds between batches: 100 per second, far below a broadcast storm.
BATCH, BATCH_EVERY = 25, 0.25
# Limit of reported hosts per address: more of them are a single fault, or an attack.
MOST_HOSTS = 4
# How long an address is listed after another host was last found to have it.
LISTED_FOR = 3600.0
_NEVER = float("inf")


@dataclass(frozen=True)
class DuplicateAddress:
    """Another host's MAC address that claims an address held by this node on a link.

    `node`: the node of the cluster that it is; empty for a host outside.
    """

    address: Address
    link: int
    mac: bytes
    node: str = ""


@dataclass(frozen=True)
class AddressProbe:
    """The state of one held address.

    `probe_at`: when it is probed next. `conflict_until`: until when a claim counts as the answer to
    the probe of a suspect address. `hosts`: the reported hosts by MAC, each with the time of its
    last claim. `is_contested`: another host has claimed it, and may still have it;
    `settles_at`: when the silence after a probe says that it has not.
    """

    probe_at: float
    is_suspect: bool = False
    conflict_until: float = float("-inf")
    hosts: Mapping[bytes, float] = field(default_factory=dict)
    is_contested: bool = False
    settles_at: float = _NEVER

    def heard(self, mac: bytes, *, now: float) -> Tuple[AddressProbe, bool]:
        """Return the state after a claim by another host, and whether it is a new conflict."""
        heard = replace(self, is_contested=True, settles_at=_NEVER)
        hosts = {host: at for host, at in self.hosts.items() if now < at + ABSENT_AFTER}
        if mac in hosts:
            return replace(heard, hosts={**hosts, mac: now}), False
        if self.is_suspect or len(hosts) == MOST_HOSTS:
            return heard, False
        if now <= self.conflict_until:
            return replace(heard, hosts={**hosts, mac: now}), True
        return replace(heard, is_suspect=True, probe_at=now + CONFIRM_AFTER), False

    def probed(self, now: float, *, again_at: float) -> AddressProbe:
        """Return the state after a probe sent now; the next one is sent at `again_at`."""
        until = now + ANSWER_WITHIN if self.is_suspect else self.conflict_until
        return replace(
            self,
            probe_at=again_at,
            is_suspect=False,
            conflict_until=until,
            settles_at=now + ANSWER_WITHIN,
        )

    def settled(self) -> AddressProbe:
        """Return the state after no host has answered a probe."""
        return replace(self, is_contested=False, settles_at=_NEVER)


@dataclass(frozen=True)
class AnsweringNode:
    """Another node that answers: when it did last, and for which addresses it was reported."""

    at: float
    addresses: FrozenSet[Address] = frozenset()

    def is_reported_for(self, address: Address) -> bool:
        """Whether its answers for an address are no news."""
        return address in self.addresses or len(self.addresses) == MOST_ADDRESSES


@dataclass(frozen=True)
class ConflictDetector:
    """Probes of all held addresses; `batch_at`: when the next batch may be sent.

    `own`: this node's MACs. `nodes`: the other nodes by their MACs. `answering`: those of them that
    answer for addresses of this node.
    """

    probes: Mapping[Place, AddressProbe] = field(default_factory=dict)
    own: FrozenSet[bytes] = frozenset()
    nodes: Mapping[bytes, str] = field(default_factory=dict)
    answering: Mapping[bytes, AnsweringNode] = field(default_factory=dict)
    batch_at: float = float("-inf")

    def holding(
        self,
        places: Iterable[Place],
        own: Iterable[bytes],
        *,
        nodes: Mapping[bytes, str],
        now: float,
    ) -> ConflictDetector:
        """Probe exactly these addresses; `own` are the MACs of all links of this node."""
        fresh = AddressProbe(now + FIRST_PROBE)
        probes = {place: self.probes.get(place, fresh) for place in places}
        return replace(self, probes=probes, own=frozenset(own), nodes=nodes)

    def heard(
        self, link: int, claim: AddressClaim, *, now: float
    ) -> Tuple[ConflictDetector, Optional[DuplicateAddress]]:
        """Return the state after a claim on a link, and the conflict if the claim proves one."""
        place = (link, claim.address)
        probe = self.probes.get(place)
        if probe is None or claim.mac in self.own:
            return self, None
        node = self.nodes.get(claim.mac, "")
        answering = self._answering(now)
        known = answering.get(claim.mac, AnsweringNode(now))
        if node and known.is_reported_for(claim.address):
            return replace(self, answering={**answering, claim.mac: replace(known, at=now)}), None
        after, is_conflict = probe.heard(claim.mac, now=now)
        detector = replace(self, probes={**self.probes, place: after})
        if not is_conflict:
            return detector, None
        if node:
            # Its answers say no more; those of a stranger would.
            probes = {**self.probes, place: replace(after, hosts=probe.hosts)}
            answering[claim.mac] = AnsweringNode(now, known.addresses | {claim.address})
            detector = replace(self, probes=probes, answering=answering)
        return detector, DuplicateAddress(claim.address, link, claim.mac, node)

    def _answering(self, now: float) -> Dict[bytes, AnsweringNode]:
        known = self.answering.items()
        return {mac: node for mac, node in known if now < node.at + ANSWERING_FOR}

    def answering_nodes(self, now: float) -> Tuple[str, ...]:
        """Return the other nodes that answer for addresses of this one, sorted."""
        found = {self.nodes[mac] for mac in self._answering(now) if mac in self.nodes}
        return tuple(sorted(found))

    def forgets_at(self, now: float) -> Optional[float]:
        """Return when the next node is one that does not answer any more; None without any."""
        ends = (node.at + ANSWERING_FOR for node in self._answering(now).values())
        return min(ends, default=None)

    def due(self, *, now: float) -> Tuple[ConflictDetector, List[Place]]:
        """Return the state afterwards and what to probe now, suspect addresses first."""
        if now < self.batch_at:
            return self, []
        ready = [place for place, probe in self.probes.items() if probe.probe_at <= now]
        ready.sort(key=self._urgency)
        batch = ready[:BATCH]
        if not batch:
            return self, []
        again_at = self._again_at(now)
        probed: Dict[Place, AddressProbe] = {
            place: self.probes[place].probed(now, again_at=again_at) for place in batch
        }
        return replace(self, probes={**self.probes, **probed}, batch_at=now + BATCH_EVERY), batch

    def _again_at(self, now: float) -> float:
        """Return when to probe again what is probed now: with others that are probed about then."""
        latest = now + PROBE_EVERY
        planned = (probe.probe_at for probe in self.probes.values())
        return min((at for at in planned if latest - TOGETHER < at <= latest), default=latest)

    def settled(self, *, now: float) -> Tuple[ConflictDetector, Dict[Place, bool]]:
        """Return the next state, and what no other host has; whether others had claimed it."""
        found = {p: probe for p, probe in self.probes.items() if probe.settles_at <= now}
        if not found:
            return self, {}
        after = {place: probe.settled() for place, probe in found.items()}
        contested = {place: probe.is_contested for place, probe in found.items()}
        return replace(self, probes={**self.probes, **after}), contested

    def _urgency(self, place: Place) -> Tuple[bool, float]:
        probe = self.probes[place]
        return not probe.is_suspect, probe.probe_at

    @property
    def next_at(self) -> Optional[float]:
        """When the next probe is due, or the next address settled; None without held addresses."""
        soonest = min((probe.probe_at for probe in self.probes.values()), default=None)
        if soonest is None:
            return None
        settles_at = min(probe.settles_at for probe in self.probes.values())
        return min(max(soonest, self.batch_at), settles_at)


@dataclass(frozen=True)
class FoundDuplicates:
    """The addresses that other hosts were found to have, each with the time until it is listed."""

    until: Mapping[Address, float] = field(default_factory=dict)

    def with_found(self, address: Address, *, now: float) -> FoundDuplicates:
        """Return the list with one more address; a full list takes no further one."""
        until = {known: end for known, end in self.until.items() if now < end}
        if address in until or len(until) < MAX_DUPLICATES:
            until[address] = now + LISTED_FOR
        return FoundDuplicates(until)

    def at(self, now: float) -> Tuple[Address, ...]:
        """Return the addresses that are listed at this time, in the order found."""
        return tuple(address for address, end in self.until.items() if now < end)
