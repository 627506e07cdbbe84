# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Releases addresses that an external IPAM allocated, once their Service no longer has them.

Remembers which group each such Service has its addresses from, because Service and group may both
be deleted by then.
"""

from __future__ import annotations

from collections.abc import Container

from purelb.core.allocation.outcomes import Assignment
from purelb.core.model import Address, Service, ServiceGroup, ServiceKey
from purelb_agent.ipam.queue import IpamQueue


class IpamReleases:
    """The groups that Services have leased addresses from."""

    def __init__(self, ipam_queue: IpamQueue) -> None:
        self._ipam_queue = ipam_queue
        # Name of the group by Service.
        self._groups: dict[ServiceKey, str] = {}

    def learn(self, service: Service, group: ServiceGroup | None) -> None:
        """Take from the ledger where a Service's addresses come from."""
        if group is not None and group.source is not None and service.addresses:
            self._groups[service.key] = group.name

    def assigned(self, key: ServiceKey, assignment: Assignment) -> None:
        """Remember where the addresses of an assignment that was written come from."""
        if assignment.is_leased:
            self._groups[key] = assignment.group
        else:
            self._groups.pop(key, None)

    def freed(self, key: ServiceKey, addresses: frozenset[Address], *, has_others: bool) -> None:
        """Release what a Service left, or all that it has there if it has no other address."""
        group = self._groups.get(key)
        if group is None:
            return
        if has_others:
            for address in addresses:
                self._ipam_queue.release(group, key, address)
        else:
            del self._groups[key]
            self._ipam_queue.release(group, key)

    def release(self, group: str, key: ServiceKey, address: Address | None = None) -> None:
        """Release an address that was allocated but not used; None: all of the Service's."""
        self._ipam_queue.release(group, key, address)

    def release_orphans(
        self, group: str, holders: frozenset[ServiceKey], services: Container[ServiceKey]
    ) -> None:
        """Release the addresses of Services that were deleted while no allocator ran."""
        for key in holders:
            if key not in services:
                self._ipam_queue.release(group, key)
