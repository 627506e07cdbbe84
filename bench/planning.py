# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The cost of a change on a node before it changes an interface: from a Lease's JSON to the plan.

This needs no cluster: the Leases are JSON as an API server sends it; the store, the decisions and
the plan are the agent's code. The baseline decides the same snapshot without earlier decisions, and
must give the same result.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Any

from prometheus_client import CollectorRegistry

from bench.figures import Figure, progress
from purelb.core.addresses import parse_range
from purelb.core.api import codec
from purelb.core.election.members import members_of
from purelb.core.election.vips import VipIndex
from purelb.core.holding.deadline import HoldDeadline
from purelb.core.model import (
    InterfaceAddress,
    Lease,
    Link,
    Network,
    PoolType,
    Service,
    ServiceGroup,
    ServiceKey,
)
from purelb.core.names import ADDRESS_PROTOCOL, DEFAULT_NAMESPACE
from purelb.core.node.decisions import Decisions, decide_vips
from purelb.core.node.plan import Plan, plan
from purelb.core.node.snapshot import NodeSnapshot, membership_view_of
from purelb_agent.kube.lease_table import LeaseTable
from purelb_agent.node.decisions import DecisionRecorder
from purelb_agent.node.metrics import NodeMetrics
from purelb_agent.runtime import clock

NET4, NET6 = ip_network("10.0.0.0/16"), ip_network("fd28::/64")
ELSEWHERE = ip_network("10.9.0.0/16")
AIM_MS = 50.0
_GROUP = ServiceGroup(
    "default",
    ranges=(
        parse_range("10.0.64.0/18", str(NET4)),
        parse_range("fd28::1:0:0-fd28::1:0:ffff", str(NET6)),
    ),
)
_FIRST4, _FIRST6 = (addresses.first for addresses in _GROUP.ranges)
_ETH0 = Link(2, "eth0", default_metrics={4: 0, 6: 1024})
_OWN = (
    InterfaceAddress(2, IPv4Address("10.0.0.1"), NET4.prefixlen),
    InterfaceAddress(2, IPv6Address("fd28::1"), NET6.prefixlen),
)
_MILLI, _MICRO = 1e3, 1e6
# Seconds; longer than the benchmark, so that no Lease expires by itself.
_LONG = 3600.0


@dataclass(frozen=True)
class Size:
    """The size of a cluster: nodes, and addresses of LoadBalancer Services, half of them IPv6."""

    nodes: int
    addresses: int

    def __str__(self) -> str:
        return f"{self.nodes} x {self.addresses}"


SIZES = (Size(100, 500), Size(1000, 5000))


def lease_line(number: int, *, written: int, subnets: Sequence[Network] = (NET4, NET6)) -> bytes:
    """Return a node's Lease as a watch delivers it: JSON with the API server's own fields."""
    lease = Lease(
        node=f"n{number:04}",
        subnets=tuple(subnets),
        instance=f"00000000-0000-0000-0000-{number:012}",
        holder=f"n{number:04}",
        node_uid=f"11111111-0000-0000-0000-{number:012}",
        renew_time=clock.wall_time(),
        duration=_LONG,
    )
    body: dict[str, Any] = codec.lease_body(lease, namespace=DEFAULT_NAMESPACE)
    marks = "labels", "annotations", "ownerReferences"
    owned: dict[str, Any] = {f"f:{key}": {".": {}} for key in marks}
    spec: dict[str, Any] = {f"f:{key}": {} for key in body["spec"]}
    body["metadata"] |= {
        "uid": f"22222222-0000-0000-0000-{number:012}",
        "resourceVersion": str(written),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [
            {
                "apiVersion": "coordination.k8s.io/v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": owned, "f:spec": spec},
                "manager": "purelb",
                "operation": "Update",
                "time": "2026-01-01T00:00:00Z",
            }
        ],
    }
    return json.dumps(body).encode()


def _services(count: int) -> list[Service]:
    return [
        Service(
            ServiceKey("default", f"s{number:04}"),
            families=(4, 6),
            addresses=(_FIRST4 + number, _FIRST6 + number),
            allocated_by_us=True,
            allocated_from=_GROUP.name,
            pool_type=PoolType.LOCAL,
        )
        for number in range(count)
    ]


