# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Conversion between the JSON of Kubernetes' own kinds and records.

PureLB's custom resources are in custom_resources. Reading is tolerant and skips invalid optional
values; writing is strict.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from .. import names
from ..addresses import parse_address, parse_stored_address
from ..allocation.outcomes import Assignment, Remainder
from ..model import (
    Address,
    Announcement,
    EndpointSlice,
    Lease,
    PoolType,
    Port,
    Service,
    ServiceKey,
)
from ..settings import LONGEST_DURATION
from ..times import format_time, parse_time
from . import lease_texts

Json = Mapping[str, Any]
# Accepted spellings of a boolean in an annotation.
_SWITCH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def is_older(version: str, than: str) -> bool:
    """Return whether a resource version precedes another one of the same resource.

    A stalled watch may deliver an older state than a list that was read in the meantime.
    """
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def _written_at(meta: Json) -> Optional[float]:
    """Return when an object was written last: `time` in managedFields is the API server's own.

    Each manager's is changed with any of its fields' values (Server-Side Apply, "Managed fields").
    """
    times = (parse_time(entry.get("time")) for entry in meta.get("managedFields") or ())
    return max((time for time in times if time is not None), default=None)


def lease_of(body: Json) -> Optional[Lease]:
    """Return the node Lease in a Lease object; None for a Lease of another program."""
    meta, spec = body.get("metadata", {}), body.get("spec") or {}
    name = meta.get("name", "")
    if not name.startswith(names.LEASE_PREFIX):
        return None
    annotations = meta.get("annotations") or {}
    annotations = {k: t for k, t in annotations.items() if len(t) <= names.MAX_LEASE_TEXT}
    subnets, malformed = lease_texts.subnets_of(annotations.get(names.SUBNETS_ANNOTATION, ""))
    return Lease(
        node=name[len(names.LEASE_PREFIX) :],
        subnets=subnets,
        instance=annotations.get(names.INSTANCE_ANNOTATION, ""),
        holder=spec.get("holderIdentity") or "",
        duration=min(float(spec.get("leaseDurationSeconds") or 0), LONGEST_DURATION),
        renew_time=parse_time(spec.get("renewTime")),
        written=_written_at(meta),
        version=meta.get("resourceVersion", ""),
        uid=meta.get("uid", ""),
        epoch=annotations.get(names.EPOCH_ANNOTATION, ""),
        mail=annotations.get(names.MAIL_ANNOTATION, ""),
        outside=annotations.get(names.OUTSIDE_ANNOTATION, ""),
        node_uid=_owning_node(meta),
        outage=lease_texts.outage_of(annotations.get(names.OUTAGE_ANNOTATION, "")),
        peer_keys=lease_texts.listed(annotations.get(names.PEER_KEYS_ANNOTATION, "")),
        duplicates=lease_texts.duplicates_of(annotations.get(names.DUPLICATES_ANNOTATION, "")),
        macs=lease_texts.macs_of(annotations.get(names.MACS_ANNOTATION, "")),
        deprecated=lease_texts.subnets_of(annotations.get(names.DEPRECATED_ANNOTATION, ""))[0],
        answering=lease_texts.answering_of(annotations.get(names.ANSWERING_ANNOTATION, "")),
        mistaken=lease_texts.mistaken_of(annotations.get(names.MISTAKEN_ANNOTATION, "")),
        rules=lease_texts.listed(annotations.get(names.RULES_ANNOTATION, "")),
        service_proxy=annotations.get(names.SERVICE_PROXY_ANNOTATION, ""),
        fence=annotations.get(names.FENCE_ANNOTATION, ""),
        malformed=malformed,
    )


def _owning_node(meta: Json) -> str:
    owners = meta.get("ownerReferences") or ()
    return next((owner.get("uid", "") for owner in owners if owner.get("kind") == "Node"), "")


