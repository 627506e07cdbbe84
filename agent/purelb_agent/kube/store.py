# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the node agent knows: its tables, what it derives from them, and its Holder.

Written by the watchers and by who talks to the API server or to peers, read by the reconcile loop.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace

from purelb.core.election.claims import Classes, concerns_agents
from purelb.core.election.draining import NodeInfo, NodeMarks, draining_taint, marked_nodes
from purelb.core.election.endpoints import EndpointIndex
from purelb.core.election.members import (
    EXCLUDE_RULE,
    PROXY_RULE,
    Member,
    ServiceProxy,
    Standing,
    members_of,
)
from purelb.core.election.vips import Vip, VipIndex
from purelb.core.holding.counting import Counting
from purelb.core.holding.deadline import HoldDeadline, is_prolonged
from purelb.core.holding.holder import Holder
from purelb.core.holding.permissions import Permissions
from purelb.core.holding.right import Right
from purelb.core.model import Address, Lease, Network, NodeAddress, ServiceKey
from purelb.core.node.mistaken import mistaken_addresses, word_of
from purelb.core.settings import TimingChoice
from purelb_agent.kube.lease_table import LeaseTable
from purelb_agent.kube.tables import (
    config_table,
    group_table,
    node_table,
    service_table,
    slice_table,
)
from purelb_agent.runtime import clock
from purelb_agent.runtime.wakeup import Wakeup


