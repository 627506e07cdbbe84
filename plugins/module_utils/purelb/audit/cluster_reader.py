# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Reads what an audit needs. Needs a few list permissions only, and writes nothing."""

from __future__ import annotations

import time
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence

from ..core import model, names
from ..core.api import codec, custom_resources, nodes
from ..core.audit import audit, lock_findings
from ..core.election import draining, endpoints, vips
from ..core.errors import ObjectError
from ..core.leadership import locks
from ..core.node import configuration
from ..module.errors import NOT_FOUND, ApiError
from ..module.kube import Cluster, Kind, Object
from .parallel import parallel_map

# Number of digests (Leases x Services) that takes a third of a second: worth more processes.
_PARALLEL_DIGESTS = 1_000_000
LEASES = Kind("coordination.k8s.io", "v1", "leases", namespaced=True)
SERVICES = Kind("", "v1", "services", namespaced=True)
NODES = Kind("", "v1", "nodes", namespaced=False)
GROUPS = Kind(names.API_GROUP, names.API_VERSION, "servicegroups", namespaced=True)
CONFIGS = Kind(names.API_GROUP, names.API_VERSION, "lbnodeagents", namespaced=True)
SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", namespaced=True)
LOCKS = {
    "Lease": LEASES,
    "Endpoints": Kind("", "v1", "endpoints", namespaced=True),
    "ConfigMap": Kind("", "v1", "configmaps", namespaced=True),
}


def lease_info(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: ARG001, FBT001 - reading is the same in check mode
    """The work of the module purelb_lease_info."""
    # Leases last (in read_report): they age while thousands of Services are read.
    services = read_services(cluster)
    known = read_nodes(cluster)
    groups = read_groups(cluster, namespace=params["namespace"])
    report = read_report(cluster, services, known, groups, namespace=params["namespace"])
    found = read_locks(cluster, params["leader_locks"], namespace=params["namespace"])
    report = report.with_findings(lock_findings.lock_findings(found))
    leader_locks = [locks.lock_dict(lock) for lock in found]
    return {"changed": False, **audit.as_dict(report), "leader_locks": leader_locks}


def read_report(
    cluster: Cluster,
    services: Sequence[model.Service],
    known: Iterable[draining.NodeInfo],
    groups: Optional[Sequence[model.ServiceGroup]],
    *,
    namespace: str,
) -> audit.Report:
    """Returns the audit of these Services; reads the Leases last."""
    # EndpointSlices only if needed: they are the most numerous and need another permission.
    ready = read_endpoints(cluster) if _needs_endpoints(services, groups or ()) else None
    leases = read_leases(cluster, namespace=namespace)
    is_large = len(leases) * len(services) >= _PARALLEL_DIGESTS
    return audit.audit(
        leases,
        services,
        wall_time=time.time(),
        drained=draining.drained_nodes(known),
        endpoints=ready,
        groups=groups,
        parallel_map=parallel_map if is_large else map,
    )


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


def read_locks(
    cluster: Cluster, wanted: Optional[Sequence[Mapping[str, Any]]], *, namespace: str
) -> List[locks.LockReport]:
    """Returns the given leader locks, by default that of the allocator."""
    default: Mapping[str, Any] = {"kind": "Lease", "namespace": None, "name": names.LEADER_LEASE}
    lock_names = (
        locks.LockName(lock["kind"], lock["namespace"] or namespace, lock["name"])
        for lock in wanted or (default,)
    )
    return [_read_lock(cluster, name) for name in lock_names]


def _read_lock(cluster: Cluster, name: locks.LockName) -> locks.LockReport:
    # As a list, so that the verb list suffices for everything.
    selector = f"metadata.name={name.name}"
    found = cluster.read_all(
        LOCKS[name.kind], namespace=name.namespace, convert=dict, fieldSelector=selector
    )
    return locks.assess_lock(name, found[0] if found else None, wall_time=time.time())


def read_services(cluster: Cluster) -> List[model.Service]:
    """Returns every Service of type LoadBalancer; keeps the records, not the JSON."""
    return cluster.read_all(
        SERVICES, convert=codec.service_of, fieldSelector="spec.type=LoadBalancer"
    )


def read_nodes(cluster: Cluster) -> List[draining.NodeInfo]:
    """Returns every Node."""
    return cluster.read_all(NODES, convert=nodes.node_info_of)


def read_groups(cluster: Cluster, *, namespace: str) -> Optional[List[model.ServiceGroup]]:
    """Returns the valid ServiceGroups; the allocator reports invalid ones.

    None if the cluster does not have that kind.
    """
    try:
        found = cluster.read_all(GROUPS, namespace=namespace, convert=valid_group)
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        return None
    return [group for group in found if group is not None]


def valid_group(body: Object) -> Optional[model.ServiceGroup]:
    """Returns the record of a ServiceGroup, or None if it is invalid."""
    try:
        return custom_resources.service_group_of(body)
    except ObjectError:
        return None


def read_configs(cluster: Cluster, *, namespace: str) -> List[configuration.NodeConfig]:
    """Returns the LBNodeAgents."""
    return cluster.read_all(CONFIGS, namespace=namespace, convert=custom_resources.node_config_of)


def read_endpoints(cluster: Cluster) -> Mapping[model.ServiceKey, FrozenSet[str]]:
    """Returns the nodes with a ready endpoint, for each Service."""
    index = endpoints.EndpointIndex()
    found = cluster.read_all(SLICES, convert=codec.endpoint_slice_of)
    # The index never has to find a slice again, so any unique key works.
    index.change({model.ServiceKey("", str(i)): each for i, each in enumerate(found)})
    return index.nodes
