# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which addresses a Service gets: decided for one Service at a time, given those of all others.

The cluster is the database: the Services' status shows which addresses are in use. It is read at
start and followed from then on. A Service keeps its addresses, even if its pool changes or is
deleted, until it requests others or another Service turns out to have the same ones.
"""

from __future__ import annotations

from typing import Iterable, Tuple

from ..election.claims import ALL_CLASSES, Classes, asks_us
from ..model import Address, Service
from ..names import ADDRESSES_ANNOTATION
from .allocations import Allocations
from .choice import AddressSelector, Live
from .external_ipam import decide_external
from .groups import Groups
from .outcomes import Keep, Outcome, Release, refusal_of
from .refusals import AllocationRefusedError, RefusalReason


def rebuild(services: Iterable[Service]) -> Allocations:
    """Return the allocations that the Services' status shows.

    If two Services have one address and cannot share it, the one that sorts first keeps it. Any
    rule that does not depend on the order of the list would do, as `decide` gives the other a new
    one.
    """
    allocations = Allocations()
    for service in sorted(services, key=lambda s: (not s.allocated_by_us, str(s.key))):
        if service.is_load_balancer:
            allocations.hold(service, allocations.unclaimed(service, service.addresses))
    return allocations


def decide(
    service: Service,
    groups: Groups,
    allocations: Allocations,
    live: Live,
    *,
    classes: Classes = ALL_CLASSES,
) -> Outcome:
    """Decide which addresses one Service gets, keeps or loses."""
    if not asks_us(service, classes):
        is_released = service.allocated_by_us and not _is_left_to_others(service)
        return Release() if is_released else Keep()
    # First the addresses in its status, then those allocated to it but not in its status yet.
    reserved = sorted(allocations.of(service.key), key=int)
    shown = allocations.unclaimed(service, dict.fromkeys((*service.addresses, *reserved)))
    keeps = tuple(a for a in shown if a in service.addresses)
    try:
        _check_spelling(service)
        if service.allocated_by_us and shown and _is_orphan(service, groups):
            return _orphan(service, keeps)
        group = groups.of(service, shown if service.allocated_by_us else ())
        if group.source is not None:
            return decide_external(service, group, shown)
        return AddressSelector(service, group, allocations, live, shown).outcome()
    except AllocationRefusedError as refused:
        return refusal_of(refused, keeps)


def _is_left_to_others(service: Service) -> bool:
    """Whether PureLB v1 serves this Service; it sets the same annotations."""
    return service.is_load_balancer and service.load_balancer_class is None


def _orphan(service: Service, keeps: Tuple[Address, ...]) -> Outcome:
    """Keep the addresses of a Service without a group; raises if it lost one to another."""
    if keeps == service.addresses:
        return Keep(keeps)
    group = service.allocated_from or ""
    raise AllocationRefusedError(
        RefusalReason.UNKNOWN_POOL,
        group,
        f"another Service has an address of this one, and ServiceGroup {group} does not exist any "
        "more: create it, or name another one",
    )


def _check_spelling(service: Service) -> None:
    if service.malformed:
        raise AllocationRefusedError(
            RefusalReason.INVALID_ADDRESS,
            service.group or "",
            f"{service.malformed[0]!r} is no IP address: write addresses separated by commas in "
            f"the annotation {ADDRESSES_ANNOTATION}",
        )


def _is_orphan(service: Service, groups: Groups) -> bool:
    """Whether the group of the Service's addresses is deleted and it requests no other."""
    name = service.allocated_from or ""
    asks_other = service.group not in (None, name) or service.asks_reevaluation
    held = any(groups.holding(address) for address in service.addresses)
    return name not in groups.all and not asks_other and not held and not service.explicit
