# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""An allocator in virtual time: its parts as the program joins them, a cluster, another IPAM.

How to use it:

    async with AllocatorWorld().running() as world:
        world.add_group(local_group())
        world.add_service("web")
        await world.settle()
        assert world.addresses("web") == [...]
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

from prometheus_client import CollectorRegistry

from purelb.core.allocation.ipam import IpamRequest, Leased, Stats
from purelb.core.election.claims import ALL_CLASSES
from purelb.core.model import Address, ServiceGroup, ServiceKey
from purelb_agent.allocator.controller import AllocatorController
from purelb_agent.allocator.events import ServiceEvents
from purelb_agent.allocator.group_status import GroupStatus
from purelb_agent.allocator.metrics import AllocatorMetrics
from purelb_agent.allocator.pools import Pools
from purelb_agent.allocator.service_allocator import ServiceAllocator
from purelb_agent.allocator.service_writer import ServiceWriter
from purelb_agent.ipam.port import IpamError
from purelb_agent.ipam.queue import IpamQueue
from purelb_agent.kube.client import ApiError
from simulation.api.objects import Key, merged
from simulation.api.server import ApiServer, Watch
from tests.support.agent.fake_api import FakeApi, Request

NAMESPACE = "purelb-system"
SERVICES = "/api/v1/services"
FAMILIES = {
    4: ("v4pool", "10.0.0.{}-10.0.0.{}", "10.0.0.0/24"),
    6: ("v6pool", "fd00::{}-fd00::{}", "fd00::/64"),
}
IP_FAMILIES = {4: "IPv4", 6: "IPv6"}


def group_body(name: str, spec: dict[str, Any], *, namespace: str = NAMESPACE) -> dict[str, Any]:
    """A ServiceGroup as the API returns it."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{name}-uid",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": spec,
    }


def local_group(
    name: str = "default", *, version: int = 4, first: int = 1, last: int = 9, **more: Any
) -> dict[str, Any]:
    """A group with one local range of this family."""
    field, pool, subnet = FAMILIES[version]
    entry = {"pool": pool.format(first, last), "subnet": subnet}
    return group_body(name, {"local": {field: entry}, **more})


def external_group(name: str = "default") -> dict[str, Any]:
    """A group whose addresses a sidecar allocates."""
    external = {"provider": "acme", "socket": f"/sockets/{name}", "announce": "local"}
    return group_body(name, {"external": external})


class FakeIpam:
    """Gives every Service the same addresses; fails and hangs as told; remembers its calls."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = [ip_address(text) for text in addresses]
        self.calls: list[tuple[str, str, ServiceKey | None, Address | None]] = []
        # Errors for the next calls of a method; without any it succeeds.
        self.errors: dict[str, list[IpamError]] = {}
        self.running = asyncio.Event()
        self.running.set()
        self.known: frozenset[ServiceKey] = frozenset()

    async def _note(
        self,
        method: str,
        group: ServiceGroup,
        service: ServiceKey | None = None,
        address: Address | None = None,
    ) -> None:
        self.calls.append((method, group.name, service, address))
        await self.running.wait()
        if self.errors.get(method):
            raise self.errors[method].pop(0)

    def count(self, method: str) -> int:
        """How often a method was called."""
        return Counter(call[0] for call in self.calls)[method]

    async def allocate(self, group: ServiceGroup, request: IpamRequest) -> tuple[Leased, ...]:
        await self._note("allocate", group, request.service)
        wanted = request.families
        return tuple(Leased(a) for a in self.addresses if not wanted or a.version in wanted)

    async def release(
        self, group: ServiceGroup, service: ServiceKey, address: Address | None
    ) -> None:
        await self._note("release", group, service, address)

    async def stats(self, group: ServiceGroup) -> Stats:
        await self._note("stats", group)
        return Stats({4: 1, 6: 1}, {4: 2, 6: None})

    async def holders(self, group: ServiceGroup) -> frozenset[ServiceKey]:
        await self._note("holders", group)
        return self.known


