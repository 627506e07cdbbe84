# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The objects of a cluster, as users and operators write them, and what may be written by whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_network
from typing import Any

from purelb.core.model import Address
from purelb.core.names import LEADER_LEASE, lease_name
from simulation.api.objects import Json
from simulation.api.server import Write

KINDS = {
    "leases": "/apis/coordination.k8s.io/v1/leases",
    "groups": "/apis/purelb.io/v2/servicegroups",
    "configs": "/apis/purelb.io/v2/lbnodeagents",
    "slices": "/apis/discovery.k8s.io/v1/endpointslices",
    "services": "/api/v1/services",
    "nodes": "/api/v1/nodes",
}
# Of the segment of all nodes, and of another one.
NET4, NET6 = ip_network("172.28.1.0/24"), ip_network("fd28::/64")
OTHER4, OTHER6 = ip_network("172.28.2.0/24"), ip_network("fd29::/64")
POOLS = {
    "v4pools": [{"pool": "172.28.1.200-172.28.1.250", "subnet": str(NET4)}],
    "v6pools": [{"pool": "fd28::200-fd28::2ff", "subnet": str(NET6)}],
}


def own_lease_alone(write: Write) -> str:
    """Refuse an agent the Lease of another node; as the policy of the role purelb_install does."""
    program, _slash, name = write.user.partition("/")
    if write.key.kind != KINDS["leases"]:
        return ""
    own = {"agent": lease_name(name), "allocator": LEADER_LEASE}.get(program)
    return "" if own in (None, write.key.name) else f"{write.user} may not write {write.key.name}"


def node_object(own_addresses: Iterable[Address]) -> dict[str, Any]:
    """Return the Node object of a machine with these addresses, without labels and taints."""
    addresses = [{"type": "InternalIP", "address": str(address)} for address in own_addresses]
    return {"metadata": {"labels": {}}, "spec": {}, "status": {"addresses": addresses}}


def ingress(service: Json) -> Sequence[Json]:
    """Return the entries of a Service's addresses."""
    found: Sequence[Json] = ((service.get("status") or {}).get("loadBalancer") or {}).get(
        "ingress"
    ) or ()
    return found
