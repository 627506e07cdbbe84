# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Turns a node's decisions into Kubernetes events, one per Service and transition.

A node reports what it does itself, and what is wrong on it. What all nodes see alike is reported
only by the cleanup node, the first of the live nodes by name; so is what a node cannot say whose
agent is gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from purelb.core.addresses import listed
from purelb.core.election.draining import NodeMarks
from purelb.core.fence.gaps import Gap, parse_gaps, remedy_of, without_fence
from purelb.core.model import Address, PoolType, Reason, ServiceKey
from purelb.core.node.conflicts import DuplicateAddress
from purelb.core.node.decisions import Decisions, VipDecision
from purelb_agent.kube.events import EventReason, Events, ObjectReference
from purelb_agent.kube.store import NodeStore
from purelb_agent.runtime import log

# Grace period: a rollout or a restart leaves an address without a candidate for a moment.
_PATIENCE = 5.0
_UNSERVED = {
    Reason.NO_ELIGIBLE_NODES: "no live node has a subnet that contains it: look at the Leases with "
    "purelb_lease_info, and at localInterface of the LBNodeAgent",
    Reason.NODE_ADDRESS: "it is the address of a node: take it out of the ServiceGroup's pool",
    Reason.GATEWAY_ADDRESS: "it is the gateway of a node's default route: take it out of the "
    "ServiceGroup's pool",
    Reason.OUTSIDE_POOLS: "no ServiceGroup has it: put it into a pool, or set "
    "purelb.io/re-evaluate on the Service for another address",
}
# The name of a Node, with its UID and taint.
_TaintedNode = tuple[str, NodeMarks]
# Seconds between two events about other nodes that answer for an address.
_ANSWERED_EVERY = 30.0
# An address in the events of one of its Services.
_ServiceAddress = tuple[ServiceKey, Address]


