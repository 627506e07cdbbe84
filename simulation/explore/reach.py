# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Who could not know that another node holds an address, as docs/design.md says.

*Out of reach*: a node may hold without renewing its Lease as others have promised to count it. Who
takes its address although it lives reaches neither that node nor any that promised. Computed from
the ways of messages and from the promises that were sent, not from what the programs believe.

*A Lease that a program deletes*: who has listed the Leases before it was written again does not
know of its node, which may hold for as long as its right from before lasts.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from purelb.core.api.codec import lease_of
from purelb.core.election.election import share_subnet
from purelb.core.holding.outage import PeerAnswer
from purelb.core.model import Address, Lease
from purelb.core.settings import LeaseTiming
from simulation.api.way import Reach
from simulation.cluster import Cluster
from simulation.history import Holders
from simulation.manifests import KINDS
from simulation.time.timeline import MICROSECONDS

# Seconds until two nodes have met that can: a pause between two renewals, three questions without
# an answer, and one by the Leases.
_MEET = 5.0
# The same if the holder, which reaches no API server, cannot know of the other one: a pause between
# two messages, and what is left until its hold deadline.
_HEAR = 2.5 + LeaseTiming().renew_deadline
# From the first list of an agent to its first Lease, at most.
_STARTS = 2.0
# In the text of a sealed message, which is a text in JSON.
_CANNOT = f'\\"{PeerAnswer.CANNOT.value}\\"'.encode()
_FOR_EVER = 1 << 62


def _start(lease: Lease) -> str:
    return lease.epoch.rpartition(".")[0]


def share(one: Lease, other: Lease) -> bool:
    """Whether two nodes have a subnet in common, by their Leases."""
    return share_subnet(one.subnets, other.subnets)


@dataclass
class Apart:
    """A node that has taken the address of another one, of which it cannot know until then.

    `is_cut`: because it does not reach it, so it ends when it does.
    """

    address: Address
    holder: str
    taker: str
    begin: int
    end: int = _FOR_EVER
    is_cut: bool = True
    meet: float = _MEET


class OutOfReach:
    """Follows a cluster from now on; `cases` are the times in which an address may be on two."""

    def __init__(self, cluster: Cluster) -> None:
        self.cases: list[Apart] = []
        self._cluster = cluster
        # When each node promised what to whom: by the one that it counts, then by itself.
        self._promised: dict[str, dict[str, int]] = defaultdict(dict)
        # When each node wrote its Lease last.
        self._renewed: dict[str, int] = {}
        # When another program deleted it, and when it was written again.
        self._deleted: dict[str, int] = {}
        self._restored: dict[str, int] = {}
        # The start of each agent as its epochs name it, and when it wrote its first Lease.
        self._starts = {lease.node: _start(lease) for lease in self.leases()}
        self._first: dict[str, int] = {}
        # When nodes that are new wrote theirs.
        self._joined: dict[str, int] = {}
        # The most seconds for which a Lease was valid.
        self.longest = max(lease.duration for lease in self.leases())

    def renewed(self, lease: Lease) -> None:
        """Note that a node has written its Lease."""
        now, node = self._cluster.timeline.now, lease.node
        self._renewed[node] = now
        self.longest = max(self.longest, lease.duration)
        self._restored.setdefault(node, now)
        if node not in self._starts:
            self._joined[node] = now
        if self._starts.get(node) != _start(lease):
            self._starts[node], self._first[node] = _start(lease), now

    def deleted(self, node: str) -> None:
        """Note that another program has deleted the Lease of a node that did not leave."""
        self._deleted[node] = self._cluster.timeline.now
        self._restored.pop(node, None)

    def leases(self) -> list[Lease]:
        """Return the Leases of all nodes as the API server has them."""
        stored = self._cluster.api.objects.of_kind(KINDS["leases"], "")
        return [lease for lease in (lease_of(each.body) for each in stored) if lease]

    def replied(self, asker: str, asked: str, body: bytes) -> None:
        """Note a reply of an agent to another one."""
        if _CANNOT in body:
            self._promised[asker][asked] = self._cluster.timeline.now

    def changed(self, address: Address, before: Holders, holders: Holders) -> None:
        """Note who has an address now."""
        now = self._cluster.timeline.now
        for taker in holders - before:
            for holder in before & holders:
                if self._is_out_of_reach(holder, taker):
                    meet = _HEAR if self._is_unknown(taker, holder) else _MEET
                    self.cases.append(Apart(address, holder, taker, now, meet=meet))
                elif self._could_not_see(holder, taker):
                    end = self._deleted[holder] + int(self.longest * MICROSECONDS)
                    self.cases.append(Apart(address, holder, taker, now, end, is_cut=False))

    def look(self) -> None:
        """End what has ended, now that something has changed of who reaches whom."""
        for case in self.cases:
            end = self._cluster.timeline.now + int(case.meet * MICROSECONDS)
            if not case.is_cut or case.end <= end:
                continue
            if not self._is_out_of_reach(case.holder, case.taker):
                case.end = end

    def _could_not_see(self, holder: str, taker: str) -> bool:
        """Whether a node has started while another one had no Lease, as others deleted it."""
        deleted, first = self._deleted.get(holder), self._first.get(taker)
        if deleted is None or first is None:
            return False
        seen = self._restored.get(holder, _FOR_EVER) + int(_STARTS * MICROSECONDS)
        return deleted <= first <= seen

    def _is_out_of_reach(self, holder: str, taker: str) -> bool:
        """Whether a node holds by agreement, and another one reaches no node that knows that."""
        begin = self._cluster.timeline.now - int(self.longest * MICROSECONDS)
        knowing = {node for node, moment in self._promised[holder].items() if moment > begin}
        knowing.add(holder)
        leases = {lease.node: lease for lease in self.leases()}
        own = leases.get(holder)
        near = [lease for lease in leases.values() if not own or share(lease, own)]
        known = {lease.node for lease in near if not self._is_unknown(lease.node, holder)}
        members = known | {holder}
        return (
            self._cluster.way(f"agent/{holder}").reach is not Reach.WHOLE
            and self._renewed.get(holder, 0) < begin + MICROSECONDS
            and 2 * len(knowing) > len(members)
            and not any(self._reaches(taker, node) for node in knowing)
        )

    def _is_unknown(self, node: str, to: str) -> bool:
        """Whether a node is new, and joined after the last renewal of another one."""
        return self._joined.get(node, 0) > self._renewed.get(to, 0)

    def _reaches(self, asker: str, asked: str) -> bool:
        """Whether one node gets answers from another one."""
        network, agent = self._cluster.network, self._cluster.nodes[asked].agent
        return (
            frozenset({asker, asked}) not in network.cut
            and network.paths.connects(asker, asked)
            and agent is not None
            and not (agent.is_dead or agent.has_ended or agent.is_frozen or agent.stands_still)
            and agent.machine.runs
        )