class RecordedEvents:
    """Takes the place of Events; keeps reason, object and message."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str, str]] = []

    def record(self, about: Any, reason: str, message: str, *, kind: str = "Normal") -> None:
        self.recorded.append((reason, about.name, message))

    @property
    def reasons(self) -> list[str]:
        return [reason for reason, _name, _message in self.recorded]


class AllocatorWorld:
    """The parts of the allocator, and a cluster that answers its writes as the API server does."""

    def __init__(self, *ipam_addresses: str) -> None:
        self.server = ApiServer()
        self.api = FakeApi(self.server)
        self.ipam = FakeIpam(*ipam_addresses)
        self.events = RecordedEvents()
        self.registry = CollectorRegistry()
        # Whether the watch brings what is written.
        self.watches = True
        metrics = AllocatorMetrics(self.registry)
        self.status = GroupStatus(self.api, metrics, namespace=NAMESPACE)  # type: ignore[arg-type]
        self.queue = IpamQueue(self.ipam)
        self.pools = Pools(
            self.status,
            self.queue,
            self.events,  # type: ignore[arg-type]
            metrics.pools,
            namespace=NAMESPACE,
        )
        allocator = ServiceAllocator(
            ServiceWriter(self.api),  # type: ignore[arg-type]
            self.queue,
            self.pools,
            ServiceEvents(self.events),  # type: ignore[arg-type]
            metrics.services,
            classes=ALL_CLASSES,
        )
        self.controller = AllocatorController(allocator, self.queue, self.pools, metrics)
        self.server.follow(Watch(SERVICES, "", lambda _stored: True, self._hear))
        self._is_owner = False
        self.nodes: list[dict[str, Any]] = []
        self.leases: list[dict[str, Any]] = []

    @property
    def bodies(self) -> dict[str, dict[str, Any]]:
        """The Services by their names, as they are stored."""
        found = self.server.objects.of_kind(SERVICES, "")
        return {stored.key.name: json.loads(stored.text) for stored in found}

    def _hear(self, line: bytes) -> None:
        """Bring the programs what they have written themselves."""
        event = json.loads(line)
        if self.watches and not self._is_owner:
            loop = asyncio.get_running_loop()
            loop.call_soon(self.controller.services.put, event["object"])

    @asynccontextmanager
    async def running(self, *groups: dict[str, Any]) -> AsyncIterator[AllocatorWorld]:
        """List everything as it is and run the tasks."""
        self.pools.replace(list(groups), asked_at=0.0)
        self.controller.leases.replace(list(self.leases), asked_at=0.0)
        self.controller.nodes.replace(list(self.nodes), asked_at=0.0)
        self.controller.services.replace(list(self.bodies.values()), asked_at=0.0)
        tasks = [asyncio.create_task(work) for work in (self.controller.run(), self.queue.run())]
        try:
            await self.settle()
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def settle(self) -> None:
        """Let everything happen that needs no time."""
        for _turn in range(50):
            await asyncio.sleep(0)

    def service(
        self,
        name: str,
        *,
        version: int = 4,
        namespace: str = "default",
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> dict[str, Any]:
        """Store a Service, without the news of it; its name is its own in all namespaces."""
        meta = {"namespace": namespace, "name": name, "uid": f"{name}-uid"}
        body = {
            "metadata": {**meta, "annotations": annotations or {}},
            "spec": {"type": "LoadBalancer", "ipFamilies": [IP_FAMILIES[version]], **spec},
        }
        return self._store(name, body)

    def add_service(self, name: str, **more: Any) -> dict[str, Any]:
        """Create a Service; the watch brings it."""
        body = self.service(name, **more)
        self.controller.services.put(body)
        return body

    def change(self, name: str, patch: dict[str, Any], *, is_seen: bool = True) -> None:
        """Change a Service as its owner does."""
        body = self._store(name, merged(self.bodies[name], patch))
        if is_seen:
            self.controller.services.put(body)

    def delete(self, name: str, *, is_seen: bool = True) -> None:
        """Delete a Service."""
        body = self.bodies[name]
        self._is_owner = True
        self.server.objects.drop(Key(SERVICES, body["metadata"]["namespace"], name))
        self._is_owner = False
        if is_seen:
            self.controller.services.drop(body)

    def _store(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        self._is_owner = True
        self.api.put(SERVICES, merged(body, {}))
        self._is_owner = False
        return self.bodies[name]

    def refuse(self, name: str, *errors: ApiError, part: str = "/status") -> None:
        """Refuse the next writes of a Service."""
        for error in reversed(errors):
            path = f"/api/v1/namespaces/default/services/{name}{part}"
            self.api.answer("PATCH", path, error, times=1)

    def addresses(self, name: str) -> list[str]:
        """The addresses in a Service's status."""
        status = self.bodies[name].get("status") or {}
        ingress = (status.get("loadBalancer") or {}).get("ingress") or []
        return [entry["ip"] for entry in ingress]

    def writes(self, name: str) -> list[Request]:
        """Requests that wrote a Service."""
        return [r for r in self.api.sent("PATCH") if f"/services/{name}" in r.path]

    def sample(self, metric: str, **labels: str) -> float | None:
        """The value of a metric."""
        return self.registry.get_sample_value(metric, labels)
