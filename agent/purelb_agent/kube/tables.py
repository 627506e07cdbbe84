# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of the API server's objects, decoded into the core's records.

Each table has one writer, its watcher. Everything runs on one event loop, so a reader always sees
complete records.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from purelb.core.api import codec, custom_resources
from purelb.core.api.nodes import node_info_of
from purelb.core.election.draining import NodeInfo
from purelb.core.errors import ObjectError
from purelb.core.model import EndpointSlice, Service, ServiceGroup, ServiceKey
from purelb.core.node.configuration import NodeConfig
from purelb_agent.kube.client import Json
from purelb_agent.runtime import log

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Table(Generic[K, R]):
    """Records of one kind by key, written by a watcher.

    `decode` returns None for an object that is not needed. An object that cannot be decoded is
    logged, left out and passed to `on_error`; the other records stay. `on_change` receives the keys
    of the records that changed, and is also called for a list that changes nothing.
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

    def _decode_item(self, item: Json) -> R | None:
        try:
            return self._decode(item)
        except ObjectError as error:
            log.warning("objectRefused", object=error.where, error=str(error))
            if self._on_error is not None:
                self._on_error(item, error)
            return None

    def replace(self, items: list[Json], *, asked_at: float) -> None:  # noqa: ARG002
        """Replace all records by those of a complete list."""
        decoded = ((self._key(item), self._decode_item(item)) for item in items)
        fresh = {key: record for key, record in decoded if record is not None}
        keys = fresh.keys() | self.records.keys()
        changed = {key for key in keys if fresh.get(key) != self.records.get(key)}
        self.records = fresh
        self.listed = True
        self._on_change(changed)

    def put(self, item: Json) -> None:
        """Add or replace the record of one object."""
        key, record = self._key(item), self._decode_item(item)
        if record == self.records.get(key):
            return
        if record is None:
            del self.records[key]
        else:
            self.records[key] = record
        self._on_change({key})

    def drop(self, item: Json) -> None:
        """Remove the record of a deleted object."""
        key = self._key(item)
        if self.records.pop(key, None) is not None:
            self._on_change({key})


def _namespaced_name(item: Json) -> ServiceKey:
    return ServiceKey(item["metadata"]["namespace"], item["metadata"]["name"])


def service_table(
    on_change: Callable[[set[ServiceKey]], None],
    *,
    wanted: Callable[[Service], bool] = lambda _service: True,
) -> Table[ServiceKey, Service]:
    """Services by namespace and name.

    Keeps Services of type LoadBalancer, and others that still bear our annotations, if `wanted`.
    """

    def decode(item: Json) -> Service | None:
        service = codec.service_of(item)
        concerns = service.is_load_balancer or service.bears_marks
        return service if concerns and wanted(service) else None

    return Table(decode, _namespaced_name, on_change)


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
    return Table(codec.endpoint_slice_of, _namespaced_name, on_change)


def node_table(on_change: Callable[[set[str]], None]) -> Table[str, NodeInfo]:
    """Nodes by name."""
    return Table(node_info_of, lambda item: str(item["metadata"]["name"]), on_change)
