# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What can come of looking at a Service: what it is to get, to keep or to lose, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, Tuple, Union

from ..model import Address, AddressRange, PoolType, Service, ServiceGroup
from .ipam import IpamRequest
from .refusals import AllocationRefusedError, RefusalReason


@dataclass(frozen=True)
class Assignment:
    """The Service is to have exactly these addresses from this group."""

    group: str
    addresses: Tuple[Address, ...]
    pool_type: PoolType
    skip_dad: bool
    # One of each range; `partial` has those that had none left.
    is_multi: bool = False
    partial: Tuple[AddressRange, ...] = ()
    is_balanced: bool = False
    # Given out by another system.
    is_leased: bool = False
    # externalTrafficPolicy is to become Cluster: a local address is on one node only.
    sets_cluster: bool = False


@dataclass(frozen=True)
class Refusal:
    """The Service gets nothing more: why, and what its owner can do. It goes on with `keeps`."""

    group: str
    reason: RefusalReason
    message: str
    keeps: Tuple[Address, ...] = ()


@dataclass(frozen=True)
class Ask:
    """The group's own system is to say which addresses the Service gets; see `answered`."""

    group: ServiceGroup
    request: IpamRequest


@dataclass(frozen=True)
class Keep:
    """The Service has what it should have; `stray` is what no range of its group holds any more."""

    out_of_pool: Tuple[Address, ...] = ()


@dataclass(frozen=True)
class Release:
    """The Service is to have no address of ours."""


Outcome = Union[Assignment, Ask, Refusal, Keep, Release]


def refusal_of(refused: AllocationRefusedError, keeps: Tuple[Address, ...]) -> Refusal:
    """The refusal that an error is about; the Service goes on with `keeps`."""
    return Refusal(refused.group, refused.reason, refused.message, keeps)


def assignment_of(
    service: Service, group: ServiceGroup, addresses: Iterable[Address]
) -> Assignment:
    """Addresses in the order of the Service's families, then of the group's ranges."""
    order: Dict[int, int] = {v: i for i, v in enumerate(service.families)}
    position = {one: i for i, one in enumerate(group.ranges)}

    def place(address: Address) -> Tuple[int, int]:
        one = group.range_of(address)
        return order[address.version], len(position) if one is None else position[one]

    is_local = group.pool_type is PoolType.LOCAL
    return Assignment(
        group.name,
        tuple(sorted(addresses, key=place)),
        group.pool_type,
        group.skip_dad,
        is_leased=group.source is not None,
        sets_cluster=is_local and service.is_external_local and not service.allows_local,
    )


def is_done(service: Service, assignment: Assignment) -> bool:
    """Whether the Service already says all that the assignment would write."""
    return (
        service.allocated_by_us
        and not service.asks_reevaluation
        and not assignment.sets_cluster
        and service.addresses == assignment.addresses
        and service.allocated_from == assignment.group
        and service.pool_type == assignment.pool_type
        and service.skip_dad == assignment.skip_dad
    )
