# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Objects as the API server sends them, for what the node agent watches."""

from __future__ import annotations

from typing import Any

from purelb.core import names
from purelb.core.api import codec
from purelb.core.model import Lease, PoolType
from purelb_agent.runtime import clock
from tests.support.core.snapshots import NET4, NET6, VIP4, VIP6

NAMESPACE = "purelb-system"
Json = dict[str, Any]


def service_object(
    name: str = "web",
    addresses: tuple[Any, ...] = (VIP4, VIP6),
    *,
    pool_type: PoolType = PoolType.LOCAL,
    version: str = "1",
    **spec: Any,
) -> Json:
    """A Service of type LoadBalancer that has these addresses from us."""
    return {
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "annotations": {
                names.ALLOCATED_BY_ANNOTATION: names.ALLOCATED_BY,
                names.ALLOCATED_FROM_ANNOTATION: "default",
                names.POOL_TYPE_ANNOTATION: pool_type.value,
            },
        },
        "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4", "IPv6"], **spec},
        "status": {"loadBalancer": {"ingress": [{"ip": str(address)} for address in addresses]}},
    }


def group_object(kind: str = "local", name: str = "default", **more: Any) -> Json:
    """A ServiceGroup whose pools contain VIP4 and VIP6."""
    pools = {
        "v4pools": [{"pool": "172.28.1.220-172.28.1.229", "subnet": str(NET4)}],
        "v6pools": [{"pool": "fd28::220-fd28::229", "subnet": str(NET6)}],
        **more,
    }
    return {"metadata": {"namespace": NAMESPACE, "name": name}, "spec": {kind: pools}}


def config_object(name: str = "default", **local: Any) -> Json:
    """An LBNodeAgent with this configuration."""
    return {"metadata": {"namespace": NAMESPACE, "name": name}, "spec": {"local": local}}


def node_object(
    name: str, *addresses: str, taints: tuple[str, ...] = (), labels: Json | None = None
) -> Json:
    """A Node with these addresses and NoExecute taints."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]},
        "status": {"addresses": [{"type": "InternalIP", "address": a} for a in addresses]},
    }


def slice_object(name: str, *nodes: str, service: str = "web") -> Json:
    """An EndpointSlice with a ready endpoint on each of these nodes."""
    return {
        "metadata": {
            "namespace": "default",
            "name": name,
            "labels": {"kubernetes.io/service-name": service},
        },
        "endpoints": [{"nodeName": node, "conditions": {"ready": True}} for node in nodes],
    }


def lease_object(
    node: str,
    *,
    version: str = "1",
    subnets: tuple[Any, ...] = (NET4, NET6),
    duration: float = 10,
    **more: Any,
) -> Json:
    """A node's Lease, renewed now; with `holder=""` and an epoch, it says that its node leaves."""
    fields = {
        "instance": f"pod-{node}",
        "holder": node,
        "renew_time": clock.wall_time(),
        "node_uid": f"uid-{node}",
        **more,
    }
    lease = Lease(node, subnets, duration=duration, **fields)
    body = codec.lease_body(lease, namespace=NAMESPACE)
    body["metadata"] |= {"resourceVersion": version, "uid": f"uid-lease-{node}"}
    return body
