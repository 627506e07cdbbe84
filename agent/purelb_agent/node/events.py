# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which Kubernetes events a node's judgements are worth: one for each Service and transition.

A node speaks of what it does itself. What every node sees alike, only one tells: the caretaker, the
first of the live nodes by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from purelb.core.model import Address, PoolType, Reason, ServiceKey
from purelb.core.node.decisions import Decisions, VipDecision
from purelb_agent.kube.events import EventReason, Events, ObjectReference
from purelb_agent.kube.store import NodeStore

# A rollout or a restart leaves an address without a candidate for a moment; that is no news.
_PATIENCE = 5.0
_UNSERVED = {
    Reason.NO_ELIGIBLE_NODES: "no live node has a subnet that contains it: look at the Leases with "
    "purelb_lease_info, and at localInterface of the LBNodeAgent",
    Reason.NODE_ADDRESS: "it is the address of a node: take it out of the ServiceGroup's pool",
}
# Place of an address as it is told: Service, address.
_Told = tuple[ServiceKey, Address]


class NodeEvents:
    """Remembers what was told, and tells what is new."""

    def __init__(self, events: Events, store: NodeStore, node: str) -> None:
        self._events = events
        self._store = store
        self._node = node
        self._announced: dict[_Told, VipDecision] = {}
        self._unserved_since: dict[Address, float] = {}
        self._told_unserved: set[Address] = set()

    def tell_announced(self, announced: Iterable[VipDecision], judgement: Decisions) -> None:
        """Tell of each Service the addresses that came to this node, and those that left it."""
        current = {(key, v.vip.address): v for v in announced for key in v.vip.services}
        came = [told for told in current if told not in self._announced]
        left = [told for told in self._announced if told not in current]
        self._tell_came(came, current)
        self._tell_left(left, judgement)
        self._announced = current

    def _tell_came(self, came: Iterable[_Told], current: dict[_Told, VipDecision]) -> None:
        grouped: dict[tuple[ServiceKey, PoolType, str], list[str]] = defaultdict(list)
        for key, address in came:
            verdict = current[key, address]
            interface = verdict.link.name if verdict.link else ""
            grouped[key, verdict.vip.pool_type, interface].append(str(address))
        for (key, pool_type, interface), addresses in grouped.items():
            reason: EventReason = (
                "AnnouncingLocal" if pool_type is PoolType.LOCAL else "AnnouncingNonLocal"
            )
            listed = ", ".join(addresses)
            self._service(key, reason, f"Node {self._node} announces {listed} on {interface}")

    def _tell_left(self, left: Iterable[_Told], judgement: Decisions) -> None:
        grouped: dict[tuple[ServiceKey, str], list[str]] = defaultdict(list)
        for key, address in left:
            verdict = judgement.verdicts.get(address)
            reason = verdict.reason if verdict else Reason.NO_SERVICE
            winner = verdict.decision.winner if verdict else None
            why = f"{reason.value}, {winner} has won" if winner else reason.value
            grouped[key, why].append(str(address))
        for (key, why), addresses in grouped.items():
            listed = ", ".join(addresses)
            self._service(key, "Withdrawn", f"Node {self._node} withdrew {listed} ({why})")

    def _service(
        self, key: ServiceKey, reason: EventReason, message: str, kind: str = "Normal"
    ) -> None:
        service = self._store.services.records.get(key)
        if service is not None:
            about = ObjectReference("Service", key.name, key.namespace, service.uid)
            self._events.record(about, reason, message, kind=kind)

    def tell_unserved(self, judgement: Decisions, *, is_caretaker: bool, now: float) -> None:
        """Tell of addresses that have been on no node for a while; each once until it is served."""
        unserved = {a: v for a, v in judgement.verdicts.items() if v.reason in _UNSERVED}
        since = {address: self._unserved_since.get(address, now) for address in unserved}
        self._unserved_since = since
        self._told_unserved &= since.keys()
        for address, verdict in unserved.items():
            if address in self._told_unserved or now < since[address] + _PATIENCE:
                continue
            self._told_unserved.add(address)
            if is_caretaker:
                text = f"{address} is announced nowhere: {_UNSERVED[verdict.reason]}"
                for key in verdict.vip.services:
                    self._service(key, "NoEligibleNodes", text, "Warning")

    @property
    def next_at(self) -> float | None:
        """When an address may have been on no node for long enough to tell."""
        waiting = (t for a, t in self._unserved_since.items() if a not in self._told_unserved)
        return min((t + _PATIENCE for t in waiting), default=None)

    def tell_draining(self, taint: str | None, *, done: bool) -> None:
        """Tell of this Node that its taint took its addresses away, or that they come back."""
        about = ObjectReference("Node", self._node, uid=self._store.node_uid)
        if taint is None:
            text = "No taint keeps addresses away any more: this node takes part in elections"
            self._events.record(about, "AddressesRestored", text)
        elif done:
            text = f"All addresses of LoadBalancer Services left this node (taint {taint})"
            self._events.record(about, "AddressesDrained", text)
        else:
            text = f"Not all addresses could be withdrawn (taint {taint}): see the agent's log"
            self._events.record(about, "AddressesNotDrained", text, kind="Warning")

    def tell_conflict(self, verdict: VipDecision, mac: str) -> None:
        """Tell that another host has an address of ours, too."""
        interface = verdict.link.name if verdict.link else ""
        text = (
            f"{verdict.vip.address} is in use by another host, too: {mac} answers for it on "
            f"{interface} of node {self._node}. Find that host, or take the address out of the pool"
        )
        for key in verdict.vip.services:
            self._service(key, "AddressConflict", text, "Warning")
