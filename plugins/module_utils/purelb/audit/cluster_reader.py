# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Reads what an audit needs. A few list permissions suffice, and nothing is ever written."""

from __future__ import annotations

import time
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence

from ..core import model, names
from ..core.api import codec, custom_resources, nodes
from ..core.audit import audit, lock_findings
from ..core.election import draining, endpoints
from ..core.errors import ObjectError
from ..core.leadership import locks
from ..core.node import configuration
from ..module.kube import Cluster, Kind, Object
from .parallel import parallel_map

# So many digests take a third of a second, which is worth a second process.
_MUCH = 1_000_000
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
    # Services first: they may be many, and a Lease ages while they are read.
    services = read_services(cluster)
    known = read_nodes(cluster)
    report = read_report(cluster, services, known, namespace=params["namespace"])
    found = read_locks(cluster, params["leader_locks"], namespace=params["namespace"])
    report = report.with_findings(lock_findings.lock_findings(found))
    shown = [locks.lock_dict(lock) for lock in found]
    return {"changed": False, **audit.as_dict(report), "leader_locks": shown}


def read_report(
    cluster: Cluster,
    services: Sequence[model.Service],
    known: Iterable[draining.NodeInfo],
    *,
    namespace: str,
    groups: Sequence[model.ServiceGroup] = (),
) -> audit.Report:
    """The audit of these Services; the Leases are read last."""
    # Only where they matter: they are the most numerous, and need a permission of their own.
    ready = read_endpoints(cluster) if any(map(_asks_endpoints, services)) else None
    leases = read_leases(cluster, namespace=namespace)
    is_much = len(leases) * len(services) >= _MUCH
    return audit.audit(
        leases,
        services,
        wall_time=time.time(),
        drained={one.name: one.uid for one in known if draining.draining_taint(one.taints)},
        endpoints=ready,
        groups=groups,
        parallel_map=parallel_map if is_much else map,
    )


def _asks_endpoints(service: model.Service) -> bool:
    """Whether it may matter where a Service's ready endpoints are."""
    is_spread = service.is_external_local and service.pool_type is not model.PoolType.LOCAL
    return service.allocated_by_us and (service.has_affinity or is_spread)


def read_leases(cluster: Cluster, *, namespace: str) -> List[model.Lease]:
    """The node Leases of the installation in a namespace."""
    labels = ",".join(f"{key}={value}" for key, value in names.LEASE_LABELS.items())
    found = cluster.read_all(
        LEASES, namespace=namespace, convert=codec.lease_of, labelSelector=labels
    )
    return [lease for lease in found if lease is not None]


def read_locks(
    cluster: Cluster, asked: Optional[Sequence[Mapping[str, Any]]], *, namespace: str
) -> List[locks.LockReport]:
    """The leader locks that are asked for, or that of the allocator."""
    allocators: Mapping[str, Any] = {"kind": "Lease", "namespace": None, "name": names.LEADER_LEASE}
    return [
        _read_lock(cluster, locks.LockName(one["kind"], one["namespace"] or namespace, one["name"]))
        for one in asked or (allocators,)
    ]


def _read_lock(cluster: Cluster, name: locks.LockName) -> locks.LockReport:
    # By a list of one, which needs no other permission than the lists of everything else.
    only = f"metadata.name={name.name}"
    found = cluster.read_all(
        LOCKS[name.kind], namespace=name.namespace, convert=dict, fieldSelector=only
    )
    return locks.assess_lock(name, found[0] if found else None, wall_time=time.time())


def read_services(cluster: Cluster) -> List[model.Service]:
    """Every Service of type LoadBalancer; only the records stay in memory, not the JSON."""
    return cluster.read_all(
        SERVICES, convert=codec.service_of, fieldSelector="spec.type=LoadBalancer"
    )


def read_nodes(cluster: Cluster) -> List[draining.NodeInfo]:
    """Every Node."""
    return cluster.read_all(NODES, convert=nodes.node_info_of)


def read_groups(cluster: Cluster, *, namespace: str) -> List[model.ServiceGroup]:
    """The ServiceGroups that have ranges of their own; of others only the Services tell."""
    found = cluster.read_all(GROUPS, namespace=namespace, convert=_group_of)
    return [group for group in found if group is not None]


def _group_of(body: Object) -> Optional[model.ServiceGroup]:
    try:
        return custom_resources.service_group_of(body)
    except ObjectError:
        # The allocator tells of it, and gives out nothing.
        return None


def read_configs(cluster: Cluster, *, namespace: str) -> List[configuration.NodeConfig]:
    """The LBNodeAgent objects."""
    return cluster.read_all(CONFIGS, namespace=namespace, convert=custom_resources.node_config_of)


def read_endpoints(cluster: Cluster) -> Mapping[model.ServiceKey, FrozenSet[str]]:
    """Nodes with a ready endpoint of each Service."""
    index = endpoints.EndpointIndex()
    found = cluster.read_all(SLICES, convert=codec.endpoint_slice_of)
    # Nobody asks for one of them: any key will do.
    index.change({model.ServiceKey("", str(i)): one for i, one in enumerate(found)})
    return index.nodes
