# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Reads what an audit needs. Two list permissions suffice, and nothing is ever written."""

from __future__ import annotations

import time
from typing import Any, Dict, List

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core import (
    audit,
    codec,
    model,
    names,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.kube import Cluster, Kind

LEASES = Kind("coordination.k8s.io", "v1", "leases", namespaced=True)
SERVICES = Kind("", "v1", "services", namespaced=True)


def lease_info(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: ARG001, FBT001 - reading is the same in check mode
    """The work of the module purelb_lease_info."""
    # Services first: they may be many, and a Lease ages while they are read.
    services = read_services(cluster)
    leases = read_leases(cluster, namespace=params["namespace"])
    report = audit.audit(leases, services, wall_time=time.time())
    return {"changed": False, **audit.as_dict(report)}


def read_leases(cluster: Cluster, *, namespace: str) -> List[model.Lease]:
    """The node Leases of the installation in a namespace."""
    labels = ",".join(f"{key}={value}" for key, value in names.LEASE_LABELS.items())
    found = cluster.read_all(
        LEASES, namespace=namespace, convert=codec.lease_of, labelSelector=labels
    )
    return [lease for lease in found if lease is not None]


def read_services(cluster: Cluster) -> List[model.Service]:
    """Every Service of type LoadBalancer; only the records stay in memory, not the JSON."""
    return cluster.read_all(
        SERVICES, convert=codec.service_of, fieldSelector="spec.type=LoadBalancer"
    )
