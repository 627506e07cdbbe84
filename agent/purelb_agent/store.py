# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the API server last said, as records: written by the watchers, read by the one loop.

Everything lives on one event loop, and each table has one writer, its watcher, so a reader always
sees whole records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core import codec
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.configuration import (
    NodeConfig,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.draining import NodeInfo
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.errors import ObjectError
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.leases import (
    Membership,
    Right,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.model import (
    Address,
    Service,
    ServiceGroup,
    ServiceKey,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.nodes import node_info_of

from . import clock, log

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


def _service(item: Json) -> Service | None:
    service = codec.service_of(item)
    return service if service.is_load_balancer or service.allocated_by_us else None


def service_table(on_change: Callable[[set[ServiceKey]], None]) -> Table[ServiceKey, Service]:
    """Services of type LoadBalancer, and those that still carry our marks."""
    return Table(
        _service,
        lambda item: ServiceKey(item["metadata"]["namespace"], item["metadata"]["name"]),
        on_change,
    )


def group_table(
    on_change: Callable[[set[str]], None],
    *,
    on_error: Callable[[Json, ObjectError], None] | None = None,
) -> Table[str, ServiceGroup]:
    """ServiceGroups by name."""
    return Table(
        codec.service_group_of,
        lambda item: str(item["metadata"]["name"]),
        on_change,
        on_error=on_error,
    )


def node_table(on_change: Callable[[set[str]], None]) -> Table[str, NodeInfo]:
    """Nodes by name."""
    return Table(node_info_of, lambda item: str(item["metadata"]["name"]), on_change)


def config_table(on_change: Callable[[set[str]], None]) -> Table[str, NodeConfig]:
    """LBNodeAgents by name."""
    return Table(codec.node_config_of, lambda item: str(item["metadata"]["name"]), on_change)


def labels_table(on_change: Callable[[set[str]], None]) -> Table[str, dict[str, str]]:
    """Labels of Nodes by name."""
    return Table(
        lambda item: dict(item["metadata"].get("labels") or {}),
        lambda item: str(item["metadata"]["name"]),
        on_change,
    )


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
        if lease is not None:
            self.membership = self.membership.forget(lease.node)
            self._on_change()


class NodeStore:
    """All that the node agent knows; `changed` is set whenever the loop should look again."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.services = service_table(self._touch)
        self.groups = group_table(self._touch)
        self.leases = LeaseTable(self.changed.set)
        self.configs = config_table(self._touch)
        self.labels = labels_table(self._touch)
        self.right: Right | None = None
        # Read with the Node, before the first Lease: whatever a pool says, these are not VIPs.
        self.own_addresses: frozenset[Address] = frozenset()

    def _touch(self, _keys: object) -> None:
        self.changed.set()

    @property
    def listed(self) -> bool:
        """Whether everything has been listed once."""
        tables = (self.services, self.groups, self.leases, self.configs, self.labels)
        return all(table.listed for table in tables)

    def grant(self, right: Right | None) -> None:
        """Publish what the own Lease allows now."""
        if right != self.right:
            self.right = right
            self.changed.set()
