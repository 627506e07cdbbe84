# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The reasons why a Service gets no address, and the error that carries one."""

from __future__ import annotations

from enum import Enum
from typing import Iterable

from ..model import Address, ServiceGroup
from ..names import FAMILIES, SHARING_ANNOTATION
from .allocations import AllocationConflict


class RefusalReason(str, Enum):
    """The metric's label, and the first word of the event's message."""

    EXHAUSTED = "exhausted"
    PORT_CONFLICT = "port_conflict"
    SHARING_KEY_CONFLICT = "sharing_key_conflict"
    UNKNOWN_POOL = "unknown_pool"
    INVALID_ADDRESS = "invalid_address"
    NAMESPACE_DENIED = "namespace_denied"
    AMBIGUOUS_NAMESPACE_DEFAULT = "ambiguous_namespace_default"
    MULTIPOOL_REFUSED = "multipool_refused"
    MULTIPOOL_POOL_MISMATCH = "multipool_pool_mismatch"
    IPAM_FAILED = "ipam_failed"


class AllocationRefusedError(Exception):
    """The Service gets no address: the reason, the group and a message with the remedy."""

    def __init__(self, reason: RefusalReason, group: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.group = group
        self.message = message


def no_such_family(group: ServiceGroup, address: Address) -> AllocationRefusedError:
    """Return the error for an address of a family that the Service does not have."""
    return AllocationRefusedError(
        RefusalReason.INVALID_ADDRESS,
        group.name,
        f"ServiceGroup {group.name} cannot give {address}: the Service has no "
        f"{FAMILIES[address.version]} in spec.ipFamilies; add it, or ask for another address",
    )


def conflicting(
    group: ServiceGroup, address: Address, conflict: AllocationConflict
) -> AllocationRefusedError:
    """Return the error for an address that another Service has."""
    if conflict.ports:
        ports = ", ".join(f"{number}/{protocol}" for protocol, number in conflict.ports)
        return AllocationRefusedError(
            RefusalReason.PORT_CONFLICT,
            group.name,
            f"ServiceGroup {group.name} cannot share {address}: Service {conflict.holder} listens "
            f"on {ports}, too; change the port, or ask for another address",
        )
    return AllocationRefusedError(
        RefusalReason.SHARING_KEY_CONFLICT,
        group.name,
        f"ServiceGroup {group.name} cannot give {address}: Service {conflict.holder} has it; ask "
        f"for another address, or set the same annotation {SHARING_ANNOTATION} on both",
    )


def none_free(
    group: ServiceGroup, versions: Iterable[int], remediation: str
) -> AllocationRefusedError:
    """Return the error for families without a free address in the group."""
    text = " and ".join(FAMILIES[version] for version in versions)
    return AllocationRefusedError(
        RefusalReason.EXHAUSTED,
        group.name,
        f"ServiceGroup {group.name} has no free {text} address: {remediation}",
    )
