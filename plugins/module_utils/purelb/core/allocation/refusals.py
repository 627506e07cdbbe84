# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The reasons why a Service gets no address, and the error that carries one."""

from __future__ import annotations

from enum import Enum
from typing import Iterable, Optional

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
    NODE_ADDRESS = "node_address"
    NAMESPACE_DENIED = "namespace_denied"
    AMBIGUOUS_NAMESPACE_DEFAULT = "ambiguous_namespace_default"
    MULTIPOOL_REFUSED = "multipool_refused"
    MULTIPOOL_POOL_MISMATCH = "multipool_pool_mismatch"
    IPAM_FAILED = "ipam_failed"
    SUBNET_DEPRECATED = "subnet_deprecated"


class AllocationRefusedError(Exception):
    """The Service gets no address: the reason, the group and a message with the remedy.

    Every reader of the Service's events reads the message, so it names no other Service and no
    namespaces but its own. `detail` does; it is for the operator's log.
    """

    def __init__(self, reason: RefusalReason, group: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.group = group
        self.message = message
        self.detail = detail


def no_such_family(group: ServiceGroup, address: Address) -> AllocationRefusedError:
    """Return the error for an address of a family that the Service does not have."""
    return AllocationRefusedError(
        RefusalReason.INVALID_ADDRESS,
        group.name,
        f"ServiceGroup {group.name} cannot allocate {address}: the Service has no "
        f"{FAMILIES[address.version]} in spec.ipFamilies; add it, or request another address",
    )


def address_of_a_node(group: ServiceGroup, address: Address) -> AllocationRefusedError:
    """Return the error for an address that a Node has."""
    return AllocationRefusedError(
        RefusalReason.NODE_ADDRESS,
        group.name,
        f"ServiceGroup {group.name} cannot allocate {address}: it is the address of a Node; "
        "request another address, and take this one out of the pool",
    )


def conflicting(
    group: ServiceGroup, address: Optional[Address], conflict: AllocationConflict
) -> AllocationRefusedError:
    """Return the error for an address that another Service has; None: for any it could share."""
    detail = f"Service {conflict.holder} has it"
    if conflict.ports:
        ports = ", ".join(f"{number}/{protocol}" for protocol, number in conflict.ports)
        remedy = "change the port, or request another address"
        if address is None:
            remedy = f"change the port, or the annotation {SHARING_ANNOTATION}"
        return AllocationRefusedError(
            RefusalReason.PORT_CONFLICT,
            group.name,
            f"ServiceGroup {group.name} cannot share {address or 'the address'}: another Service "
            f"with this annotation {SHARING_ANNOTATION} listens on {ports}, too, so that is "
            f"already in use: {remedy}",
            detail,
        )
    return AllocationRefusedError(
        RefusalReason.SHARING_KEY_CONFLICT,
        group.name,
        f"ServiceGroup {group.name} cannot allocate {address}: it is already in use by another "
        f"Service; request another address, or set the same annotation {SHARING_ANNOTATION} on "
        "both, if they are in one namespace",
        detail,
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


def subnet_replaced(group: ServiceGroup, versions: Iterable[int]) -> AllocationRefusedError:
    """Return the error for families whose ranges with free addresses are in deprecated subnets."""
    text = " and ".join(FAMILIES[version] for version in versions)
    return AllocationRefusedError(
        RefusalReason.SUBNET_DEPRECATED,
        group.name,
        f"ServiceGroup {group.name} gives no new {text} address: the network replaces the subnet, "
        "and the nodes' own addresses there are deprecated; add a range of the new subnet",
    )
