# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Selection of one Service's addresses from the ranges of one group, step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import FrozenSet, Iterable, List, Optional

from ..model import Address, AddressRange, Lease, Network, PoolType, Service, ServiceGroup
from ..names import FAMILIES, MULTI_POOL_ANNOTATION
from .allocations import AllocationConflict, Allocations, HeldAddresses
from .outcomes import Assignment, Keep, Outcome, assignment_of, is_done
from .refusals import (
    AllocationRefusedError,
    RefusalReason,
    address_of_a_node,
    conflicting,
    no_such_family,
    none_free,
    subnet_replaced,
)


@dataclass(frozen=True)
class Live:
    """Where addresses can be announced now: the subnets of live Leases, and whether any exist.

    `deprecated`: those that the network replaces, on each node that is in them.
    """

    subnets: FrozenSet[Network] = frozenset()
    has_nodes: bool = False
    deprecated: FrozenSet[Network] = frozenset()

    def serves(self, pool_range: AddressRange, pool_type: PoolType) -> bool:
        """Whether a node can announce addresses of the range."""
        return (
            self.has_nodes if pool_type is PoolType.REMOTE else _touches(pool_range, self.subnets)
        )

    def replaces(self, pool_range: AddressRange, pool_type: PoolType) -> bool:
        """Whether the network replaces the range's subnet: its addresses work for a while only."""
        if pool_type is PoolType.REMOTE or not _touches(pool_range, self.deprecated):
            return False
        return not _touches(pool_range, self.subnets - self.deprecated)


def live_of(leases: Iterable[Lease]) -> Live:
    """Return where addresses can be announced, by the live Leases."""
    known = tuple(leases)
    lasting = {n for lease in known for n in lease.subnets if n not in lease.deprecated}
    subnets = frozenset(network for lease in known for network in lease.subnets)
    return Live(subnets, bool(known), subnets - lasting)


def _touches(pool_range: AddressRange, subnets: Iterable[Network]) -> bool:
    return any(pool_range.first in subnet or pool_range.last in subnet for subnet in subnets)


