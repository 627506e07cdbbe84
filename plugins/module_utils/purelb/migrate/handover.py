# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What is written to Services so that another PureLB takes them over, and gives them back.

A Service without a class is handed over by the type of its pool, once nobody of v1 is left. While
v1 still runs a Service leaves it by its class, which only a Service that is no load balancer may
change: for a moment it is none, and v1 takes its addresses away. Pure.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Mapping, Optional

from ..core import names
from ..core.api import codec, custom_resources
from ..core.errors import ObjectError
from ..core.model import Address, PoolType, ServiceGroup
from ..module.manifests import Object, changes, clean

# Of the classes that v2 claims, the one that a Service gets.
CLASS = "purelb.io/purelbv2"
_OURS = f"{names.API_GROUP}/"
# What a Service that is no load balancer cannot have; the API server takes most of it away.
_OF_BALANCERS = (
    "externalTrafficPolicy",
    "allocateLoadBalancerNodePorts",
    "healthCheckNodePort",
    "loadBalancerSourceRanges",
)


def is_marked(service: Object) -> bool:
    """Whether a PureLB, of whatever version, says that it serves a Service."""
    marks = _annotations(service)
    return bool(marks.get(names.ALLOCATED_BY_ANNOTATION) == names.ALLOCATED_BY)


def is_moving(service: Object) -> bool:
    """Whether a Service has left one PureLB and is not yet settled with the other."""
    return names.MIGRATION_ANNOTATION in _annotations(service)


def is_of_v1(service: Object) -> bool:
    """Whether v1 serves a Service: v2 tells the type of the pool, or claims the class."""
    if not is_balancer(service) or not is_marked(service):
        return False
    if class_of(service) in names.LOAD_BALANCER_CLASSES:
        return False
    is_handed_over = names.POOL_TYPE_ANNOTATION in _annotations(service)
    return class_of(service) is not None or not is_handed_over


def is_balancer(service: Object) -> bool:
    """Whether a Service is of type LoadBalancer."""
    return bool(service["spec"].get("type") == "LoadBalancer")


def class_of(service: Object) -> Optional[str]:
    """Its spec.loadBalancerClass."""
    found: Optional[str] = service["spec"].get("loadBalancerClass")
    return found


def addresses_of(service: Object) -> List[str]:
    """What its status shows, in order of text."""
    entries = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    return sorted(str(entry.get("ip") or entry.get("hostname")) for entry in entries)


def typed(service: Object, groups: Iterable[ServiceGroup]) -> Object:
    """The patch that hands over a Service that keeps its (missing) class."""
    record = codec.service_of(service)
    kinds = {group.pool_type for group in groups if _gives(group, record.addresses)}
    # What no group knows any more was announced where a node had its subnet.
    chosen = PoolType.REMOTE if kinds == {PoolType.REMOTE} else PoolType.LOCAL
    return {"metadata": {"annotations": {names.POOL_TYPE_ANNOTATION: chosen.value}}}


def readable(bodies: Iterable[Object]) -> List[ServiceGroup]:
    """The groups among v2 objects that can be read."""
    found = []
    for body in bodies:
        if body["kind"] == "ServiceGroup":
            try:
                found.append(custom_resources.service_group_of(body))
            except ObjectError:
                continue  # nobody gives addresses from it, and the allocator says why
    return found


def leaving(service: Object) -> Object:
    """The patch by which a Service leaves whoever serves it, and keeps its node ports.

    It carries what it needs to arrive with the same addresses, whatever happens on the way.
    """
    has_ports = service["spec"].get("allocateLoadBalancerNodePorts", True)
    annotations = _annotations(service)
    spec = {field: service["spec"][field] for field in _OF_BALANCERS if field in service["spec"]}
    saved_spec = {"spec": spec, "addresses": annotations.get(names.ADDRESSES_ANNOTATION)}
    marks = {names.MIGRATION_ANNOTATION: json.dumps(saved_spec, sort_keys=True)}
    if addresses_of(service):
        marks[names.ADDRESSES_ANNOTATION] = ",".join(addresses_of(service))
    return {
        "metadata": {"annotations": marks},
        # Sources it does not take away by itself, but refuses.
        "spec": {
            "type": "NodePort" if has_ports else "ClusterIP",
            "loadBalancerSourceRanges": None,
        },
    }


def arriving(service: Object, load_balancer_class: Optional[str]) -> Object:
    """The patch by which a Service that has left asks to be served: in a class, or without one."""
    kind = {"type": "LoadBalancer", "loadBalancerClass": load_balancer_class}
    return {"spec": {**_luggage(service)["spec"], **kind}}


def settling(service: Object) -> Object:
    """The patch that takes away what a Service has for the way only."""
    own = _luggage(service)["addresses"]
    gone = {names.MIGRATION_ANNOTATION: None, names.ADDRESSES_ANNOTATION: own}
    return {"metadata": {"annotations": gone}}


def restoring(now: Object, before: Optional[Object]) -> Object:
    """The patch after which a Service has from PureLB what it had before; empty if it has.

    One that was made in between (`before` is None) gives back what it was given, as whoever gave it
    is gone.
    """
    was: Object = before or {}
    patch: Object = {}
    annotations = changes(_ours(now), _ours(was))
    if annotations:
        patch["metadata"] = {"annotations": annotations}
    policy = (was.get("spec") or {}).get("externalTrafficPolicy")
    if policy and policy != now["spec"].get("externalTrafficPolicy"):
        patch["spec"] = {"externalTrafficPolicy": policy}
    # The API server refuses addresses of a Service that is no load balancer any more.
    if is_balancer(now) and addresses_of(now) != addresses_of(was):
        ingress = ((was.get("status") or {}).get("loadBalancer") or {}).get("ingress")
        patch["status"] = {"loadBalancer": {"ingress": ingress}}
    return patch


def counted(service: Object) -> Object:
    """What of a Service a PureLB writes; who announces it is written anew at any time."""
    announcing = names.ANNOUNCING_ANNOTATIONS.values()
    meta = service["metadata"]
    return {
        "kind": service["kind"],
        "metadata": {"namespace": meta["namespace"], "name": meta["name"]},
        "annotations": {k: text for k, text in _ours(service).items() if k not in announcing},
        "addresses": addresses_of(service),
        "class": class_of(service),
        "policy": (service.get("spec") or {}).get("externalTrafficPolicy"),
    }


def kept(service: Object) -> Object:
    """A Service as it is kept: with its addresses."""
    return {**clean(service), "status": service.get("status") or {}}


def _luggage(service: Object) -> Dict[str, Any]:
    text = _annotations(service)[names.MIGRATION_ANNOTATION]
    where = f"Service {service['metadata']['namespace']}/{service['metadata']['name']}"
    field = f"metadata.annotations[{names.MIGRATION_ANNOTATION}]"
    try:
        saved_spec = json.loads(text)
        return {"spec": dict(saved_spec["spec"]), "addresses": saved_spec["addresses"]}
    except (ValueError, KeyError, TypeError) as error:
        problem = (
            "is not what a migration writes: give it its type and class by hand, and remove it"
        )
        raise ObjectError(where, field, problem) from error


def _gives(group: ServiceGroup, addresses: Iterable[Address]) -> bool:
    return any(group.range_of(address) for address in addresses)


def _annotations(obj: Mapping[str, Any]) -> Dict[str, Any]:
    return (obj.get("metadata") or {}).get("annotations") or {}


def _ours(obj: Mapping[str, Any]) -> Dict[str, Any]:
    return {key: text for key, text in _annotations(obj).items() if key.startswith(_OURS)}
