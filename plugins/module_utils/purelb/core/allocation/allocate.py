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

from ..election.claims import ALL_CLASSES, Classes, asks_us, is_left_to_others
from ..model import Address, Service, ServiceGroup
from ..names import ADDRESSES_ANNOTATION
from .allocations import Allocations, HeldAddresses
from .choice import AddressSelector, Live
from .external_ipam import decide_external
from .groups import Groups
from .outcomes import Ask, Assignment, Keep, Outcome, Release, refusal_of
from .own import origin_of, own_addresses, was_ours
from .refusals import AllocationRefusedError, RefusalReason


def rebuild(
    services: Iterable[Service],
    groups: Groups,
    *,
    classes: Classes = ALL_CLASSES,
    of_nodes: Iterable[Address] = (),
) -> Allocations:
    """Return the allocations that the Services' status shows.

    If two Services have one address and cannot share it, the older one keeps it; `decide` gives the
    other a new one. What other programs have given is in use, too.
    """
    allocations = Allocations()
    allocations.exclude_nodes(of_nodes)
    for service in sorted(services, key=lambda s: (not was_ours(s), s.created, str(s.key))):
        if is_ours(service, allocations, classes):
            has = allocations.unclaimed(service, own_addresses(service, groups, allocations))
            allocations.hold(service, has, origin_of(service, groups, allocations) or "")
        elif service.is_load_balancer:
            allocations.hold(service, allocations.unclaimed(service, service.addresses))
    return allocations


def is_ours(service: Service, allocations: Allocations, classes: Classes) -> bool:
    """Whether a Service requests an address from us, or has one of ours still."""
    if asks_us(service, classes):
        return True
    is_known = service.bears_marks or allocations.group_of(service.key) is not None
    return is_known and not is_left_to_others(service, classes)


def decide(
    service: Service,
    groups: Groups,
    allocations: Allocations,
    live: Live,
    *,
    classes: Classes = ALL_CLASSES,
) -> Outcome:
    """Decide which addresses one Service gets, keeps or loses.

    Those that another program has written into its status are not its own, and do not stay there.
    """
    if not asks_us(service, classes):
        return Release() if is_ours(service, allocations, classes) else Keep()
    own = own_addresses(service, groups, allocations)
    reserved = sorted(allocations.given(service.key), key=int)
    shown = allocations.unclaimed(service, dict.fromkeys((*own, *reserved)))
    held = HeldAddresses(shown, origin_of(service, groups, allocations))
    keeps = tuple(a for a in shown if a in service.addresses)
    try:
        _check_spelling(service)
        if shown and _is_orphan(service, groups, held):
            return _orphan(service, keeps, held.origin)
        choice = groups.of(service, held)
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


def _is_orphan(service: Service, groups: Groups, held: HeldAddresses) -> bool:
    """Whether the group of the Service's addresses is deleted and it requests no other."""
    name = held.origin or ""
    asks_other = service.group not in (None, name) or service.asks_reevaluation
    has_group = any(groups.holding(address) for address in held.addresses)
    return name not in groups.all and not asks_other and not has_group and not service.explicit
