# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Proposals for v1 ServiceGroups in v2, which distinguishes local and remote pools.

v1 added an address to a real interface if a node was in its subnet, and to the dummy interface
otherwise. v2 requires an explicit choice. Each group gets a proposal with its reason and, if the
operator has to decide, a question. Nothing is applied here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Set, Tuple

from ..addresses import parse_range
from ..errors import ObjectError, SettingError
from ..model import AddressRange, Network, PoolType
from ..names import API_VERSION, SERVICE_GROUP_ANNOTATION, V1_SPEC_ANNOTATION, V2_SPEC_ANNOTATION
from .convert import convert, reference, v1_entries

Json = Mapping[str, Any]
Object = Dict[str, Any]

_HOST_ROUTE = {4: 32, 6: 128}
# Annotations of the converted object that the proposal must not inherit.
_STALE_ANNOTATIONS = ("kubectl.kubernetes.io/last-applied-configuration", V1_SPEC_ANNOTATION)


class GroupReason(str, Enum):
    """The reason for the proposal for a range or a group."""

    IN_NODE_SUBNET = "inNodeSubnet"
    OUTSIDE_NODE_SUBNETS = "outsideNodeSubnets"
    HOST_ROUTE = "hostRoute"
    HOST_ROUTE_IN_NODE_SUBNET = "hostRouteInNodeSubnet"
    PARTLY_IN_NODE_SUBNET = "partlyInNodeSubnet"
    MIXED = "mixed"
    NETBOX = "netbox"
    WRITTEN_IN_V2 = "writtenInV2"
    INVALID = "invalid"
    DECIDED = "decided"


_QUESTIONS = {
    GroupReason.HOST_ROUTE_IN_NODE_SUBNET: (
        "makes host routes of addresses in a subnet of nodes: keep it remote if a router learns "
        "them; make it local if hosts of that subnet should reach them directly"
    ),
    GroupReason.PARTLY_IN_NODE_SUBNET: (
        "reaches beyond the nodes' subnet: split it where the subnet ends, the part inside for a "
        "local group and the rest for a remote one"
    ),
}
_NETBOX_QUESTION = (
    "v2 announces addresses from NetBox as remote: if they are in the nodes' subnets, use ranges "
    "of a local group instead"
)
_PARTED = (
    "all addresses of a Service come from one group: a dual-stack Service needs a group with both "
    "families"
)


@dataclass(frozen=True)
class RangeFinding:
    """The proposal for one range and its reason; `entry` is the range as written."""

    range: AddressRange
    entry: Json
    pool_type: PoolType
    reason: GroupReason


@dataclass(frozen=True)
class GroupProposal:
    """The proposal for a v1 group: `groups` are v2 bodies; `question` may be empty."""

    group: str
    reason: GroupReason
    groups: Tuple[Object, ...] = ()
    ranges: Tuple[RangeFinding, ...] = ()
    question: str = ""


def convert_groups(
    groups: Iterable[Json], node_subnets: Iterable[Network]
) -> Tuple[GroupProposal, ...]:
    """Propose v2 groups for v1 groups in a cluster whose nodes have these subnets."""
    subnets, known = tuple(node_subnets), tuple(groups)
    if not subnets:
        raise SettingError(
            "no subnet of a node is known, so every group would look remote: list the subnets of "
            "the nodes' addresses"
        )
    taken = {reference(body) for body in known}
    return tuple(_proposal(body, subnets, taken) for body in known)


def _proposal(body: Json, subnets: Sequence[Network], taken: Set[str]) -> GroupProposal:
    name = reference(body)
    try:
        new = without_server_fields(convert(body, to=API_VERSION))
        if V2_SPEC_ANNOTATION in ((body.get("metadata") or {}).get("annotations") or {}):
            return GroupProposal(name, GroupReason.WRITTEN_IN_V2, (new,))
        found = _findings(name, (body.get("spec") or {}).get("local") or {}, subnets)
    except ObjectError as error:
        text = f"correct {error.field} first: {error.problem}"
        return GroupProposal(name, GroupReason.INVALID, question=text)
    if not found:
        return _without_ranges(name, new)
    types = {finding.pool_type for finding in found}
    if len(types) > 1:
        return _split(new, found, taken)
    reason = max((finding.reason for finding in found), key=list(GroupReason).index)
    placed = {**new, "spec": {types.pop().value: new["spec"]["local"]}}
    return GroupProposal(name, reason, (placed,), found, _questions(found))


def without_server_fields(new: Json) -> Object:
    """Return an object without status and without metadata of the API server and kubectl."""
    old = new["metadata"]
    meta = {field: old[field] for field in ("name", "namespace", "labels") if field in old}
    annotations = {
        key: text
        for key, text in (old.get("annotations") or {}).items()
        if key not in _STALE_ANNOTATIONS
    }
    if annotations:
        meta["annotations"] = annotations
    fields = ("apiVersion", "kind", "spec")
    return {**{field: new[field] for field in fields}, "metadata": meta}


