# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which addresses a Service gets: decided for one Service at a time, given those of all others.

The cluster is the database: the Services' status, which no tenant may write, shows which addresses
are in use. It is read at start and followed from then on. A Service keeps its addresses, even if
its pool changes or is deleted, until it requests others or another Service turns out to have the
same ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Optional, Tuple

from ..election.claims import ALL_CLASSES, Classes, asks_us
from ..model import Address, Service, ServiceGroup
from ..names import ADDRESSES_ANNOTATION
from .allocations import Allocations, HeldAddresses
from .choice import AddressSelector, Live
from .external_ipam import decide_external
from .groups import Groups
from .outcomes import Ask, Assignment, Keep, Outcome, Release, refusal_of
from .refusals import AllocationRefusedError, RefusalReason


def rebuild(services: Iterable[Service], groups: Groups) -> Allocations:
    """Return the allocations that the Services' status shows.

    If two Services have one address and cannot share it, the older one keeps it; `decide` gives the
    other a new one.
    """
    allocations = Allocations()
    for service in sorted(services, key=lambda s: (not s.allocated_by_us, s.created, str(s.key))):
        if service.is_load_balancer:
            kept = allocations.unclaimed(service, service.addresses)
            allocations.hold(service, kept, origin_of(service, groups, allocations))
    return allocations


def origin_of(service: Service, groups: Groups, allocations: Allocations) -> Optional[str]:
    """Return the name of the group that gave the Service its addresses, None if none did.

    The ledger knows. At start it is the group whose range has an address of the Service. Only if
    none has, as with a group whose IPAM is elsewhere or that was deleted, is it what the annotation
    says; that grants nothing, see `Groups.denial`.
    """
    known = allocations.group_of(service.key)
    if known is not None or not service.addresses:
        return known
    holding = (groups.holding(address) for address in service.addresses)
    found = next((group.name for group in holding if group is not None), None)
    return found or service.allocated_from


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
    reserved = sorted(allocations.of(service.key), key=int)
    shown = allocations.unclaimed(service, dict.fromkeys((*service.addresses, *reserved)))
    held = HeldAddresses(shown, origin_of(service, groups, allocations))
    keeps = tuple(a for a in shown if a in service.addresses)
    try:
        _check_spelling(service)
        if service.allocated_by_us and shown and _is_orphan(service, groups, held.origin):
            return _orphan(service, keeps, held.origin)
        choice = groups.of(service, held if service.allocated_by_us else HeldAddresses())
        denied = groups.denial(choice.group, service.key.namespace)
        try:
            outcome = _select(service, choice.group, allocations, live, held)
        except AllocationRefusedError as refused:
            raise denied or refused from None
        if denied is not None and _gives_more(outcome, held):
            raise denied
    except AllocationRefusedError as refused:
        return refusal_of(refused, keeps)
    if isinstance(outcome, (Ask, Assignment)):
        return replace(outcome, ambiguous=choice.ambiguous)
    return outcome


def _select(
    service: Service, group: ServiceGroup, allocations: Allocations, live: Live, held: HeldAddresses
) -> Outcome:
    if group.source is not None:
        return decide_external(service, group, held)
    return AddressSelector(service, group, allocations, live, held).outcome()


def _gives_more(outcome: Outcome, held: HeldAddresses) -> bool:
    """Whether the Service gets addresses that it does not have."""
    given = outcome.addresses if isinstance(outcome, Assignment) else ()
    return isinstance(outcome, Ask) or bool(set(given) - set(held.addresses))


def _is_left_to_others(service: Service) -> bool:
    """Whether PureLB v1 serves this Service; it sets the same annotations."""
    return service.is_load_balancer and service.load_balancer_class is None


def _orphan(service: Service, keeps: Tuple[Address, ...], origin: Optional[str]) -> Outcome:
    """Keep the addresses of a Service without a group; raises if it lost one to another."""
    if keeps == service.addresses:
        return Keep(keeps)
    group = origin or ""
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


def _is_orphan(service: Service, groups: Groups, origin: Optional[str]) -> bool:
    """Whether the group of the Service's addresses is deleted and it requests no other."""
    name = origin or ""
    asks_other = service.group not in (None, name) or service.asks_reevaluation
    held = any(groups.holding(address) for address in service.addresses)
    return name not in groups.all and not asks_other and not held and not service.explicit
