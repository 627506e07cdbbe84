# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What must hold in every schedule: always, or within bounds that are written down here.

Each invariant is a method that yields what broke it, as text. docs/simulation.md lists them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from purelb.core.api.codec import lease_of
from purelb.core.election.election import rank
from purelb.core.model import Address
from purelb.core.node.rtnetlink import IFA_F_DEPRECATED
from purelb.core.settings import LeaseTiming
from purelb_agent.leader.elector import LeadershipLostError
from purelb_agent.runtime.netlink import NetlinkError
from simulation.api.objects import field_selector
from simulation.api.server import Watch
from simulation.api.way import Reach
from simulation.cluster import Cluster
from simulation.explore.fault import Fault
from simulation.explore.faults import KINDS as FAULTS
from simulation.explore.given import Given
from simulation.explore.presence import Presence
from simulation.explore.reach import OutOfReach, share
from simulation.explore.troubles import Troubles
from simulation.history import History, Holders
from simulation.manifests import KINDS
from simulation.member import Node
from simulation.node.addresses import ordered
from simulation.node.messages import LinkState
from simulation.node.wire import Segment
from simulation.time.timeline import MICROSECONDS
from simulation.users import endpoints

# Seconds. Nodes that were apart have each other's addresses until they have asked each other.
DELIVERY = 0.05
# From the end of the last fault on: then everything is in order again.
SETTLED = 40.0
# What nodes agree on in an outage lasts as long as the Lease that its node would write then: that
# is a long one, as writes fail.
_AGREED = LeaseTiming().duration
_FOR_EVER = 1 << 62
# In answers to who asks for how long a right or a promise lasts: those say that they can renew.
_FOR_SO_LONG = b"seconds"
# How much more of the usual renewals is too much.
TIMES = 2.0
# A change may cause so many writes of each node at once.
EXTRA = 5
# The same of all requests of one agent. While it is refused, it begins six watches every 0.75 s.
REQUESTS, BURST = 10.0, 10


@dataclass(frozen=True, slots=True)
class Breach:
    """An invariant that was broken, and how."""

    invariant: str
    text: str


