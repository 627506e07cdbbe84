# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Reads what an audit needs. Needs a few list permissions only, and writes nothing."""

from __future__ import annotations

import time
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..core import model, names
from ..core.api import codec, custom_resources, nodes
from ..core.api.workloads import Program, program_of, program_pod_of
from ..core.audit.endpoints import is_ready_slice
from ..core.audit.installation import (
    GroupRecords,
    Installation,
    audit_installation,
    group_records_of,
)
from ..core.audit.lock_findings import lock_findings
from ..core.audit.report import Report, report_dict
from ..core.election import endpoints, vips
from ..core.errors import ObjectError
from ..core.leadership import locks
from ..core.node import configuration
from ..module.errors import FORBIDDEN, NOT_FOUND, ApiError, ClusterError
from ..module.kube import Cluster, Kind, Object
from .parallel import parallel_map

# Number of digests (Leases x Services) that takes a third of a second: worth more processes.
_PARALLEL_DIGESTS = 1_000_000
# With a ready endpoint.
_Nodes = Mapping[model.ServiceKey, FrozenSet[str]]
LEASES = Kind("coordination.k8s.io", "v1", "leases", namespaced=True)
SERVICES = Kind("", "v1", "services", namespaced=True)
NODES = Kind("", "v1", "nodes", namespaced=False)
GROUPS = Kind(names.API_GROUP, names.API_VERSION, "servicegroups", namespaced=True)
CONFIGS = Kind(names.API_GROUP, names.API_VERSION, "lbnodeagents", namespaced=True)
SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", namespaced=True)
PODS = Kind("", "v1", "pods", namespaced=True)
DAEMON_SETS = Kind("apps", "v1", "daemonsets", namespaced=True)
DEPLOYMENTS = Kind("apps", "v1", "deployments", namespaced=True)
AGENTS, ALLOCATORS = "lbnodeagent", "allocator"
LOCKS = {
    "Lease": LEASES,
    "Endpoints": Kind("", "v1", "endpoints", namespaced=True),
    "ConfigMap": Kind("", "v1", "configmaps", namespaced=True),
}


