# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The audit of an installation: its Leases and Services, its programs, Nodes and ServiceGroups."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..allocation.choice import live_of
from ..api.custom_resources import service_group_of
from ..api.nodes import NodeView
from ..api.workloads import Program
from ..election.claims import ALL_CLASSES, Classes, claimed
from ..election.draining import marked_nodes
from ..errors import ObjectError, SettingError
from ..leadership.locks import LockReport, LockState
from ..model import Lease, Service, ServiceGroup, ServiceKey
from ..node.configuration import NodeConfig
from ..settings import parse_switch
from .arp import answering_findings
from .audit import ParallelMap, audit
from .disputed import disputed_findings
from .endpoints import endpoint_findings
from .node_addresses import mistaken_findings
from .pending import AllocatorView, group_findings, pending_findings
from .programs import (
    leader_findings,
    node_findings,
    node_reports,
    node_state_findings,
    taint_findings,
    version_findings,
)
from .report import LeaseReport, Report
from .subnets import subnet_findings

Json = Mapping[str, Any]


@dataclass(frozen=True)
class GroupRecords:
    """The ServiceGroups; `unready` maps each one that is not Ready, or invalid, to the reason."""

    valid: Tuple[ServiceGroup, ...] = ()
    unready: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Installation:
    """The objects of a cluster that say how PureLB works in it.

    `endpoints` maps each Service to the nodes with a ready endpoint; None: no Service depends on
    them. `served`: the Services with any ready endpoint; None if that could not be read. `lock`:
    that of the allocators. `configs`: the LBNodeAgents; only needed if a node that is alive lists
    no subnet.
    """

    lock: LockReport
    agents: Program
    allocator: Program
    leases: Sequence[Lease] = ()
    services: Sequence[Service] = ()
    nodes: Sequence[NodeView] = ()
    groups: GroupRecords = field(default_factory=GroupRecords)
    endpoints: Optional[Mapping[ServiceKey, FrozenSet[str]]] = None
    configs: Sequence[NodeConfig] = ()
    served: Optional[FrozenSet[ServiceKey]] = None


def group_records_of(bodies: Iterable[Json]) -> GroupRecords:
    """Return the records of ServiceGroup objects."""
    groups: List[ServiceGroup] = []
    unready = {}
    for body in bodies:
        name = body["metadata"]["name"]
        try:
            groups.append(service_group_of(body))
        except ObjectError as error:
            unready[name] = f"{error.field}: {error.problem}"
            continue
        for condition in (body.get("status") or {}).get("conditions") or ():
            if condition["type"] == "Ready" and condition["status"] == "False":
                unready[name] = f"{condition.get('reason')}: {condition.get('message')}"
    return GroupRecords(tuple(groups), unready)


def audit_installation(
    seen: Installation, *, wall_time: float, parallel_map: ParallelMap = map
) -> Report:
    """Audit an installation as it was read at `wall_time` (seconds since the epoch)."""
    report = audit(
        seen.leases,
        seen.services,
        wall_time=wall_time,
        marked=marked_nodes(node.info for node in seen.nodes),
        endpoints=seen.endpoints,
        groups=seen.groups.valid,
        parallel_map=parallel_map,
    )
    nodes = node_reports(seen.nodes, report.leases, seen.agents)
    view = _allocator_view(seen, report.leases)
    return replace(report, nodes=nodes).with_findings(
        [
            *leader_findings(seen.lock, seen.allocator),
            *node_findings(nodes, seen.agents),
            *taint_findings(seen.nodes, nodes, wall_time=wall_time),
            *node_state_findings(nodes, report.leases),
            *subnet_findings(report.leases, seen.nodes, seen.configs),
            *answering_findings(report.leases),
            *mistaken_findings(seen.nodes, report.leases, report.vips),
            *version_findings((seen.agents, seen.allocator)),
            *group_findings(view),
            *pending_findings(seen.services, view, wall_time=wall_time),
            *disputed_findings(seen.services, view),
            *endpoint_findings(seen.services, view.classes, seen.served),
        ]
    )


def _allocator_view(seen: Installation, leases: Sequence[LeaseReport]) -> AllocatorView:
    return AllocatorView(
        seen.groups.valid,
        seen.groups.unready,
        live_of(report.lease for report in leases if report.is_live),
        frozenset().union(*(node.info.addresses for node in seen.nodes)),
        _classes(seen.allocator),
        seen.lock.state is LockState.HELD,
    )


def _classes(allocator: Program) -> Classes:
    try:
        return claimed(
            unclassed=parse_switch(allocator.environment, "PURELB_CLAIM_UNCLASSED", default=True)
        )
    except SettingError:
        # The allocator does not start with it, which is a finding of its own.
        return ALL_CLASSES