def lease_body(lease: Lease, *, namespace: str) -> Dict[str, Any]:
    """Return a node's Lease object; its Node owns it, so that it is deleted with the Node."""
    annotations = {
        names.SUBNETS_ANNOTATION: ",".join(str(subnet) for subnet in lease.subnets),
        names.INSTANCE_ANNOTATION: lease.instance,
    }
    optional = {
        names.EPOCH_ANNOTATION: lease.epoch,
        names.MAIL_ANNOTATION: lease.mail,
        names.OUTSIDE_ANNOTATION: lease.outside,
        names.OUTAGE_ANNOTATION: lease_texts.outage_text(lease.outage),
        names.PEER_KEYS_ANNOTATION: ",".join(lease.peer_keys),
        names.DUPLICATES_ANNOTATION: ",".join(map(str, lease.duplicates)),
        names.MACS_ANNOTATION: ",".join(mac.hex(":") for mac in lease.macs[: names.MAX_MACS]),
        names.DEPRECATED_ANNOTATION: ",".join(map(str, lease.deprecated)),
        names.ANSWERING_ANNOTATION: ",".join(lease.answering[: names.MAX_ANSWERING]),
        names.MISTAKEN_ANNOTATION: ",".join(
            f"{node}/{address}" for node, address in lease.mistaken[: names.MAX_MISTAKEN]
        ),
        names.RULES_ANNOTATION: ",".join(lease.rules),
        names.SERVICE_PROXY_ANNOTATION: lease.service_proxy,
        names.FENCE_ANNOTATION: lease.fence,
    }
    annotations.update({name: text for name, text in optional.items() if text})
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": names.lease_name(lease.node),
            "namespace": namespace,
            "labels": dict(names.LEASE_LABELS),
            "annotations": annotations,
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": lease.node,
                    "uid": lease.node_uid,
                    "blockOwnerDeletion": False,
                    "controller": False,
                }
            ],
        },
        "spec": {
            "holderIdentity": lease.holder,
            "leaseDurationSeconds": int(lease.duration),
            "renewTime": format_time(lease.renew_time or 0.0),
        },
    }


def node_addresses(body: Json) -> FrozenSet[Address]:
    """Return the addresses in the status of a Node object; host names are skipped."""
    found = set()
    for entry in (body.get("status") or {}).get("addresses") or ():
        try:
            found.add(parse_address(entry.get("address") or ""))
        except ValueError:
            continue
    return frozenset(found)


def parse_announcements(text: str) -> Tuple[Announcement, ...]:
    """Parse the entries `node,interface,ip` of an annotation; older agents omit the ip."""
    entries = []
    for entry in text.split():
        node, _comma, rest = entry.partition(",")
        interface, _comma, ip = rest.partition(",")
        try:
            address: Optional[Address] = parse_address(ip) if ip else None
        except ValueError:
            address = None
        entries.append(Announcement(node, interface, address, text=entry))
    return tuple(entries)


def _entries(status: Json) -> Sequence[Json]:
    return (status.get("loadBalancer") or {}).get("ingress") or ()


def _is_vip(entry: Json) -> bool:
    """Whether an entry is an address that service proxies serve on the node (KEP-1860)."""
    return bool(entry.get("ip")) and entry.get("ipMode") in (None, "VIP")


def _ingress(status: Json) -> Tuple[Address, ...]:
    addresses: List[Address] = []
    for entry in _entries(status):
        try:
            addresses.append(parse_stored_address(entry.get("ip") or ""))
        except ValueError:
            continue  # PureLB never writes an ingress with a host name
    return tuple(addresses)


def _writers(meta: Json, *path: str) -> FrozenSet[str]:
    """Return who wrote a field, as the API server notes it; of a list, who wrote all of it."""
    writers: Set[str] = set()
    for entry in meta.get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        for part in path:
            fields = fields.get(f"f:{part}")
            if fields is None:
                break
        else:
            writers.add(entry.get("manager") or "")
    return frozenset(writers)


def _explicit(text: str) -> Tuple[Tuple[Address, ...], Tuple[str, ...]]:
    """Parse addresses separated by commas or spaces; return addresses and invalid texts."""
    good: List[Address] = []
    bad: List[str] = []
    for word in text.replace(",", " ").split():
        try:
            good.append(parse_address(word))
        except ValueError:
            bad.append(word)
    return tuple(dict.fromkeys(good)), tuple(bad)


def _port(port: Json) -> Port:
    return port.get("protocol") or "TCP", port["port"]