class NodeStore:
    """Everything that the node agent knows; `changed` wakes the reconcile loop.

    `holder`: whether this node may hold addresses. It is changed by `take`, or by the renewer.
    """

    def __init__(
        self,
        node: str,
        *,
        classes: Classes,
        drains: bool,
        excludes: bool = False,
        timing: TimingChoice = TimingChoice(),  # noqa: B008 - frozen
    ) -> None:
        """`classes` selects our Services; with `drains`, taints keep addresses off a node.

        With `excludes`, so does the label of nodes that take no traffic of load balancers.
        `timing`: how long the renewals of the own Lease are to last.
        """
        self.timing = timing
        self.changed = Wakeup()
        # A token that no earlier agent of this node had.
        right = Right(timing.longest, token=secrets.token_hex(4))
        self.holder = Holder(right, Permissions(node))
        self.services = service_table(
            self._services_changed, wanted=lambda service: concerns_agents(service, classes)
        )
        self.groups = group_table(self._groups_changed)
        self.slices = slice_table(self._slices_changed)
        self.leases = LeaseTable(self._leases_changed, node=node, counted=self)
        self.configs = config_table(self._touch)
        self.nodes = node_table(self._nodes_changed)
        self.hold_deadline: HoldDeadline | None = None
        # The subnets that the own Lease lists.
        self.subnets: tuple[Network, ...] = ()
        # The Nodes' own addresses. They are never VIPs, even if a pool contains them.
        self.known_addresses: frozenset[Address] = frozenset()
        # The addresses in the status of each Node, and those of them that are VIPs.
        self.listed_addresses: dict[str, frozenset[Address]] = {}
        self.mistaken: frozenset[NodeAddress] = frozenset()
        # The other nodes by their MAC addresses; another mapping whenever it changes.
        self.macs: Mapping[bytes, str] = {}
        # Addresses that the nodes have found on other hosts.
        self.duplicates: frozenset[Address] = frozenset()
        # What this agent says of its own Node; None: nothing yet.
        self._own_mistaken: frozenset[Address] | None = None
        # By node, also of those whose Node is gone while their Lease is not: they can still hold.
        self._addresses: dict[str, tuple[Address, ...]] = {}
        # The Nodes that something keeps addresses off, by name.
        self.marked: dict[str, NodeMarks] = {}
        # What this agent looks at in elections, and its node's service proxy, for its Lease.
        self.rules = (PROXY_RULE, EXCLUDE_RULE) if excludes else (PROXY_RULE,)
        self.service_proxy = ServiceProxy.UNKNOWN
        # Of this agent's Node.
        self.labels: Mapping[str, str] = {}
        self.node_uid = ""
        self.taint = ""
        self._node = node
        self._drains = drains
        self._was_listed = False
        self._vips = VipIndex()
        self._endpoints = EndpointIndex()

    def _touch(self, _keys: object) -> None:
        self.changed.notify()

    def _services_changed(self, keys: set[ServiceKey]) -> None:
        self._vips.change({key: self.services.records.get(key) for key in keys})
        self.changed.notify()

    def _groups_changed(self, _names: set[str]) -> None:
        self._vips.regroup(self.groups.records.values())
        self.changed.notify()

    def _leases_changed(self) -> None:
        self._vips.hear(self.leases.outside())
        self._find_own_addresses()
        self.duplicates = self.leases.duplicates()
        macs = self.leases.macs()
        if macs != self.macs:
            self.macs = macs
        self.changed.notify()

    def _slices_changed(self, keys: set[ServiceKey]) -> None:
        changes = {key: self.slices.records.get(key) for key in keys}
        before = self._endpoints.nodes
        self._endpoints.change(changes)
        self._wake(is_news=self._endpoints.nodes is not before)

    def _nodes_changed(self, _names: set[str]) -> None:
        """Derive from the Nodes what decisions need; heartbeats do not change that."""
        nodes = self.nodes.records.values()
        before = self.known_addresses, self.listed_addresses.get(self._node)
        self.listed_addresses = {node.name: node.addresses for node in nodes}
        self._find_own_addresses()
        after = self.known_addresses, self.listed_addresses.get(self._node)
        marked = marked_nodes(nodes, drains=self._drains)
        own = self.nodes.records.get(self._node) or NodeInfo(self._node)
        taint = draining_taint(own.taints) if self._drains else ""
        current = (marked, own.labels, own.uid, taint)
        previous = (self.marked, self.labels, self.node_uid, self.taint)
        self.marked, self.labels, self.node_uid, self.taint = current
        self._wake(is_news=(current, after) != (previous, before))

    def _find_own_addresses(self) -> None:
        """Derive from the Nodes and the Leases which addresses are the Nodes' own."""
        words = self.leases.mistaken()
        lease = self.leases.own
        if self._own_mistaken is not None:
            words[self._node] = tuple((self._node, address) for address in self._own_mistaken)
        elif lease is not None:
            # An earlier process wrote it.
            words[self._node] = lease.mistaken
        self.mistaken = mistaken_addresses(self.listed_addresses, words, self.mistaken)
        found = {
            node: tuple(address for address in listed if (node, address) not in self.mistaken)
            for node, listed in self.listed_addresses.items()
        }
        self.known_addresses = frozenset().union(*found.values())
        # A node of which only a VIP is listed is still reached where it was before.
        leases = self.leases.counting.leases
        left = {node: known for node, known in self._addresses.items() if node in leases}
        self._addresses = {**left, **{node: own for node, own in found.items() if own}}

    def say_mistaken(self, own: frozenset[Address]) -> tuple[NodeAddress, ...]:
        """Take which addresses in the status of the own Node are VIPs; return what to say."""
        if own != self._own_mistaken:
            self._own_mistaken = own
            self._find_own_addresses()
        return word_of(self._node, self.mistaken, self.leases.mistaken()) if self.mistaken else ()

    def _wake(self, *, is_news: bool) -> None:
        """Wake the loop for news, and for every list until all tables have been listed."""
        if is_news or not self._was_listed:
            self._was_listed = self.listed
            self.changed.notify()

    @property
    def vips(self) -> Mapping[Address, Vip]:
        """Every address that we assigned to a Service."""
        return self._vips.vips

    @property
    def outside(self) -> str:
        """Addresses of Services that are in no pool any more, for the own Lease."""
        return self._vips.outside

    @property
    def endpoints(self) -> Mapping[ServiceKey, frozenset[str]]:
        """For each Service, the nodes with a ready endpoint."""
        return self._endpoints.nodes

    @property
    def listed(self) -> bool:
        """Whether every table has been listed once."""
        tables = (self.services, self.groups, self.slices, self.leases, self.configs, self.nodes)
        return all(table.listed for table in tables)

    def addresses_of(self, node: str) -> tuple[Address, ...]:
        """Return the addresses at which the agent of a node is reached."""
        return self._addresses.get(node, ())

    def members(self) -> tuple[tuple[Member, ...], Standing]:
        """Return the nodes that take part in elections, sorted by name; this one if it may.

        And this one's standing, which it has in any case. Of its service proxy counts what the
        others see, so that all change their minds together.
        """
        seen = self.leases.own
        own = Lease(
            self._node,
            self.subnets,
            node_uid=self.node_uid,
            rules=self.rules,
            service_proxy=seen.service_proxy if seen is not None else "",
        )
        members = members_of((*self.leases.counting.counted(), own), self.marked)
        standing = next(m.standing for m in members if m.node == self._node)
        if self.hold_deadline is None:
            members = tuple(m for m in members if m.node != self._node)
        return members, standing

    def set_service_proxy(self, state: ServiceProxy) -> None:
        """Take what is known of the node's service proxy; its Lease says it to all."""
        if state is not self.service_proxy:
            self.service_proxy = state
            self.changed.notify()

    @property
    def counting(self) -> Counting:
        """The Leases of the other nodes, as this one counts them."""
        return self.holder.counting

    @counting.setter
    def counting(self, counting: Counting) -> None:
        self.holder = replace(self.holder, counting=counting)

    def take(self, holder: Holder) -> None:
        """Take what followed from an event: wakes who checks the ends of Leases, and the loop."""
        counting, self.holder = holder.counting, replace(holder, counting=self.counting)
        self.leases.change(counting)

    def set_hold_deadline(
        self, deadline: HoldDeadline | None, subnets: tuple[Network, ...] = ()
    ) -> None:
        """Publish until when the own Lease allows this node to hold addresses; None: it may not.

        `subnets`: those that the Lease lists.
        """
        before, self.hold_deadline = self.hold_deadline, deadline
        if (deadline, subnets) == (before, self.subnets):
            return
        is_same, self.subnets = subnets == self.subnets, subnets
        self.changed.notify(is_minor=is_same and is_prolonged(before, deadline, now=clock.now()))