class Judge:
    """Watches a cluster from now on."""

    def __init__(self, cluster: Cluster, faults: Sequence[Fault] = ()) -> None:
        self.cluster = cluster
        self.history = History(cluster)
        self.troubles = Troubles(cluster, self.history)
        self.reach = OutOfReach(cluster)
        self.history.changed, self.troubles.noted = self._changed, self.reach.look
        self.began = cluster.timeline.now
        # When nodes got rights, and for how many seconds.
        self._rights = {node: [(self.began, self.reach.longest)] for node in cluster.nodes}
        # Begin and end of each time in which a node had the only Lease with its subnets.
        self._alone: dict[str, list[list[int]]] = defaultdict(list)
        self._note_alone(written="")
        self._writes = 0
        self._asked = {name: cluster.way(f"agent/{name}").asked for name in cluster.nodes}
        cluster.network.heard, cluster.network.replied = self._heard, self._replied
        every = field_selector("")
        cluster.api.follow(Watch(KINDS["leases"], "", every, self._renewed))
        self.given = Given(cluster, self._new_address)
        known = [(fault, FAULTS[fault.kind]) for fault in faults]
        free, longest = self.given.free, lambda: self.reach.longest
        self.presence = Presence(cluster, self.history, self.troubles, free, known, longest)
        for address in cluster.addresses():
            self._ask(address)

    def breaches(self) -> list[Breach]:
        """Return what was broken until now; the last fault has ended SETTLED ago."""
        return [
            Breach(name, text)
            for name, invariant in INVARIANTS.items()
            for text in sorted(invariant(self))
        ]

    # What it hears

    def _changed(self, address: Address, before: Holders, holders: Holders) -> None:
        self.reach.changed(address, before, holders)
        self._ask(address)

    def _ask(self, address: Address) -> None:
        """Let the hosts that do not know who has an address ask for it."""
        for segment in self.cluster.segments:
            for host in segment.hosts:
                if address not in host.neighbors:
                    segment.ask(host, address)

    def _heard(self, node: str, lasts: float = _AGREED) -> None:
        self._rights.setdefault(node, []).append((self.cluster.timeline.now, lasts))

    def _replied(self, asker: str, asked: str, body: bytes) -> None:
        self.reach.replied(asker, asked, body)
        if _FOR_SO_LONG in body and not self._are_alone().get(asked):
            self._end_alone(asked)

    def _renewed(self, line: bytes) -> None:
        event = json.loads(line)
        lease = lease_of(event["object"])
        if lease is None:
            return
        if event["type"] == "DELETED" and not lease.is_released:
            self.reach.deleted(lease.node)
        if event["type"] in ("ADDED", "MODIFIED"):
            self._writes += 1
            self.reach.renewed(lease)
            self._heard(lease.node, lease.duration)
        self._note_alone(lease.node)

    def _note_alone(self, written: str) -> None:
        """Note which nodes are the only ones with their subnets, now that a Lease was written.

        If such a node cannot renew after that, it is more than half of all by itself, until another
        one is written; if it cannot see that either, until the other asks for how long its right
        lasts.
        """
        for node, is_alone in self._are_alone().items():
            if is_alone:
                spans = self._alone[node]
                if not spans or spans[-1][1] != _FOR_EVER:
                    spans.append([self.cluster.timeline.now, _FOR_EVER])
            elif node == written or self.cluster.way(f"agent/{node}").reach is Reach.WHOLE:
                self._end_alone(node)

    def _are_alone(self) -> dict[str, bool]:
        """Return for each node with a Lease whether it is the only one with its subnets."""
        leases = self.reach.leases()
        return {
            own.node: not any(share(lease, own) for lease in leases if lease.node != own.node)
            for own in leases
        }

    def _end_alone(self, node: str) -> None:
        for span in self._alone.get(node, [])[-1:]:
            span[1] = min(span[1], self.cluster.timeline.now)

    def _new_address(self, address: Address) -> None:
        # It may be that no node ever has it.
        self.history.note(address)

    # Always

    def twice(self) -> Iterator[str]:
        """Yield addresses with which two nodes answered one host, longer than a delivery takes.

        One of the two may be a node that cannot act on the end of its right, for as long; or the
        other one cannot know of its right.
        """
        for address in self.given.addresses:
            for seconds, holders, since in self._dated(self.history.heard(address)):
                if len(holders) < 2:  # noqa: PLR2004 - two
                    continue
                late = seconds
                if len(holders) == 2:  # noqa: PLR2004 - two
                    until = since + seconds
                    unaware = self._unaware(holders, since, until)
                    late -= max(unaware, self._apart(address, holders, since, until))
                if late > DELIVERY:
                    names = " and ".join(sorted(holders))
                    yield f"{address} was on {names} for {late:.2f} s, from {since:.2f} s on"

    def _unaware(self, nodes: Iterable[str], since: float, until: float) -> float:
        """Return for how long of this time one of these nodes could not act on its right's end."""
        spans = (span for node in nodes for span in self.troubles.unaware[node])
        return self._common(since, until, spans)

    def _apart(self, address: Address, pair: Holders, since: float, until: float) -> float:
        """Return for how long of this time one of two holders was out of the other's reach."""
        cases = (
            (case.begin, case.end)
            for case in self.reach.cases
            if case.address == address and {case.holder, case.taker} == pair
        )
        return self._common(since, until, cases)

    def rightless(self) -> Iterator[str]:
        """Yield addresses that a node had longer than any right: by its Lease or by its peers.

        A node whose Lease is the only one with its subnets needs none.
        """
        for address in self.given.addresses:
            for seconds, holders, since in self._spans(address):
                for node in sorted(holders):
                    late = self._without_right(node, since, since + seconds)
                    if late > DELIVERY:
                        yield f"{address} was on {node} for {late:.2f} s without a right"

    def _without_right(self, node: str, since: float, until: float) -> float:
        got, longest = self._rights.get(node, []), self.reach.longest
        rights = [(self._after(moment), self._after(moment) + lasts) for moment, lasts in got]
        rights += [(self._after(b), self._after(e) + longest) for b, e in self._alone[node]]
        had_until, worst = since, 0.0
        for begin, end in [*sorted(rights), (until, until)]:
            gap = min(begin, until) - had_until
            if gap > worst:
                worst = max(worst, gap - self._unaware([node], had_until, min(begin, until)))
            had_until = max(had_until, end)
        return worst

    def given_twice(self) -> Iterator[str]:
        """Yield addresses that two Services had."""
        yield from self.given.twice

    def lost(self) -> Iterator[str]:
        """Yield Services that lost an address although they were to keep it."""
        yield from self.given.lost

    # Within bounds

    def unheld(self) -> Iterator[str]:
        """Yield addresses that no node had for too long."""
        yield from self.presence.unheld(self.given.addresses)

    def unanswered(self) -> Iterator[str]:
        """Yield addresses that a node has, and for which hosts get no answer for too long."""
        yield from self.presence.unanswered(self.given.addresses)

    def waited(self) -> Iterator[str]:
        """Yield Services that waited for an address for too long."""
        yield from self.presence.waited(self.given.waited)

    def settled(self) -> Iterator[str]:
        """Yield addresses that are not on their winner alone at the end, or on all if remote."""
        for address, service in self.cluster.addresses().items():
            number = self.cluster.number_of(address)
            if number is None:
                yield from self._missing(address)
                continue
            live = self._live(self.cluster.segments[number])
            preferred = endpoints(self.cluster, service) & set(live)
            ranked = rank(sorted(preferred) or live, address)
            holders = self.cluster.holders(address)
            if ranked and holders != ranked[:1]:
                where = " and ".join(holders) or "no node"
                yield f"{address} is on {where} at the end, not on {ranked[0]}"

    def _live(self, segment: Segment) -> list[str]:
        serves = self.troubles.able.serves
        return [node.name for node in self.troubles.nodes if serves(node, segment)]

    def _missing(self, address: Address) -> Iterator[str]:
        """Yield the nodes without an address that all are to have."""
        live = {name for segment in self.cluster.segments for name in self._live(segment)}
        for name in sorted(live):
            if not any(held == address for _link, held in self.cluster.nodes[name].kernel.held):
                yield f"{address} of all nodes is not on {name} at the end"

    def leaked(self) -> Iterator[str]:
        """Yield addresses in kernels that are neither a Service's nor the node's own."""
        given = self.cluster.addresses()
        for node in self.troubles.nodes:
            for _link, address in node.kernel.held:
                if address not in given and address not in node.own:
                    yield f"{address} of no Service is on {node.name}"

    def known(self) -> Iterator[str]:
        """Yield addresses for which a host of the segment has another node than the holder."""
        macs = {link.mac: node.name for node in self.troubles.nodes for link in node.links}
        for address, host in product(self.cluster.addresses(), self.cluster.hosts):
            known = host.neighbors.get(address)
            holders = self.cluster.holders(address)
            if known is not None and len(holders) == 1 and holders != [macs.get(known)]:
                yield f"hosts look for {address} at {macs.get(known)}, not at {holders[0]}"

    def sources(self) -> Iterator[str]:
        """Yield nodes that would use an address of a Service as their own."""
        given = self.cluster.addresses()
        for node in self.troubles.nodes:
            if any(
                place[1] in given and place[1].version == 6 and not held.flags & IFA_F_DEPRECATED  # noqa: PLR2004 - the version of IP
                for place, held in node.kernel.held.items()
            ):
                yield f"{node.name} uses the address of a Service as its own"
            for link in node.links:
                there = self._ipv4(node, link)
                own = [address for address in there if address in node.own]
                if own and there[0] not in own:
                    yield f"{node.name} has {there[0]} before {own[0]}, its own"

    @staticmethod
    def _ipv4(node: Node, link: LinkState) -> list[Address]:
        """Return the addresses of a node's interface, in the order of its kernel."""
        held = (held.place for held in ordered(node.kernel.held))
        return [a for index, a in held if index == link.index and a.version == 4]  # noqa: PLR2004 - the version of IP

    def harmed(self) -> Iterator[str]:
        """Yield what nodes lost with an address of a Service that an agent removed."""
        for node in self.troubles.nodes:
            for address in node.kernel.taken_along:
                yield f"{node.name} lost {address} with an address of a Service"

    def written(self) -> Iterator[str]:
        """Yield by how much the agents wrote more Leases than they should."""
        seconds = self._after(self.cluster.timeline.now)
        nodes = len(self.troubles.nodes)
        choices = {node.timing for node in self.troubles.nodes}
        fastest = (choice.timing(nodes=nodes, is_exact=True) for choice in choices)
        renewals = max(1 / timing.renew_period for timing in fastest)
        limit = TIMES * renewals * seconds * nodes + EXTRA * nodes * len(self.troubles.moments)
        if self._writes > limit:
            yield f"{self._writes} Leases were written in {seconds:.0f} s by {nodes} nodes"

    def asked(self) -> Iterator[str]:
        """Yield agents that sent more requests than they should."""
        seconds = self._after(self.cluster.timeline.now)
        limit = REQUESTS * seconds + BURST * len(self.troubles.moments)
        for node in self.troubles.nodes:
            count = self.cluster.way(f"agent/{node.name}").asked - self._asked.get(node.name, 0)
            if count > limit:
                yield f"{node.name} sent {count} requests in {seconds:.0f} s"

    def turned_away(self) -> Iterator[str]:
        """Yield agents that had no place for questions although they ran."""
        for name, count in Counter(self.cluster.network.turned_away).items():
            yield f"{name} had no place for {count} questions"

    def run_on(self) -> Iterator[str]:
        """Yield programs that ended although nothing ended them.

        Who loses the lead may, and so may the agent of a node whose kernel cannot be read.
        """
        blind = {f"agent {name}" for name in self.troubles.blind}
        for process in self.cluster.processes:
            error = process.error
            if isinstance(error, LeadershipLostError) or error is None:
                continue
            if not (process.name in blind and isinstance(error.__cause__, NetlinkError)):
                yield f"{process.name} ended: {error!r}"

    # Time

    def _after(self, moment: int) -> float:
        return (moment - self.began) / MICROSECONDS

    def _common(self, since: float, until: float, spans: Iterable[Sequence[int]]) -> float:
        """Return the longest time that one of these spans has in common with another one."""
        common = (min(until, self._after(e)) - max(since, self._after(b)) for b, e in spans)
        return max([0.0, *common])

    def _spans(self, address: Address) -> Iterator[tuple[float, frozenset[str], float]]:
        """Yield seconds, holders, and since when, after the begin."""
        return self._dated(self.history.spans(address))

    def _dated(
        self, spans: list[tuple[float, frozenset[str]]]
    ) -> Iterator[tuple[float, frozenset[str], float]]:
        # Those of an address follow each other, up to now.
        since = self._after(self.cluster.timeline.now) - sum(seconds for seconds, _h in spans)
        for seconds, holders in spans:
            yield seconds, holders, since
            since += seconds


INVARIANTS: dict[str, Callable[[Judge], Iterator[str]]] = {
    "twice": Judge.twice,
    "rightless": Judge.rightless,
    "given twice": Judge.given_twice,
    "lost": Judge.lost,
    "waited": Judge.waited,
    "unheld": Judge.unheld,
    "unanswered": Judge.unanswered,
    "settled": Judge.settled,
    "leaked": Judge.leaked,
    "known": Judge.known,
    "source": Judge.sources,
    "harmed": Judge.harmed,
    "writes": Judge.written,
    "requests": Judge.asked,
    "turned away": Judge.turned_away,
    "ended": Judge.run_on,
}