class AddressSelector:
    """Selects explicit addresses first, then those the Service has, then those it lacks."""

    def __init__(
        self,
        service: Service,
        group: ServiceGroup,
        allocations: Allocations,
        live: Live,
        held: HeldAddresses,
    ) -> None:
        self._service = service
        self._group = group
        self._allocations = allocations
        self._live = live
        asked = service.multi_pool
        self._multi = group.multi_pool if asked is None else asked
        self._chosen: List[Address] = []
        self._partial: List[AddressRange] = []
        self._is_of_group = held.origin == group.name and not service.asks_reevaluation
        self._stays = [a for a in held.addresses if self._may_stay(a)]

    def outcome(self) -> Outcome:
        """Return the outcome; raises AllocationRefusedError if the Service cannot be served."""
        if self._multi and self._group.balance_pools:
            raise self._refused(
                RefusalReason.MULTIPOOL_REFUSED,
                f"takes each address from one range (balancePools), and the annotation "
                f"{MULTI_POOL_ANNOTATION} requests one of each: remove one of the two",
            )
        self._take_explicit()
        self._take_stays()
        if self._multi:
            self._take_each()
        else:
            self._take_one()
        self._check_families()
        assignment = self._assignment()
        if not is_done(self._service, assignment):
            return assignment
        return Keep(tuple(a for a in assignment.addresses if not self._group.range_of(a)))

    def _refused(self, reason: RefusalReason, text: str) -> AllocationRefusedError:
        return AllocationRefusedError(
            reason, self._group.name, f"ServiceGroup {self._group.name} {text}"
        )

    def _may_stay(self, address: Address) -> bool:
        """Whether the Service may keep an address, even if its range no longer exists.

        Also if it is a Node's or another host's by now, or if the network replaces its subnet,
        until it is evaluated again: the agents and the group say so.
        """
        if self._service.asks_reevaluation and (
            self._allocations.is_excluded(address) or self._is_replaced(address)
        ):
            return False
        if self._allocations.is_replaced(self._service.key, address):
            return address in self._service.explicit
        in_pool = self._group.range_of(address) is not None
        return address.version in self._service.families and (in_pool or self._is_of_group)

    def _is_replaced(self, address: Address) -> bool:
        """Whether the network replaces the address's subnet."""
        pool_range = self._group.range_of(address)
        return pool_range is not None and self._live.replaces(pool_range, self._group.pool_type)

    def _ranges(self, version: int) -> List[AddressRange]:
        return [r for r in self._group.ranges if r.first.version == version]

    def _has(self, version: int) -> bool:
        return any(a.version == version for a in self._chosen)

    def _take_explicit(self) -> None:
        """Take the requested addresses; several of one family must be from different ranges."""
        for address in self._service.explicit:
            self._check_explicit(address)
            self._chosen.append(address)

    def _check_explicit(self, address: Address) -> None:
        pool_range = self._group.range_of(address)
        if address.version not in self._service.families:
            raise no_such_family(self._group, address)
        is_new = address not in self._stays
        if is_new and self._allocations.is_of_a_node(address):
            raise address_of_a_node(self._group, address)
        if is_new and pool_range is None:
            raise self._refused(
                RefusalReason.UNKNOWN_POOL,
                f"has no range with {address}: request an address of its pool, or add a range",
            )
        if is_new and self._is_replaced(address) and not self._allocations.is_in_use(address):
            raise subnet_replaced(self._group, [address.version])
        conflict = self._allocations.conflict(
            address, self._service, across_namespaces=self._group.shares_across_namespaces
        )
        if conflict is not None:
            raise conflicting(self._group, address, conflict)
        if self._has(address.version) and not self._multi:
            raise self._refused(
                RefusalReason.MULTIPOOL_REFUSED,
                f"allocates one {FAMILIES[address.version]} address: request one only, or set the "
                f"annotation {MULTI_POOL_ANNOTATION} to true for one of each range",
            )
        if pool_range is not None and any(a in pool_range for a in self._chosen):
            raise self._refused(
                RefusalReason.MULTIPOOL_POOL_MISMATCH,
                f"allocates one address of each range, and {address} is the second of {pool_range}"
                ": request one of them only",
            )

    def _take_stays(self) -> None:
        """Keep the Service's addresses; only one of each family if it requests no more."""
        only_one = not self._multi and (
            self._service.multi_pool is False or bool(self._service.explicit)
        )
        for address in self._stays:
            pool_range = self._group.range_of(address)
            is_second = pool_range is not None and any(a in pool_range for a in self._chosen)
            if address in self._chosen or is_second:
                continue
            if not (only_one and self._has(address.version)):
                self._chosen.append(address)

    def _take_each(self) -> None:
        """Take an address of each range that a node can announce and that has none yet."""
        for version in self._service.families:
            for pool_range in self._ranges(version):
                kind = self._group.pool_type
                is_served = self._live.serves(pool_range, kind)
                is_lasting = is_served and not self._live.replaces(pool_range, kind)
                if not is_lasting or any(a in pool_range for a in self._chosen):
                    continue
                free = self._free([pool_range])
                if free is None:
                    self._partial.append(pool_range)
                else:
                    self._chosen.append(free)

    def _take_one(self) -> None:
        """Take an address of each family that has none yet."""
        for version in self._service.families:
            free = None if self._has(version) else self._free(self._ranges(version))
            if free is not None:
                self._chosen.append(free)

    def _free(self, ranges: List[AddressRange]) -> Optional[Address]:
        """Return a shareable address, else the lowest free one of the first or emptiest range.

        No new one where the network replaces the subnet.
        Raises AllocationRefusedError if others with the Service's sharing key have its ports.
        """
        across = self._group.shares_across_namespaces
        shared = [
            self._allocations.shareable(pool_range, self._service, across_namespaces=across)
            for pool_range in ranges
        ]
        for found in shared:
            if found is not None and not isinstance(found, AllocationConflict):
                return found
        for clash in shared:
            if isinstance(clash, AllocationConflict):
                raise conflicting(self._group, None, clash)
        if self._group.balance_pools:
            ranges = sorted(ranges, key=self._allocations.in_use)
        kind = self._group.pool_type
        lasting = (r for r in ranges if not self._live.replaces(r, kind))
        free = map(self._allocations.lowest_free, lasting)
        return next((address for address in free if address is not None), None)

    def _check_families(self) -> None:
        """Raise AllocationRefusedError if the Service needs a family that it got no address of."""
        missing = [v for v in self._service.families if not self._has(v)]
        if not missing or (self._chosen and not self._service.requires_dual_stack):
            return
        if not all(self._ranges(version) for version in missing):
            text = " and ".join(FAMILIES[version] for version in missing)
            raise none_free(self._group, missing, f"add a pool for {text}")
        if any(
            self._live.replaces(r, self._group.pool_type) for v in missing for r in self._ranges(v)
        ):
            raise subnet_replaced(self._group, missing)
        if self._multi and not self._partial:
            raise self._refused(
                RefusalReason.MULTIPOOL_REFUSED,
                "has no range of such a family with a node in its subnet: the Service gets its "
                "addresses as soon as there is one",
            )
        raise none_free(self._group, missing, "enlarge the pool or delete a Service")

    def _assignment(self) -> Assignment:
        return replace(
            assignment_of(self._service, self._group, self._chosen),
            is_multi=self._multi,
            partial=tuple(self._partial),
            is_balanced=self._group.balance_pools,
        )
