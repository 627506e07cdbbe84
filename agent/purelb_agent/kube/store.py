# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the API server last said, as records: written by the watchers, read by the one loop.

Everything lives on one event loop, and each table has one writer, its watcher, so a reader always
sees whole records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from purelb.core.api import codec, custom_resources
from purelb.core.api.nodes import node_info_of
from purelb.core.election.claims import Classes, concerns_agents
from purelb.core.election.draining import NodeInfo, draining_taint
from purelb.core.election.endpoints import EndpointIndex
from purelb.core.election.leases import HoldDeadline, Membership
from purelb.core.election.vips import Vip, VipIndex
from purelb.core.errors import ObjectError
from purelb.core.model import Address, EndpointSlice, Service, ServiceGroup, ServiceKey
from purelb.core.node.configuration import NodeConfig
from purelb_agent.runtime import clock, log

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
Json = dict[str, Any]


class Table(Generic[K, R]):
    """Records of one kind by key, kept by a watcher.

    `decode` gives None for an object that nobody needs. An object that cannot be read is left out
    and told to `on_error`; the others stay as they are.
    """

    def __init__(
        self,
        decode: Callable[[Json], R | None],
        key: Callable[[Json], K],
        on_change: Callable[[set[K]], None],
        *,
        on_error: Callable[[Json, ObjectError], None] | None = None,
    ) -> None:
        self.records: dict[K, R] = {}
        self.listed = False
        self._decode = decode
        self._key = key
        self._on_change = on_change
        self._on_error = on_error

    def _read(self, item: Json) -> R | None:
        try:
            return self._decode(item)
        except ObjectError as problem:
            log.warning("objectRefused", object=problem.where, error=str(problem))
            if self._on_error is not None:
                self._on_error(item, problem)
            return None

    def replace(self, items: list[Json], *, asked_at: float) -> None:  # noqa: ARG002
        """Take these objects as all there are."""
        read = ((self._key(item), self._read(item)) for item in items)
        fresh = {key: record for key, record in read if record is not None}
        keys = fresh.keys() | self.records.keys()
        changed = {key for key in keys if fresh.get(key) != self.records.get(key)}
        self.records = fresh
        self.listed = True
        self._on_change(changed)

    def put(self, item: Json) -> None:
        """Take a new or changed object."""
        key, record = self._key(item), self._read(item)
        if record == self.records.get(key):
            return
        if record is None:
            del self.records[key]
        else:
            self.records[key] = record
        self._on_change({key})

    def drop(self, item: Json) -> None:
        """Forget a deleted object."""
        key = self._key(item)
        if self.records.pop(key, None) is not None:
            self._on_change({key})


def _named(item: Json) -> ServiceKey:
    return ServiceKey(item["metadata"]["namespace"], item["metadata"]["name"])


def service_table(
    on_change: Callable[[set[ServiceKey]], None],
    *,
    wanted: Callable[[Service], bool] = lambda _service: True,
) -> Table[ServiceKey, Service]:
    """Those wanted of the Services of type LoadBalancer and of those that still carry our marks."""

    def decode(item: Json) -> Service | None:
        service = codec.service_of(item)
        concerns = service.is_load_balancer or service.allocated_by_us
        return service if concerns and wanted(service) else None

    return Table(decode, _named, on_change)


def group_table(
    on_change: Callable[[set[str]], None],
    *,
    on_error: Callable[[Json, ObjectError], None] | None = None,
) -> Table[str, ServiceGroup]:
    """ServiceGroups by name."""
    return Table(
        custom_resources.service_group_of,
        lambda item: str(item["metadata"]["name"]),
        on_change,
        on_error=on_error,
    )


def config_table(on_change: Callable[[set[str]], None]) -> Table[str, NodeConfig]:
    """LBNodeAgents by name."""
    return Table(
        custom_resources.node_config_of, lambda item: str(item["metadata"]["name"]), on_change
    )


def slice_table(on_change: Callable[[set[ServiceKey]], None]) -> Table[ServiceKey, EndpointSlice]:
    """EndpointSlices by namespace and name."""
    return Table(codec.endpoint_slice_of, _named, on_change)


def node_table(on_change: Callable[[set[str]], None]) -> Table[str, NodeInfo]:
    """Nodes by name."""
    return Table(node_info_of, lambda item: str(item["metadata"]["name"]), on_change)


