# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which addresses in a Service's status are ours: others may write there, too.

The ledger knows what it gave. Where it knows nothing, which is so at start, the pools say it, the
agents' entries, and the API server's note of who wrote the status. None of these goes away when a
user replaces a Service by a manifest of his own; the annotation `allocated-by` does.
"""

from __future__ import annotations

from typing import Optional, Tuple

from ..model import Address, Service
from ..names import FIELD_MANAGERS
from .allocations import Allocations
from .groups import Groups


def own_addresses(
    service: Service, groups: Groups, allocations: Allocations
) -> Tuple[Address, ...]:
    """Return the addresses in the Service's status that are ours, in their order.

    Also those that another Service has by now, see `Allocations.unclaimed`.
    """
    given = allocations.given(service.key)
    served = {address.version for address in given}
    return tuple(
        address
        for address in service.addresses
        if address in given
        # A family for which it has none may be one that was served before, or by another program.
        or (address.version not in served and groups.has_range_of(address))
        or (not given and _is_of_a_former_pool(service, address, allocations))
    )


def _is_of_a_former_pool(service: Service, address: Address, allocations: Allocations) -> bool:
    """Whether an address that no group holds was ours before a group was changed."""
    if service.is_announced(address):
        return True
    is_foreign = bool(service.address_writers) and service.address_writers.isdisjoint(
        FIELD_MANAGERS
    )
    return not is_foreign and not allocations.is_of_a_node(address) and was_ours(service)


def was_ours(service: Service) -> bool:
    """Whether we have written addresses of the Service, by its annotations or the API server."""
    return service.allocated_by_us or not service.address_writers.isdisjoint(FIELD_MANAGERS)


def origin_of(service: Service, groups: Groups, allocations: Allocations) -> Optional[str]:
    """Return the name of the group that gave the Service its addresses, None if none did.

    The ledger knows. At start it is the group whose range has an address of the Service. Only if
    none has, as with a group whose IPAM is elsewhere or that was deleted, is it what the annotation
    says; that grants nothing, see `Groups.denial`.
    """
    known = allocations.group_of(service.key)
    if known or not service.addresses:
        return known
    holding = (groups.holding(address) for address in service.addresses)
    found = next((group.name for group in holding if group is not None), None)
    return found or service.allocated_from