def lease_info(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: ARG001, FBT001 - reading is the same in check mode
    """The work of the module purelb_lease_info."""
    seen = read_installation(cluster, namespace=params["namespace"])
    report = audited(seen)
    wanted = params["leader_locks"]
    found = [seen.lock]
    if wanted:
        found = [_read_lock(cluster, _lock_name(lock, params["namespace"])) for lock in wanted]
    report = report.with_findings(lock_findings(found, allocators=seen.lock.name))
    leader_locks = [locks.lock_dict(lock) for lock in found]
    return {"changed": False, **report_dict(report), "leader_locks": leader_locks}


def audited(seen: Installation) -> Report:
    """Returns the audit of what was just read."""
    is_large = len(seen.leases) * len(seen.services) >= _PARALLEL_DIGESTS
    run = parallel_map if is_large else map
    return audit_installation(seen, wall_time=time.time(), parallel_map=run)


def read_installation(cluster: Cluster, *, namespace: str) -> Installation:
    """Returns the objects of an installation; raises ClusterError if there is none."""
    agents = _read_program(cluster, DAEMON_SETS, AGENTS, namespace=namespace)
    allocator = _read_program(cluster, DEPLOYMENTS, ALLOCATORS, namespace=namespace)
    is_present = agents.is_present or allocator.is_present
    if not is_present and not read_leases(cluster, namespace=namespace):
        raise ClusterError(
            f"PureLB is not installed in namespace {namespace}: it has no DaemonSet {AGENTS}, no "
            f"Deployment {ALLOCATORS} and no Lease of a node; set namespace to that of PureLB, or "
            "install it with the role purelb_install"
        )
    services = cluster.read_all(
        SERVICES, convert=codec.service_of, fieldSelector="spec.type=LoadBalancer"
    )
    known = cluster.read_all(NODES, convert=nodes.node_view_of)
    groups = _read_groups(cluster, namespace=namespace)
    is_needed = _needs_endpoints(services, groups.valid)
    has_addresses = any(service.addresses for service in services)
    ready, served = read_endpoints(cluster, is_needed=is_needed) if has_addresses else (None, None)
    # Last, as they age while thousands of Services are read.
    lock = _read_lock(cluster, locks.LockName("Lease", namespace, names.LEADER_LEASE))
    leases = read_leases(cluster, namespace=namespace)
    # Also only if needed, as they need another permission.
    has_all = all(lease.subnets for lease in leases)
    configs = [] if has_all else read_configs(cluster, namespace=namespace)
    return Installation(
        lock, agents, allocator, leases, services, known, groups, ready, configs, served
    )


def _read_program(cluster: Cluster, kind: Kind, name: str, *, namespace: str) -> Program:
    # As a list, so that the verb list suffices for everything.
    selector = f"metadata.name={name}"
    found = cluster.read_all(kind, namespace=namespace, convert=dict, fieldSelector=selector)
    title = f"{'DaemonSet' if kind is DAEMON_SETS else 'Deployment'} {namespace}/{name}"
    if not found:
        return Program(title, is_present=False)
    labels = found[0]["spec"]["selector"].get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    pods = cluster.read_all(
        PODS, namespace=namespace, convert=program_pod_of, labelSelector=selector
    )
    return program_of(found[0], pods, title=title)


def _read_groups(cluster: Cluster, *, namespace: str) -> GroupRecords:
    try:
        return group_records_of(cluster.items(GROUPS, namespace=namespace))
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        raise ClusterError(
            f"the API server does not serve {GROUPS.plural} of {GROUPS.group}/{GROUPS.version}: "
            "the definitions are missing or those of PureLB v1; the role purelb_install installs "
            "them, and the role purelb_migrate moves a cluster from v1"
        ) from error


def _needs_endpoints(
    services: Iterable[model.Service], groups: Sequence[model.ServiceGroup]
) -> bool:
    """Whether the nodes of ready endpoints may affect an election."""
    asking = [service for service in services if service.has_affinity or service.is_external_local]
    return any(vip.depends_on_endpoints for vip in vips.vips_of(asking, groups))


def read_leases(cluster: Cluster, *, namespace: str) -> List[model.Lease]:
    """Returns the node Leases in a namespace."""
    labels = ",".join(f"{key}={value}" for key, value in names.LEASE_LABELS.items())
    found = cluster.read_all(
        LEASES, namespace=namespace, convert=codec.lease_of, labelSelector=labels
    )
    return [lease for lease in found if lease is not None]


def _lock_name(lock: Mapping[str, Any], namespace: str) -> locks.LockName:
    return locks.LockName(lock["kind"], lock["namespace"] or namespace, lock["name"])


def _read_lock(cluster: Cluster, name: locks.LockName) -> locks.LockReport:
    # As a list, so that the verb list suffices for everything.
    selector = f"metadata.name={name.name}"
    found = cluster.read_all(
        LOCKS[name.kind], namespace=name.namespace, convert=dict, fieldSelector=selector
    )
    return locks.assess_lock(name, found[0] if found else None, wall_time=time.time())


def valid_group(body: Object) -> Optional[model.ServiceGroup]:
    """Returns the record of a ServiceGroup, or None if it is invalid."""
    try:
        return custom_resources.service_group_of(body)
    except ObjectError:
        return None


def read_configs(cluster: Cluster, *, namespace: str) -> List[configuration.NodeConfig]:
    """Returns the LBNodeAgents."""
    return cluster.read_all(CONFIGS, namespace=namespace, convert=custom_resources.node_config_of)


def read_endpoints(
    cluster: Cluster, *, is_needed: bool
) -> Tuple[
    Optional[Mapping[model.ServiceKey, FrozenSet[str]]], Optional[FrozenSet[model.ServiceKey]]
]:
    """Returns the nodes with a ready endpoint, for each Service, and the Services with one.

    None and None if that may not be read, unless an election needs it.
    """

    def convert(body: Object) -> Tuple[Optional[model.EndpointSlice], bool]:
        return codec.endpoint_slice_of(body), is_ready_slice(body)

    try:
        found = cluster.read_all(SLICES, convert=convert)
    except ApiError as error:
        if is_needed or error.status != FORBIDDEN:
            raise
        return None, None
    index = endpoints.EndpointIndex()
    # The index never has to find a slice again, so any unique key works.
    index.change({model.ServiceKey("", str(i)): each for i, (each, _ready) in enumerate(found)})
    served = frozenset(each.service for each, is_ready in found if each and is_ready)
    return (index.nodes if is_needed else None), served
