# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which address a Service gets: the first free one of its group, for each of its families.

The cluster is the database: what is taken is what the Services' status says, read once at start and
kept in step from then on. Deciding is one pure step for one Service; who calls it in which order is
the allocator's own, single task.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple, Union

from .model import Address, AddressRange, PoolType, Service, ServiceGroup, ServiceKey
from .names import DEFAULT_GROUP, FAMILIES, LOAD_BALANCER_CLASSES, SERVICE_GROUP_ANNOTATION


class RefusalReason(str, Enum):
    """Why a Service gets no address; the metric's label and the event's reason."""

    EXHAUSTED = "exhausted"
    UNKNOWN_POOL = "unknown_pool"


@dataclass(frozen=True)
class Assignment:
    """The Service is to have exactly these addresses from this group."""

    group: str
    addresses: Tuple[Address, ...]
    pool_type: PoolType
    skip_dad: bool


@dataclass(frozen=True)
class Refusal:
    """The Service gets nothing: why, and what its owner can do."""

    group: str
    reason: RefusalReason
    message: str


@dataclass(frozen=True)
class Keep:
    """The Service has what it should have."""


@dataclass(frozen=True)
class Release:
    """The Service is to have no address of ours."""


Outcome = Union[Assignment, Refusal, Keep, Release]


@dataclass(frozen=True)
class Taken:
    """Who has which address. Changed by making a new one."""

    holders: Mapping[Address, ServiceKey] = field(default_factory=dict)

    def with_service(self, key: ServiceKey, addresses: Iterable[Address]) -> Taken:
        """Let the Service have exactly these addresses."""
        rest = {a: holder for a, holder in self.holders.items() if holder != key}
        return Taken({**rest, **dict.fromkeys(addresses, key)})

    def of(self, key: ServiceKey) -> FrozenSet[Address]:
        """Addresses that the Service has."""
        return frozenset(a for a, holder in self.holders.items() if holder == key)

    def in_use(self, group: ServiceGroup) -> int:
        """Number of the group's addresses that some Service has."""
        return sum(1 for a in self.holders if group.range_of(a))


def is_ours(service: Service) -> bool:
    """Whether a Service asks us for an address, by its type and class."""
    return service.is_load_balancer and (
        service.load_balancer_class is None or service.load_balancer_class in LOAD_BALANCER_CLASSES
    )


def rebuild(services: Iterable[Service]) -> Taken:
    """What is taken according to the Services' status.

    Where two Services claim one address, the one that sorts first keeps it: any rule that does not
    depend on the order of a list will do, because `decide` gives the other a new one.
    """
    holders: Dict[Address, ServiceKey] = {}
    for service in sorted(services, key=lambda s: (not s.allocated_by_us, str(s.key))):
        if service.is_load_balancer:
            for address in service.addresses:
                holders.setdefault(address, service.key)
    return Taken(holders)


def _first_free(ranges: Iterable[AddressRange], taken: Taken) -> Optional[Address]:
    """The lowest free address; a step for each taken one before it, not for the pool's size."""
    for one in ranges:
        address = one.first
        while address in one:
            if address not in taken.holders:
                return address
            address += 1
    return None


def _group_of(service: Service) -> str:
    return service.group or DEFAULT_GROUP


def _kept(service: Service, group: ServiceGroup, taken: Taken) -> Dict[int, Address]:
    """Addresses that the Service may keep: of the group, of its families, and its alone.

    After those that it has come those that were given to it and that it does not show yet.
    """
    kept: Dict[int, Address] = {}
    reserved = sorted(taken.of(service.key), key=int)
    for address in (*service.addresses, *reserved):
        if (
            address.version in service.families
            and address.version not in kept
            and group.range_of(address)
            and taken.holders.get(address, service.key) == service.key
        ):
            kept[address.version] = address
    return kept


def _refused(service: Service, group: ServiceGroup, missing: List[int]) -> Optional[Refusal]:
    """A refusal if the Service cannot do without the families that the group has nothing for."""
    names = " and ".join(FAMILIES[version] for version in missing)
    some = len(missing) < len(service.families)
    if some and not service.requires_dual_stack:
        return None
    has_range = all(any(r.first.version == v for r in group.ranges) for v in missing)
    mend = "enlarge the pool or delete a Service" if has_range else f"add a pool for {names}"
    return Refusal(
        group.name,
        RefusalReason.EXHAUSTED,
        f"ServiceGroup {group.name} has no free {names} address: {mend}",
    )


def decide(service: Service, groups: Mapping[str, ServiceGroup], taken: Taken) -> Outcome:
    """Decide what is to happen to one Service. `groups` are by name."""
    if not is_ours(service):
        return Release() if service.allocated_by_us else Keep()
    name = _group_of(service)
    group = groups.get(name)
    if group is None:
        if service.allocated_by_us and service.addresses:
            return Keep()
        return Refusal(
            name,
            RefusalReason.UNKNOWN_POOL,
            f"ServiceGroup {name} does not exist: create it, or name another one in the annotation "
            f"{SERVICE_GROUP_ANNOTATION}",
        )
    return _assign(service, group, taken)


def _assign(service: Service, group: ServiceGroup, taken: Taken) -> Outcome:
    chosen = _kept(service, group, taken)
    ranges: Dict[int, List[AddressRange]] = defaultdict(list)
    for one in group.ranges:
        ranges[one.first.version].append(one)
    for version in service.families:
        free = None if version in chosen else _first_free(ranges[version], taken)
        if free is not None:
            chosen[version] = free
    missing = [version for version in service.families if version not in chosen]
    refusal = _refused(service, group, missing) if missing else None
    if refusal is not None:
        return refusal
    addresses = tuple(chosen[version] for version in service.families if version in chosen)
    assignment = Assignment(group.name, addresses, group.pool_type, group.skip_dad)
    return Keep() if _is_done(service, assignment) else assignment


def _is_done(service: Service, assignment: Assignment) -> bool:
    """Whether the Service already says all that the assignment would write."""
    return (
        service.allocated_by_us
        and service.addresses == assignment.addresses
        and service.allocated_from == assignment.group
        and service.pool_type == assignment.pool_type
        and service.skip_dad == assignment.skip_dad
    )


def overlapping(groups: Iterable[ServiceGroup]) -> List[Tuple[str, str]]:
    """Pairs of groups, each by name order, that share an address."""
    known = sorted(groups, key=lambda g: g.name)
    return [
        (one.name, other.name)
        for i, one in enumerate(known)
        for other in known[i + 1 :]
        if any(a.first in b or b.first in a for a in one.ranges for b in other.ranges)
    ]