class Node:
    """The state of the first node's agent, without its sockets."""

    def __init__(self, size: Size) -> None:
        self.wakes = 0
        self.size = size
        self.services = _services(size.addresses // 2)
        self.leases = LeaseTable(self._wake, node="n0000")
        self.index = VipIndex()
        self.index.regroup((_GROUP,))
        self.index.change({service.key: service for service in self.services})
        self.decisions: Decisions | None = None
        self.recorder = DecisionRecorder("n0000", NodeMetrics(CollectorRegistry()).election)
        # The same objects each time: decide_vips recognises unchanged input by identity.
        self._endpoints: dict[ServiceKey, frozenset[str]] = {}
        self._held: tuple[InterfaceAddress, ...] = ()
        self._written = 0
        bodies = [json.loads(self.lease_line(number)) for number in range(size.nodes)]
        self.leases.replace(bodies, asked_at=clock.now())

    def _wake(self) -> None:
        self.wakes += 1

    def lease_line(self, number: int, subnets: Sequence[Network] = (NET4, NET6)) -> bytes:
        """Return the next version of a node's Lease."""
        self._written += 1
        return lease_line(number, written=self._written, subnets=subnets)

    def snapshot(self) -> NodeSnapshot:
        """Return the snapshot that the agent's loop would take now."""
        now = clock.now()
        right = HoldDeadline(now + 7, now + 10)
        own = Lease("n0000", (NET4, NET6))
        members = members_of((own, *self.leases.counting.counted()), {})
        return NodeSnapshot(
            node="n0000",
            vips=self.index.vips,
            groups=(_GROUP,),
            endpoints=self._endpoints,
            membership=membership_view_of(members, right, listed=self.leases.listed, now=now),
            hold_deadline=right,
            links=(_ETH0,),
            addresses=(*_OWN, *self._held),
        )

    def cycle(self) -> Plan:
        """Decide and plan as the agent's loop does."""
        snapshot = self.snapshot()
        self.decisions = decide_vips(snapshot, self.decisions)
        return plan(self.decisions, snapshot, now=clock.now())

    def hold(self, made: Plan) -> None:
        """Assume that the plan has been applied."""
        expires = clock.now() + 10
        gone = {remove.held for remove in made.removes}
        come = tuple(
            InterfaceAddress(
                put.link,
                put.address,
                put.prefixlen,
                expires,
                expires,
                no_prefix_route=True,
                protocol=ADDRESS_PROTOCOL,
            )
            for put in made.puts
            if put.is_new
        )
        self._held = (*(held for held in self._held if held not in gone), *come)

    def note(self) -> None:
        """Record the decisions in log and metrics, as the agent's loop does."""
        if self.decisions is not None:
            self.recorder.record(self.decisions)


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


class Measure:
    """Measures a cluster of one size: each kind of change once per run."""

    def __init__(self, size: Size) -> None:
        self.node = Node(size)
        self._last: dict[str, list[float]] = {}
        self._from_nothing: dict[str, list[float]] = {}
        self._noting: dict[str, list[float]] = {}
        self.renewals: list[float] = []
        self.own_renewals: list[float] = []
        # Done once, when an agent starts.
        self.node.hold(self.node.cycle())
        self.node.note()

    def run(self, number: int) -> None:
        """Measure each change once, with another node and another Service in each run."""
        node = self.node
        other = 1 + number % (node.size.nodes - 1)
        service = node.services[number % len(node.services)]
        put, drop = node.leases.put, node.leases.drop
        leaving, coming = node.lease_line(other), node.lease_line(other)
        moving, back = node.lease_line(other, (ELSEWHERE, NET6)), node.lease_line(other)
        changed = replace(service, skip_dad=True)
        self._change("a node leaves", lambda: drop(json.loads(leaving)))
        self._change("a node joins", lambda: put(json.loads(coming)))
        self._change("a node's subnets change", lambda: put(json.loads(moving)))
        node.leases.put(json.loads(back))
        node.hold(node.cycle())
        self._change("a Service changes", lambda: node.index.change({service.key: changed}))
        self._change("a Service is deleted", lambda: node.index.change({service.key: None}))
        self._change("a Service is created", lambda: node.index.change({service.key: service}))
        self.renewals.append(self._renew_all())
        self.own_renewals.append(_seconds(node.cycle))

    def _change(self, what: str, change: Callable[[], object]) -> None:
        node = self.node

        def change_and_plan() -> None:
            change()
            node.hold(node.cycle())

        self._last.setdefault(what, []).append(_seconds(change_and_plan))
        self._noting.setdefault(what, []).append(_seconds(node.note))
        snapshot = node.snapshot()
        begin = time.perf_counter()
        decisions = decide_vips(snapshot)
        plan(decisions, snapshot, now=clock.now())
        self._from_nothing.setdefault(what, []).append(time.perf_counter() - begin)
        if node.decisions is None or decisions.by_address != node.decisions.by_address:
            raise AssertionError(f"{what}: the decisions without earlier ones differ")

    def _renew_all(self) -> float:
        """Return the mean seconds to process the renewal of a peer's Lease, over all peers."""
        node, wakes = self.node, self.node.wakes
        lines = [node.lease_line(number) for number in range(1, node.size.nodes)]

        def renew() -> None:
            for line in lines:
                node.leases.put(json.loads(line))

        seconds = _seconds(renew) / len(lines)
        if node.wakes != wakes:
            raise AssertionError("a renewal woke the loop")
        return seconds

    def figures(self) -> list[Figure]:
        """Return the figures of this size."""
        case = str(self.node.size)

        def figure(what: str, values: list[float], scale: float, **more: Any) -> Figure:
            unit = "ms" if scale == _MILLI else "µs"
            return Figure(case, what, unit, tuple(scale * value for value in values), **more)

        changes = [
            figure(
                f"{what}: decided and planned",
                values,
                _MILLI,
                baseline=tuple(_MILLI * value for value in self._from_nothing[what]),
                aim=AIM_MS,
            )
            for what, values in self._last.items()
        ]
        noting = [
            figure(f"{what}: recorded in log and metrics", values, _MILLI)
            for what, values in self._noting.items()
            if what.startswith("a node")
        ]
        return [
            *changes,
            *noting,
            figure("a peer's Lease is renewed: read, wakes no task", self.renewals, _MICRO),
            figure("own Lease renewed: decided and planned", self.own_renewals, _MILLI),
        ]


def measure(sizes: Sequence[Size] = SIZES, *, runs: int) -> list[Figure]:
    """Measure clusters of these sizes."""
    figures: list[Figure] = []
    for size in sizes:
        progress(f"{size}: first plan")
        measured = Measure(size)
        for run in range(runs):
            progress(f"{size}: run {run + 1} of {runs}")
            measured.run(run)
        figures += measured.figures()
    return figures