def service_of(body: Json) -> Service:
    """Return the record of a Service object."""
    meta, spec = body["metadata"], body.get("spec") or {}
    annotations = meta.get("annotations") or {}
    pool_type = annotations.get(names.POOL_TYPE_ANNOTATION)
    status = body.get("status") or {}
    explicit, malformed = _explicit(
        annotations.get(names.ADDRESSES_ANNOTATION) or spec.get("loadBalancerIP") or ""
    )
    return Service(
        key=ServiceKey(meta["namespace"], meta["name"]),
        uid=meta.get("uid", ""),
        version=meta.get("resourceVersion", ""),
        created=meta.get("creationTimestamp") or "",
        is_load_balancer=spec.get("type") == "LoadBalancer",
        is_terminating=bool(meta.get("deletionTimestamp")),
        load_balancer_class=spec.get("loadBalancerClass"),
        families=tuple(names.VERSIONS[f] for f in spec.get("ipFamilies") or ("IPv4",)),
        requires_dual_stack=spec.get("ipFamilyPolicy") == "RequireDualStack",
        addresses=_ingress(status),
        other_ingress=sum(not _is_vip(entry) for entry in _entries(status)),
        address_writers=_writers(meta, "status", "loadBalancer", "ingress"),
        policy_writers=_writers(meta, "spec", "externalTrafficPolicy"),
        group=annotations.get(names.SERVICE_GROUP_ANNOTATION),
        allocated_by_us=annotations.get(names.ALLOCATED_BY_ANNOTATION) == names.ALLOCATED_BY,
        allocated_from=annotations.get(names.ALLOCATED_FROM_ANNOTATION),
        pool_type=PoolType(pool_type) if pool_type in {t.value for t in PoolType} else None,
        skip_dad=annotations.get(names.SKIP_DAD_ANNOTATION) == "true",
        explicit=explicit,
        malformed=malformed,
        sharing_key=annotations.get(names.SHARING_ANNOTATION) or None,
        ports=frozenset(_port(port) for port in spec.get("ports") or ()),
        multi_pool=_SWITCH.get(annotations.get(names.MULTI_POOL_ANNOTATION, "").lower()),
        asks_reevaluation=_SWITCH.get(
            annotations.get(names.REEVALUATE_ANNOTATION, "false").lower(), True
        ),
        allows_local=_SWITCH.get(
            annotations.get(names.ALLOW_LOCAL_ANNOTATION, "false").lower(), True
        ),
        is_external_local=spec.get("externalTrafficPolicy") == "Local",
        has_affinity=annotations.get(names.AFFINITY_ANNOTATION) == names.AFFINITY_ENDPOINTS,
        announcing={
            version: parse_announcements(annotations.get(key, ""))
            for version, key in names.ANNOUNCING_ANNOTATIONS.items()
        },
    )


def endpoint_slice_of(body: Json) -> Optional[EndpointSlice]:
    """Return the record of an EndpointSlice; None if it belongs to no Service.

    An endpoint with an unknown condition is ready, as the API defines it.
    """
    meta = body["metadata"]
    service = (meta.get("labels") or {}).get("kubernetes.io/service-name")
    if not service:
        return None
    ready = (
        endpoint.get("nodeName") or ""
        for endpoint in body.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
    )
    return EndpointSlice(
        ServiceKey(meta["namespace"], service), frozenset(node for node in ready if node)
    )


def assignment_annotations(assignment: Optional[Assignment]) -> Dict[str, Optional[str]]:
    """Return the allocator's annotations as a merge patch; None removes all of the programs'.

    An agent that is gone no longer removes its own.
    """
    if assignment is None:
        return dict.fromkeys(
            (
                names.ALLOCATED_BY_ANNOTATION,
                names.ALLOCATED_FROM_ANNOTATION,
                names.POOL_TYPE_ANNOTATION,
                names.SKIP_DAD_ANNOTATION,
                *names.ANNOUNCING_ANNOTATIONS.values(),
            )
        )
    return {
        **_marks(assignment.group, assignment.pool_type, skip_dad=assignment.skip_dad),
        names.REEVALUATE_ANNOTATION: None,
    }


def remainder_annotations(left: Remainder) -> Dict[str, Optional[str]]:
    """Return the allocator's annotations of a refused Service as a merge patch."""
    if not left.addresses:
        return assignment_annotations(None)
    if left.group is None:
        return {}
    return _marks(left.group.name, left.group.pool_type, skip_dad=left.group.skip_dad)


def _marks(group: str, pool_type: PoolType, *, skip_dad: bool) -> Dict[str, Optional[str]]:
    return {
        names.ALLOCATED_BY_ANNOTATION: names.ALLOCATED_BY,
        names.ALLOCATED_FROM_ANNOTATION: group,
        names.POOL_TYPE_ANNOTATION: pool_type.value,
        names.SKIP_DAD_ANNOTATION: "true" if skip_dad else None,
    }


def ingress_without(body: Json, addresses: Iterable[Address]) -> Dict[str, Any]:
    """Return the status of a Service object without these addresses, as a merge patch."""
    gone = frozenset(addresses)
    entries = _entries(body.get("status") or {})
    kept = [e for e in entries if gone.isdisjoint(_ingress({"loadBalancer": {"ingress": [e]}}))]
    return {"loadBalancer": {"ingress": kept or None}}


def ingress_status(addresses: Iterable[Address]) -> Dict[str, Any]:
    """Return the status of a Service with these addresses, as a merge patch."""
    ingress = [{"ip": str(address)} for address in addresses]
    return {"loadBalancer": {"ingress": ingress or None}}