class NodeEvents:
    """Records an event for each change; remembers what was reported."""

    def __init__(self, events: Events, store: NodeStore, node: str) -> None:
        self._events = events
        self._store = store
        self._node = node
        self._announced: dict[_ServiceAddress, VipDecision] = {}
        self._unserved_since: dict[Address, float] = {}
        self._reported_unserved: set[Address] = set()
        # The other nodes that this agent has seen a Lease of, and of the tainted ones: since when
        # they were seen live with the taint, and those that cannot speak for themselves.
        self._with_agent: set[str] = set()
        self._live_since: dict[_TaintedNode, float] = {}
        self._silent: set[_TaintedNode] | None = None
        # When it was reported last that another node answers, by address.
        self._answered_at: dict[Address, float] = {}
        # The VIPs in the status of the own Node that were reported.
        self._mistaken: frozenset[Address] = frozenset()
        # What was said of the fence last.
        self._fence = ""

    def report_announced(self, announced: Iterable[VipDecision], decisions: Decisions) -> None:
        """Report to each Service the addresses that this node gained and lost."""
        current = {(key, v.vip.address): v for v in announced for key in v.vip.services}
        gained = [place for place in current if place not in self._announced]
        lost = [place for place in self._announced if place not in current]
        self._report_gained(gained, current)
        self._report_lost(lost, decisions)
        self._announced = current

    def _report_gained(
        self, gained: Iterable[_ServiceAddress], current: dict[_ServiceAddress, VipDecision]
    ) -> None:
        grouped: dict[tuple[ServiceKey, PoolType, str], list[Address]] = defaultdict(list)
        for key, address in gained:
            decision = current[key, address]
            interface = decision.link.name if decision.link else ""
            grouped[key, decision.vip.pool_type, interface].append(address)
        for (key, pool_type, interface), addresses in grouped.items():
            reason: EventReason = (
                "AnnouncingLocal" if pool_type is PoolType.LOCAL else "AnnouncingNonLocal"
            )
            self._record(
                key, reason, f"Node {self._node} announces {listed(addresses)} on {interface}"
            )

    def _report_lost(self, lost: Iterable[_ServiceAddress], decisions: Decisions) -> None:
        grouped: dict[tuple[ServiceKey, str], list[Address]] = defaultdict(list)
        for key, address in lost:
            decision = decisions.by_address.get(address)
            reason = decision.reason if decision else Reason.NO_SERVICE
            winner = decision.election.winner if decision else None
            why = f"{reason.value}, {winner} has won" if winner else reason.value
            grouped[key, why].append(address)
        for (key, why), addresses in grouped.items():
            self._record(
                key, "Withdrawn", f"Node {self._node} withdrew {listed(addresses)} ({why})"
            )

    def _record(
        self, key: ServiceKey, reason: EventReason, message: str, kind: str = "Normal"
    ) -> None:
        service = self._store.services.records.get(key)
        if service is not None:
            about = ObjectReference("Service", key.name, key.namespace, service.uid)
            self._events.record(about, reason, message, kind=kind)

    def report_unserved(self, decisions: Decisions, *, is_cleanup_node: bool, now: float) -> None:
        """Report addresses that no node has announced for a while; each once until it is served."""
        unserved = {
            a: v
            for a, v in decisions.by_address.items()
            if v.reason in _UNSERVED or v.reason is Reason.FOREIGN_ADDRESS
        }
        since = {address: self._unserved_since.get(address, now) for address in unserved}
        self._unserved_since = since
        self._reported_unserved &= since.keys()
        for address, decision in unserved.items():
            if address in self._reported_unserved or now < since[address] + _PATIENCE:
                continue
            self._reported_unserved.add(address)
            if decision.reason is Reason.FOREIGN_ADDRESS:
                self._report_foreign(decision, decisions.snapshot.foreign[address])
            elif is_cleanup_node:
                message = f"{address} is announced nowhere: {_UNSERVED[decision.reason]}"
                for key in decision.vip.services:
                    self._record(key, "NoEligibleNodes", message, "Warning")

    def _report_foreign(self, decision: VipDecision, interface: str) -> None:
        address = decision.vip.address
        message = (
            f"Node {self._node} does not announce {address}: {interface} has this address already, "
            "and not by PureLB. Remove it there (ip addr del), or take it out of the "
            "ServiceGroup's pool"
        )
        for key in decision.vip.services:
            self._record(key, "AddressConflict", message, "Warning")

    @property
    def next_at(self) -> float | None:
        """When the grace period of the next unserved address ends; None if there is none."""
        waiting = (t for a, t in self._unserved_since.items() if a not in self._reported_unserved)
        return min((t + _PATIENCE for t in waiting), default=None)

    def report_silent(self, *, is_cleanup_node: bool, now: float) -> None:
        """Report that a tainted node has no addresses any more whose agent cannot say so.

        It cannot if it was gone when the taint came, or has not renewed its Lease since: it is
        dead, or is cut off and said that its right is over. Nodes that were like that when this
        agent started count as reported.
        """
        counting, silent = self._store.leases.counting, set[_TaintedNode]()
        self._with_agent |= counting.leases.keys()
        marked = self._store.marked.items()
        tainted = {(n, marks) for n, marks in marked if marks.taint and n != self._node}
        self._live_since = {n: t for n, t in self._live_since.items() if n in tainted}
        for node in tainted:
            name, since = node[0], self._live_since.get(node)
            if counting.is_live(name):
                self._live_since.setdefault(node, now)
            elif since is None:
                silent |= {node} if name in self._with_agent else set()
            elif (seen := counting.leases.get(name)) and seen.renewed_at < since:
                silent.add(node)
        reported = silent if self._silent is None else self._silent
        self._silent = silent
        for name, marks in sorted(silent - reported) if is_cleanup_node else ():
            message = (
                "The agent of this node is gone or cut off, and its Lease counts no more, so other "
                f"nodes have all addresses that they can have (taint {marks.taint})"
            )
            about = ObjectReference("Node", name, uid=marks.uid)
            self._events.record(about, "AddressesDrained", message)

    def report_mistaken(self, addresses: frozenset[Address]) -> None:
        """Report each VIP once for as long as the status of the own Node lists it."""
        for address in addresses - self._mistaken:
            message = (
                f"The status of this Node lists {address}, which PureLB put there for a Service: "
                "kubelet, or the cloud controller, took it for the node's own. It stays where it "
                "is; set --node-ip of kubelet to an address of the node"
            )
            log.warning("nodeAddressMistaken", node=self._node, address=address)
            about = ObjectReference("Node", self._node, uid=self._store.node_uid)
            self._events.record(about, "NodeAddressMistaken", message, kind="Warning")
        self._mistaken = addresses

    def report_fence(self, said: str) -> None:
        """Report once what the node's fence lacks, unless none is wanted."""
        gaps = parse_gaps(said) if said != self._fence else ()
        self._fence = said
        if gaps and gaps != (("", Gap.OFF),):
            about = ObjectReference("Node", self._node, uid=self._store.node_uid)
            message = f"{without_fence(gaps)}. {remedy_of(gaps)}"
            self._events.record(about, "FenceIncomplete", message, kind="Warning")

    def report_conflict(
        self, decision: VipDecision, conflict: DuplicateAddress, *, now: float
    ) -> None:
        """Report that another host has an address of ours too.

        All nodes of the cluster may answer: of each address one is reported in a while.
        """
        address, where = decision.vip.address, decision.link.name if decision.link else ""
        what = f"{conflict.mac.hex(':')} answers for it on {where} of node {self._node}"
        if conflict.node:
            known = self._answered_at.items()
            self._answered_at = {a: at for a, at in known if now < at + _ANSWERED_EVERY}
            if address in self._answered_at:
                return
            self._answered_at[address] = now
            message = (
                f"Node {conflict.node} answers for {address}, too ({what}), and it may not be the "
                "only one. If kube-proxy is in IPVS mode, set strictARP; the Leases name all nodes"
            )
        else:
            message = (
                f"{address} is in use by another host, too: {what}. Find that host, or take the "
                "address out of the pool"
            )
        for key in decision.vip.services:
            self._record(key, "AddressConflict", message, "Warning")
