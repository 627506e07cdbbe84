# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The outcomes of a decision about a Service: what it gets, keeps or loses, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, Optional, Tuple, Union

from ..model import Address, AddressRange, PoolType, Service, ServiceGroup
from .ipam import IpamRequest
from .refusals import AllocationRefusedError, RefusalReason


@dataclass(frozen=True)
class Assignment:
    """The Service gets exactly these addresses from this group."""

    group: str
    addresses: Tuple[Address, ...]
    pool_type: PoolType
    skip_dad: bool
    # One of each range; `partial` has the ranges without a free address.
    is_multi: bool = False
    partial: Tuple[AddressRange, ...] = ()
    is_balanced: bool = False
    # Allocated by an external IPAM.
    is_leased: bool = False
    # Set externalTrafficPolicy to Cluster, as only one node holds a local address.
    sets_cluster: bool = False
    # The groups that serve the namespace, if that left open which one to take.
    ambiguous: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """The Service gets no more addresses than `keeps`; `message` has the remedy.

    The Service's owner reads the message; `detail`, which names others, is for the operator's log.
    """

    group: str
    reason: RefusalReason
    message: str
    keeps: Tuple[Address, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class Ask:
    """The external IPAM must be asked for the Service's addresses; see `answered`."""

    group: ServiceGroup
    request: IpamRequest
    # As in Assignment.
    ambiguous: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Keep:
    """The Service keeps its addresses; `out_of_pool` are those in no range of its group."""

    out_of_pool: Tuple[Address, ...] = ()


@dataclass(frozen=True)
class Release:
    """The Service loses its addresses."""


Outcome = Union[Assignment, Ask, Refusal, Keep, Release]


def refusal_of(refused: AllocationRefusedError, keeps: Tuple[Address, ...]) -> Refusal:
    """Return the refusal for an error; the Service keeps `keeps`."""
    return Refusal(refused.group, refused.reason, refused.message, keeps, refused.detail)


def assignment_of(
    service: Service, group: ServiceGroup, addresses: Iterable[Address]
) -> Assignment:
    """Return an assignment, sorted by the Service's families, then by the group's ranges."""
    order: Dict[int, int] = {v: i for i, v in enumerate(service.families)}
    position = {pool_range: i for i, pool_range in enumerate(group.ranges)}

    def place(address: Address) -> Tuple[int, int]:
        pool_range = group.range_of(address)
        last = len(position)
        return order[address.version], last if pool_range is None else position[pool_range]

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
    """Whether the Service already has all that the assignment would write."""
    return (
        not service.asks_reevaluation
        and not assignment.sets_cluster
        and service.addresses == assignment.addresses
        and not service.other_ingress
        and _is_marked(
            service, assignment.group, assignment.pool_type, skip_dad=assignment.skip_dad
        )
    )


def _is_marked(service: Service, group: str, pool_type: PoolType, *, skip_dad: bool) -> bool:
    """Whether the annotations are those of a Service with addresses of this group."""
    return (
        service.allocated_by_us
        and service.allocated_from == group
        and service.pool_type == pool_type
        and service.skip_dad == skip_dad
    )


@dataclass(frozen=True)
class Remainder:
    """What a refused Service keeps.

    `group` gave the addresses. None leaves the annotations as they are, or removes them if there
    are no addresses.
    """

    addresses: Tuple[Address, ...]
    group: Optional[ServiceGroup]


def remainder(
    service: Service,
    keeps: Tuple[Address, ...],
    group: Optional[ServiceGroup],
    *,
    has_own: bool,
) -> Optional[Remainder]:
    """Return what a refused Service must be reduced to; None if it shows just that.

    Annotations that others wrote are corrected, too. `group` gave the Service its addresses.
    `has_own`: one of those in its status is ours, or was.
    """
    if not keeps:
        if service.addresses and not has_own:
            return None  # They are another load balancer's.
        is_bare = not service.addresses and not service.bears_marks
        return None if is_bare else Remainder((), None)
    is_marked = group is None or _is_marked(
        service, group.name, group.pool_type, skip_dad=group.skip_dad
    )
    if service.addresses == keeps and is_marked and not service.other_ingress:
        return None
    return Remainder(keeps, group)