def _findings(name: str, local: Json, subnets: Sequence[Network]) -> Tuple[RangeFinding, ...]:
    """Return the proposals for all ranges, IPv4 first."""
    return tuple(
        _finding(_range(name, entry, version), entry, subnets)
        for version, entries in sorted(v1_entries(local).items())
        for entry in entries
    )


def _range(name: str, entry: Json, version: int) -> AddressRange:
    field = f"an IPv{version} range of spec.local"
    if not isinstance(entry, dict) or not all(isinstance(t, str) for t in entry.values()):
        raise ObjectError(name, field, "must be an object with texts for pool and subnet")
    try:
        parsed = parse_range(entry["pool"], entry["subnet"], entry.get("aggregation") or "default")
    except KeyError as missing:
        raise ObjectError(name, field, f"{missing.args[0]} is missing") from missing
    except ValueError as error:
        raise ObjectError(name, field, str(error)) from error
    if parsed.first.version != version:
        raise ObjectError(name, field, f"{parsed} is of the other family")
    return parsed


def _finding(pool_range: AddressRange, entry: Json, subnets: Sequence[Network]) -> RangeFinding:
    is_inside = any(pool_range.first in subnet and pool_range.last in subnet for subnet in subnets)
    if pool_range.aggregation == _HOST_ROUTE[pool_range.first.version]:
        reason = GroupReason.HOST_ROUTE_IN_NODE_SUBNET if is_inside else GroupReason.HOST_ROUTE
        return RangeFinding(pool_range, entry, PoolType.REMOTE, reason)
    if is_inside:
        return RangeFinding(pool_range, entry, PoolType.LOCAL, GroupReason.IN_NODE_SUBNET)
    if any(_overlap(pool_range, subnet) for subnet in subnets):
        return RangeFinding(pool_range, entry, PoolType.LOCAL, GroupReason.PARTLY_IN_NODE_SUBNET)
    return RangeFinding(pool_range, entry, PoolType.REMOTE, GroupReason.OUTSIDE_NODE_SUBNETS)


def _overlap(pool_range: AddressRange, subnet: Network) -> bool:
    return (
        pool_range.first.version == subnet.version
        and int(pool_range.first) <= int(subnet.broadcast_address)
        and int(pool_range.last) >= int(subnet.network_address)
    )


def _questions(found: Iterable[RangeFinding]) -> str:
    return "; ".join(f"{f.range} {_QUESTIONS[f.reason]}" for f in found if f.reason in _QUESTIONS)


def _without_ranges(name: str, new: Object) -> GroupProposal:
    if "netbox" in new["spec"]:
        return GroupProposal(name, GroupReason.NETBOX, (new,), question=_NETBOX_QUESTION)
    question = "give it a range of addresses, or delete it: it has none"
    return GroupProposal(name, GroupReason.INVALID, question=question)


def _split(new: Object, found: Tuple[RangeFinding, ...], taken: Set[str]) -> GroupProposal:
    """Return a proposal of two groups; the one with the local ranges keeps the name."""
    name = reference(new)
    suffix = "-remote"
    while name + suffix in taken:
        suffix += "-2"
    other = new["metadata"]["name"] + suffix
    local, remote = (
        [finding for finding in found if finding.pool_type is pool_type]
        for pool_type in (PoolType.LOCAL, PoolType.REMOTE)
    )
    far = ", ".join(str(finding.range) for finding in remote)
    question = (
        f"not all ranges are in subnets of nodes: Services with an address of {far} need the "
        f"annotation {SERVICE_GROUP_ANNOTATION}: {other}"
    )
    versions = [{finding.range.first.version for finding in part} for part in (local, remote)]
    parted = _PARTED if versions[0] != versions[1] else ""
    texts = (text for text in (question, parted, _questions(found)) if text)
    meta = {**new["metadata"], "name": other}
    groups = (
        {**new, "spec": {"local": pools_of(local)}},
        {**new, "metadata": meta, "spec": {"remote": pools_of(remote)}},
    )
    return GroupProposal(name, GroupReason.MIXED, groups, found, "; ".join(texts))


def pools_of(found: Iterable[RangeFinding]) -> Object:
    """Return the fields of spec.local or spec.remote with these ranges."""
    entries: Dict[int, List[Json]] = {4: [], 6: []}
    for finding in found:
        entries[finding.range.first.version].append(finding.entry)
    return {
        **{f"v{v}pool": few[0] for v, few in entries.items() if len(few) == 1},
        **{f"v{v}pools": many for v, many in entries.items() if len(many) > 1},
    }
