# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Services whose addresses an external IPAM allocates: the request and its answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable

from ..model import Address, Service, ServiceGroup
from ..names import MULTI_POOL_ANNOTATION
from .allocations import Allocations, HeldAddresses
from .ipam import IpamRequest
from .outcomes import Ask, Keep, Outcome, assignment_of, is_done, refusal_of
from .refusals import (
    AllocationRefusedError,
    RefusalReason,
    address_of_a_node,
    conflicting,
    no_such_family,
    none_free,
)


def decide_external(service: Service, group: ServiceGroup, held: HeldAddresses) -> Outcome:
    """Decide whether the Service keeps its addresses or needs a request to the external IPAM."""
    if service.multi_pool:
        raise AllocationRefusedError(
            RefusalReason.MULTIPOOL_REFUSED,
            group.name,
            f"ServiceGroup {group.name} has no ranges of its own: remove the annotation "
            f"{MULTI_POOL_ANNOTATION}, or name a group with pools",
        )
    foreign = [a for a in service.explicit if a.version not in service.families]
    if foreign:
        raise no_such_family(group, foreign[0])
    has = [a for a in held.addresses if a.version in service.families]
    is_answered = (
        set(service.explicit) == set(has)
        if service.explicit
        else {a.version for a in has} == set(service.families)
    )
    if not is_answered or held.origin != group.name:
        families = () if service.explicit else service.families
        key = _sharing_key(service, group)
        return Ask(group, IpamRequest(service.key, key, service.explicit, families))
    assignment = assignment_of(service, group, has)
    return Keep() if is_done(service, assignment) else assignment


def _sharing_key(service: Service, group: ServiceGroup) -> str:
    """Return the key for the IPAM, which knows no namespaces; "" shares with none."""
    if service.sharing_key is None:
        return ""
    if group.shares_across_namespaces:
        return service.sharing_key
    return f"{service.key.namespace}/{service.sharing_key}"


def answered(
    service: Service,
    ask: Ask,
    addresses: Iterable[Address],
    allocations: Allocations,
    own: Iterable[Address],
) -> Outcome:
    """Return the outcome once the external IPAM has answered with these addresses.

    `own`: those in the Service's status that are ours.
    """
    group, given = ask.group, tuple(addresses)
    keeps = allocations.unclaimed(service, own)
    missing = [v for v in service.families if v not in {a.version for a in given}]
    for address in given:
        if allocations.is_of_a_node(address):
            return refusal_of(address_of_a_node(group, address), keeps)
        conflict = allocations.conflict(
            address, service, across_namespaces=group.shares_across_namespaces
        )
        if conflict is not None:
            return refusal_of(conflicting(group, address, conflict), keeps)
    if missing and (service.requires_dual_stack or not given):
        return refusal_of(none_free(group, missing, "enlarge its pool or delete a Service"), keeps)
    assignment = replace(assignment_of(service, group, given), ambiguous=ask.ambiguous)
    return Keep() if is_done(service, assignment) else assignment