class LeaseTable:
    """The nodes' Leases and when this process saw each of them renewed."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.membership = Membership()
        self.listed = False
        self._on_change = on_change

    def replace(self, items: list[Json], *, asked_at: float) -> None:
        """Take these Leases as all there were when the list was asked for."""
        leases = [lease for lease in map(codec.lease_of, items) if lease is not None]
        self.membership = self.membership.listed(
            leases, asked_at=asked_at, now=clock.now(), wall_time=clock.wall_time()
        )
        self.listed = True
        self._on_change()

    def put(self, item: Json) -> None:
        """Take a new or renewed Lease; only one that changes an election wakes the loop."""
        lease = codec.lease_of(item)
        if lease is None:
            return
        known = self.membership.sightings.get(lease.node)
        if known is not None and codec.is_older(lease.version, known.lease.version):
            return
        was_live = known is not None and clock.now() < known.expires_at
        self.membership = self.membership.observe(
            lease, now=clock.now(), wall_time=clock.wall_time()
        )
        if not was_live or known is None or known.lease.subnets != lease.subnets:
            self._on_change()

    def drop(self, item: Json) -> None:
        """Forget a deleted Lease."""
        lease = codec.lease_of(item)
        if lease is None:
            return
        known = self.membership.sightings.get(lease.node)
        # The own Lease is known as soon as it is written: by now it may be there again.
        if known is not None and not codec.is_older(lease.version, known.lease.version):
            self.membership = self.membership.forget(lease.node)
            self._on_change()

    def promise(self, node: str, *, seconds: float) -> bool:
        """Let a node's Lease count for so long, whatever else is seen of it; whether it still may.

        It may not once it has ended here.
        """
        now = clock.now()
        if not self.membership.counts(node, now):
            return False
        self.membership = self.membership.promise(node, until=now + seconds, now=now)
        return True

    def freeze(self) -> None:
        """Let no Lease end: what is not seen may have happened all the same."""
        self.membership = self.membership.freeze(clock.now())

    def unfreeze(self) -> None:
        """Let Leases end as ever."""
        if self.membership.frozen_at is not None:
            self.membership = self.membership.unfreeze()
            self._on_change()

    def resume_expiry(self) -> None:
        """Let Leases end again, each after a full duration at the earliest."""
        self.membership = self.membership.resume_expiry(clock.now())
        self._on_change()

    def rejoin(self, *, since: float, patience: float) -> None:
        """Doubt the Leases that ended since; see Membership."""
        self.membership = self.membership.rejoin(since=since, now=clock.now(), patience=patience)
        self._on_change()


class NodeStore:
    """All that the node agent knows; `changed` is set whenever the loop should look again."""

    def __init__(self, node: str, *, classes: Classes, drains: bool) -> None:
        """`classes`: of our Services. `drains`: whether taints keep addresses away from a node."""
        self.changed = asyncio.Event()
        self.services = service_table(
            self._services_changed, wanted=lambda service: concerns_agents(service, classes)
        )
        self.groups = group_table(self._groups_changed)
        self.slices = slice_table(self._slices_changed)
        self.leases = LeaseTable(self.changed.set)
        self.configs = config_table(self._touch)
        self.nodes = node_table(self._nodes_changed)
        self.right: HoldDeadline | None = None
        # Addresses by which Node objects know nodes: whatever a pool says, these are no VIPs.
        self.known_addresses: frozenset[Address] = frozenset()
        # UIDs of the Nodes whose taints keep addresses away, by name.
        self.drained: dict[str, str] = {}
        # Of the own Node.
        self.labels: Mapping[str, str] = {}
        self.node_uid = ""
        self.taint: str | None = None
        self._node = node
        self._drains = drains
        self._has_begun = False
        self._vips = VipIndex()
        self._endpoints = EndpointIndex()

    def _touch(self, _keys: object) -> None:
        self.changed.set()

    def _services_changed(self, keys: set[ServiceKey]) -> None:
        self._vips.change({key: self.services.records.get(key) for key in keys})
        self.changed.set()

    def _groups_changed(self, _names: set[str]) -> None:
        self._vips.regroup(self.groups.records.values())
        self.changed.set()

    def _slices_changed(self, keys: set[ServiceKey]) -> None:
        changes = {key: self.slices.records.get(key) for key in keys}
        self._wake(is_news=self._endpoints.change(changes))

    def _nodes_changed(self, _names: set[str]) -> None:
        """Take from the Nodes what decisions need; their heartbeats change nothing of it."""
        nodes = self.nodes.records.values()
        known = frozenset(address for node in nodes for address in node.addresses)
        drained = {n.name: n.uid for n in nodes if self._drains and draining_taint(n.taints)}
        own = self.nodes.records.get(self._node) or NodeInfo(self._node)
        taint = draining_taint(own.taints) if self._drains else None
        fresh = (known, drained, own.labels, own.uid, taint)
        before = (self.known_addresses, self.drained, self.labels, self.node_uid, self.taint)
        self.known_addresses, self.drained, self.labels, self.node_uid, self.taint = fresh
        self._wake(is_news=fresh != before)

    def _wake(self, *, is_news: bool) -> None:
        """Wake the loop for news; a list without any may still be the last that it waits for."""
        if is_news or not self._has_begun:
            self._has_begun = self.listed
            self.changed.set()

    @property
    def vips(self) -> Mapping[Address, Vip]:
        """All addresses that Services have from us."""
        return self._vips.vips

    @property
    def endpoints(self) -> Mapping[ServiceKey, frozenset[str]]:
        """Nodes with a ready endpoint of each Service."""
        return self._endpoints.nodes

    @property
    def listed(self) -> bool:
        """Whether everything has been listed once."""
        tables = (self.services, self.groups, self.slices, self.leases, self.configs, self.nodes)
        return all(table.listed for table in tables)

    def promise(self, node: str, *, seconds: float) -> bool:
        """Let a node's Lease count for so long; whether it may.

        It may not where it has ended and this node may have the addresses. A node without a right
        has none, and gives others the time to renew before it takes part again.
        """
        return self.leases.promise(node, seconds=seconds) or self.right is None

    def grant(self, right: HoldDeadline | None) -> None:
        """Publish what the own Lease allows now."""
        if right != self.right:
            self.right = right
            self.changed.set()
