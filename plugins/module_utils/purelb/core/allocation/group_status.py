# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The status of a ServiceGroup, which the allocator writes: its use and its conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, Iterable, List, Literal, Mapping, Optional, Tuple, Union

from ..model import Address, NetBoxSource, ServiceGroup, ServiceKey
from ..names import FAMILIES
from .allocations import Allocations
from .ipam import Stats

Json = Mapping[str, Any]
# The schema stores a signed 64-bit number; a pool may have more addresses.
_MOST = 2**63 - 1
# A message names at most this many Services; the API has all of them.
_NAMED = 5
# The reasons of a group that allocates no addresses, and all reasons of conditions.
Problem = Literal["InvalidSpec", "PoolOverlaps", "Unreachable"]
ConditionReason = Union[
    Problem,
    Literal[
        "Accepted",
        "AddressesFree",
        "AllInPool",
        "KeptByServices",
        "NoAddressFree",
        "NoDuplicates",
        "OtherHostsAnswer",
    ],
]
ConditionType = Literal["AddressesOutsidePool", "AddressesSetAside", "Exhausted", "Ready"]


@dataclass(frozen=True)
class Condition:
    """A condition in the status of a group."""

    type: ConditionType
    is_true: bool
    reason: ConditionReason
    message: str


@dataclass(frozen=True)
class Use:
    """Addresses of a pool by IP version: in use, and free (None if unknown)."""

    in_use: Mapping[int, int]
    free: Mapping[int, Optional[int]]
    # Families with at least one range.
    has_pool: FrozenSet[int] = frozenset()


def use_of_unused(group: ServiceGroup, allocations: Allocations) -> Use:
    """Return the use of a group that overlaps another one and allocates nothing.

    What is in its ranges may be of the other one. It has no free address to give.
    """
    given = allocations.given_by(group.name)
    in_use = {version: sum(a.version == version for a in given) for version in FAMILIES}
    return Use(in_use, dict.fromkeys(FAMILIES, 0))


def use_of(group: ServiceGroup, allocations: Allocations) -> Use:
    """Return the use of a group's ranges; what is set aside counts as in use."""
    in_use = dict.fromkeys(FAMILIES, 0)
    size = dict.fromkeys(FAMILIES, 0)
    for pool_range in group.ranges:
        in_use[pool_range.first.version] += allocations.in_use(pool_range)
        size[pool_range.first.version] += pool_range.size
    free = {version: size[version] - in_use[version] for version in FAMILIES}
    has_pool = frozenset(version for version in FAMILIES if size[version])
    return Use(in_use, dict(free), has_pool)


def use_of_external(stats: Stats) -> Use:
    """Return the use of a pool as an external IPAM reports it."""
    in_use = {version: stats.in_use.get(version, 0) for version in FAMILIES}
    free: Dict[int, Optional[int]] = {}
    for version in FAMILIES:
        size = stats.size.get(version)
        free[version] = None if size is None else max(0, size - in_use[version])
    has_pool = frozenset(version for version in FAMILIES if stats.size.get(version))
    return Use(in_use, free, has_pool)


def ready(problem: Optional[Tuple[Problem, str]] = None) -> Condition:
    """Return the condition Ready; `problem` is the reason and message if it is false."""
    if problem is None:
        return Condition("Ready", True, "Accepted", "The group's addresses can be allocated.")
    return Condition("Ready", False, *problem)


def exhausted(use: Use) -> Condition:
    """Return the condition Exhausted: a family of the pool has no free address."""
    empty = [FAMILIES[version] for version in sorted(use.has_pool) if use.free[version] == 0]
    if not empty:
        return Condition("Exhausted", False, "AddressesFree", "Each family has free addresses.")
    return Condition(
        "Exhausted",
        True,
        "NoAddressFree",
        f"All {' and '.join(empty)} addresses are in use or set aside: enlarge the pool or delete "
        "a Service.",
    )


def outside_pool(out_of_pool_addresses: Mapping[ServiceKey, Tuple[Address, ...]]) -> Condition:
    """Return the condition AddressesOutsidePool: Services keep addresses of no range."""
    if not out_of_pool_addresses:
        text = "All addresses of its Services are in the pool."
        return Condition("AddressesOutsidePool", False, "AllInPool", text)
    shown = [
        f"{key} ({', '.join(map(str, out_of_pool_addresses[key]))})"
        for key in sorted(out_of_pool_addresses, key=str)[:_NAMED]
    ]
    unnamed = len(out_of_pool_addresses) - _NAMED
    more = f" and {unnamed} more" if unnamed > 0 else ""
    return Condition(
        "AddressesOutsidePool",
        True,
        "KeptByServices",
        f"Services keep addresses that no range holds any more: {', '.join(shown)}{more}. Put the "
        "range back, or set the annotation purelb.io/re-evaluate on each Service to move it.",
    )


def set_aside_of(group: ServiceGroup, allocations: Allocations) -> Condition:
    """Return the condition AddressesSetAside: other hosts have addresses of the pool."""
    found = [address for pool_range in group.ranges for address in allocations.aside(pool_range)]
    if not found:
        text = "No other host was found to have an address of the pool."
        return Condition("AddressesSetAside", False, "NoDuplicates", text)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return Condition(
        "AddressesSetAside",
        True,
        "OtherHostsAnswer",
        f"{len(found)} addresses are given only to a Service that requests them, as other hosts "
        f"have them: {', '.join(map(str, found[:_NAMED]))}{more}. Take them from these hosts, or "
        "out of the pool.",
    )


def status_body(
    group: ServiceGroup,
    use: Use,
    conditions: Iterable[Condition],
    addresses: Iterable[str],
    *,
    known: Json,
    now: str,
) -> Dict[str, Any]:
    """Return the whole status; `addresses` are the pool's, formatted for people.

    `known` is the current status of the object, `now` a Kubernetes timestamp. An unchanged
    condition keeps its transition time, so the status of an unchanged group is equal to `known`.
    """
    before = {entry["type"]: entry for entry in known.get("conditions") or ()}
    body: Dict[str, Any] = {
        "announce": group.pool_type.value.capitalize(),
        "ipam": _ipam(group),
        "addresses": list(addresses),
        "conditions": [_condition(c, group, before.get(c.type), now) for c in conditions],
    }
    for version, family in FAMILIES.items():
        body[f"allocated{family}"] = use.in_use.get(version, 0)
        free = use.free.get(version)
        if free is not None:
            body[f"available{family}"] = min(free, _MOST)
    if group.namespaces:
        body["boundNamespaces"] = sorted(group.namespaces)
    return body


def _ipam(group: ServiceGroup) -> str:
    if group.source is None:
        return "Cluster"
    return "NetBox" if isinstance(group.source, NetBoxSource) else group.source.provider


def _condition(
    condition: Condition, group: ServiceGroup, before: Optional[Json], now: str
) -> Dict[str, Any]:
    status = "True" if condition.is_true else "False"
    is_same = before is not None and before.get("status") == status
    return {
        "type": condition.type,
        "status": status,
        "observedGeneration": group.generation,
        "lastTransitionTime": before["lastTransitionTime"] if before and is_same else now,
        "reason": condition.reason,
        "message": condition.message,
    }


def merge_patch(known: Json, wanted: Json) -> Dict[str, Any]:
    """Return the merge patch from one status to another; empty if they are equal."""
    gone: List[str] = [field for field in known if field not in wanted]
    changed = {field: value for field, value in wanted.items() if known.get(field) != value}
    return {**dict.fromkeys(gone), **changed}
