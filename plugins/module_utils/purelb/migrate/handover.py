# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The patches to Services by which v1 and v2 hand them to each other.

A Service without a class is handed over by the annotation with the type of its pool, after v1 has
ended. While v1 still runs, a Service is handed over by its class. The API server lets only a
Service of another type change its class: for a moment it is no LoadBalancer, and v1 removes its
addresses. Pure.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Mapping, Optional

from ..audit.cluster_reader import valid_group
from ..core import names
from ..core.api import codec
from ..core.errors import ObjectError
from ..core.model import Address, PoolType, ServiceGroup
from ..module.manifests import Object, changes, clean

# The class that a Service gets, of those that v2 claims.
CLASS = "purelb.io/purelbv2"
_OURS = f"{names.API_GROUP}/"
# Fields of LoadBalancers only; the API server removes most of them when the type changes.
_LOAD_BALANCER_FIELDS = (
    "externalTrafficPolicy",
    "allocateLoadBalancerNodePorts",
    "healthCheckNodePort",
    "loadBalancerSourceRanges",
)


def is_marked(service: Object) -> bool:
    """Whether the annotations name PureLB, of either version, as the owner of the addresses."""
    marks = _annotations(service)
    return bool(marks.get(names.ALLOCATED_BY_ANNOTATION) == names.ALLOCATED_BY)


def is_moving(service: Object) -> bool:
    """Whether a move from one PureLB to the other has begun and is not complete."""
    return names.MIGRATION_ANNOTATION in _annotations(service)


def is_of_v1(service: Object) -> bool:
    """Whether v1 serves a Service: v2 annotates the type of the pool, or claims the class."""
    if not is_load_balancer(service) or not is_marked(service):
        return False
    if class_of(service) in names.LOAD_BALANCER_CLASSES:
        return False
    is_handed_over = names.POOL_TYPE_ANNOTATION in _annotations(service)
    return class_of(service) is not None or not is_handed_over


def is_load_balancer(service: Object) -> bool:
    """Whether a Service is of type LoadBalancer."""
    return bool(service["spec"].get("type") == "LoadBalancer")


def class_of(service: Object) -> Optional[str]:
    """Returns spec.loadBalancerClass, or None."""
    found: Optional[str] = service["spec"].get("loadBalancerClass")
    return found


def addresses_of(service: Object) -> List[str]:
    """Returns the addresses (or host names) of its status, sorted as text."""
    entries = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    return sorted(str(entry.get("ip") or entry.get("hostname")) for entry in entries)


def pool_type_patch(service: Object, groups: Iterable[ServiceGroup]) -> Object:
    """The patch that hands over a Service without changing its class."""
    record = codec.service_of(service)
    types = {group.pool_type for group in groups if _contains_any(group, record.addresses)}
    # v1 announced an address without a group on a node in its subnet.
    chosen = PoolType.REMOTE if types == {PoolType.REMOTE} else PoolType.LOCAL
    return {"metadata": {"annotations": {names.POOL_TYPE_ANNOTATION: chosen.value}}}


def readable_groups(bodies: Iterable[Object]) -> List[ServiceGroup]:
    """Returns the valid ServiceGroups among v2 objects."""
    groups = (valid_group(body) for body in bodies if body["kind"] == "ServiceGroup")
    return [group for group in groups if group is not None]


def release_patch(service: Object) -> Object:
    """The patch that makes the present PureLB release a Service; the node ports stay.

    An annotation saves the fields that `claim_patch` needs, so that an interrupted move can be
    continued with the same addresses.
    """
    has_ports = service["spec"].get("allocateLoadBalancerNodePorts", True)
    annotations = _annotations(service)
    spec = {
        field: service["spec"][field] for field in _LOAD_BALANCER_FIELDS if field in service["spec"]
    }
    saved_spec = {"spec": spec, "addresses": annotations.get(names.ADDRESSES_ANNOTATION)}
    marks = {names.MIGRATION_ANNOTATION: json.dumps(saved_spec, sort_keys=True)}
    if addresses_of(service):
        marks[names.ADDRESSES_ANNOTATION] = ",".join(addresses_of(service))
    return {
        "metadata": {"annotations": marks},
        # The API server does not remove the source ranges, but refuses the other type with them.
        "spec": {
            "type": "NodePort" if has_ports else "ClusterIP",
            "loadBalancerSourceRanges": None,
        },
    }


def claim_patch(service: Object, load_balancer_class: Optional[str]) -> Object:
    """The patch that makes a released Service a LoadBalancer of a class, or of none."""
    fields = {"type": "LoadBalancer", "loadBalancerClass": load_balancer_class}
    return {"spec": {**_saved_spec(service)["spec"], **fields}}


def cleanup_patch(service: Object) -> Object:
    """The patch that removes the annotations of the move."""
    requested = _saved_spec(service)["addresses"]
    annotations = {names.MIGRATION_ANNOTATION: None, names.ADDRESSES_ANNOTATION: requested}
    return {"metadata": {"annotations": annotations}}


def restore_patch(now: Object, before: Optional[Object]) -> Object:
    """The patch that restores what PureLB wrote to a Service; empty if nothing differs.

    A Service that is newer than the backup (`before` is None) loses the addresses that v2 gave it.
    """
    was: Object = before or {}
    patch: Object = {}
    annotations = changes(_ours(now), _ours(was))
    if annotations:
        patch["metadata"] = {"annotations": annotations}
    policy = (was.get("spec") or {}).get("externalTrafficPolicy")
    if policy and policy != now["spec"].get("externalTrafficPolicy"):
        patch["spec"] = {"externalTrafficPolicy": policy}
    # The API server refuses addresses for a Service of another type.
    if is_load_balancer(now) and addresses_of(now) != addresses_of(was):
        ingress = ((was.get("status") or {}).get("loadBalancer") or {}).get("ingress")
        patch["status"] = {"loadBalancer": {"ingress": ingress}}
    return patch


def comparable(service: Object) -> Object:
    """Returns what PureLB writes to a Service, without the announcing nodes, which may change."""
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


def for_backup(service: Object) -> Object:
    """Returns a Service as the backup contains it: with its status, which has the addresses."""
    return {**clean(service), "status": service.get("status") or {}}


def _saved_spec(service: Object) -> Dict[str, Any]:
    text = _annotations(service)[names.MIGRATION_ANNOTATION]
    where = f"Service {service['metadata']['namespace']}/{service['metadata']['name']}"
    field = f"metadata.annotations[{names.MIGRATION_ANNOTATION}]"
    try:
        saved_spec = json.loads(text)
        return {"spec": dict(saved_spec["spec"]), "addresses": saved_spec["addresses"]}
    except (ValueError, KeyError, TypeError) as error:
        reason = "was not written by a migration: set type and class by hand, and remove it"
        raise ObjectError(where, field, reason) from error


def _contains_any(group: ServiceGroup, addresses: Iterable[Address]) -> bool:
    return any(group.range_of(address) for address in addresses)


def _annotations(obj: Mapping[str, Any]) -> Dict[str, Any]:
    return (obj.get("metadata") or {}).get("annotations") or {}


def _ours(obj: Mapping[str, Any]) -> Dict[str, Any]:
    return {key: text for key, text in _annotations(obj).items() if key.startswith(_OURS)}
