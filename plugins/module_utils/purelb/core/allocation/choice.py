# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The addresses of one Service from the ranges of one group, put together step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import FrozenSet, List, Optional, Tuple

from ..model import Address, AddressRange, Network, PoolType, Service, ServiceGroup
from ..names import FAMILIES, MULTI_POOL_ANNOTATION
from .allocations import Allocations
from .outcomes import Assignment, Keep, Outcome, assignment_of, is_done
from .refusals import AllocationRefusedError, RefusalReason, conflicting, no_such_family, none_free


@dataclass(frozen=True)
class Live:
    """Where addresses can be announced now: subnets of live Leases, and whether there is one."""

    subnets: FrozenSet[Network] = frozenset()
    has_nodes: bool = False

    def serves(self, one: AddressRange, pool_type: PoolType) -> bool:
        """Whether a node could announce addresses of the range."""
        if pool_type is PoolType.REMOTE:
            return self.has_nodes
        return any(one.first in subnet or one.last in subnet for subnet in self.subnets)


class AddressSelector:
    """Explicit addresses first, then what the Service has, then what it lacks."""

    def __init__(
        self,
        service: Service,
        group: ServiceGroup,
        allocations: Allocations,
        live: Live,
        shown: Tuple[Address, ...],
    ) -> None:
        self._service = service
        self._group = group
        self._allocations = allocations
        self._live = live
        asked = service.multi_pool
        self._multi = group.multi_pool if asked is None else asked
        self._chosen: List[Address] = []
        self._partial: List[AddressRange] = []
        self._stays = [a for a in shown if self._may_stay(a)]

    def outcome(self) -> Outcome:
        """What is to happen; RefusedError if the Service cannot be served."""
        if self._multi and self._group.balance_pools:
            raise self._refused(
                RefusalReason.MULTIPOOL_REFUSED,
                f"takes each address from one range (balancePools), and the annotation "
                f"{MULTI_POOL_ANNOTATION} asks for one of each: remove one of the two",
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
        """Whether the Service may go on with an address, though its range may be gone."""
        in_pool = self._group.range_of(address) is not None
        is_of_group = (
            self._service.allocated_from == self._group.name and not self._service.asks_reevaluation
        )
        return address.version in self._service.families and (in_pool or is_of_group)

    def _ranges(self, version: int) -> List[AddressRange]:
        return [r for r in self._group.ranges if r.first.version == version]

    def _has(self, version: int) -> bool:
        return any(a.version == version for a in self._chosen)

    def _take_explicit(self) -> None:
        """Those that the owner asks for; more than one of a family only from different ranges."""
        for address in self._service.explicit:
            self._check_explicit(address)
            self._chosen.append(address)

    def _check_explicit(self, address: Address) -> None:
        one = self._group.range_of(address)
        if address.version not in self._service.families:
            raise no_such_family(self._group, address)
        if one is None and address not in self._stays:
            raise self._refused(
                RefusalReason.UNKNOWN_POOL,
                f"has no range with {address}: ask for an address of its pool, or add a range",
            )
        conflict = self._allocations.conflict(address, self._service)
        if conflict is not None:
            raise conflicting(self._group, address, conflict)
        if self._has(address.version) and not self._multi:
            raise self._refused(
                RefusalReason.MULTIPOOL_REFUSED,
                f"gives one {FAMILIES[address.version]} address: ask for one only, or set the "
                f"annotation {MULTI_POOL_ANNOTATION} to true for one of each range",
            )
        if one is not None and any(a in one for a in self._chosen):
            raise self._refused(
                RefusalReason.MULTIPOOL_POOL_MISMATCH,
                f"gives one address of each range, and {address} is the second of {one}: ask for "
                "one of them only",
            )

    def _take_stays(self) -> None:
        """What the Service has; one of a family if it has said that it wants no more."""
        only_one = not self._multi and (
            self._service.multi_pool is False or bool(self._service.explicit)
        )
        for address in self._stays:
            one = self._group.range_of(address)
            is_second = one is not None and any(a in one for a in self._chosen)
            if address in self._chosen or is_second:
                continue
            if not (only_one and self._has(address.version)):
                self._chosen.append(address)

    def _take_each(self) -> None:
        """One of each range that has nodes and of which there is none yet."""
        for version in self._service.families:
            for one in self._ranges(version):
                is_served = self._live.serves(one, self._group.pool_type)
                if not is_served or any(a in one for a in self._chosen):
                    continue
                free = self._free([one])
                if free is None:
                    self._partial.append(one)
                else:
                    self._chosen.append(free)

    def _take_one(self) -> None:
        """One of each family of which there is none yet."""
        for version in self._service.families:
            free = None if self._has(version) else self._free(self._ranges(version))
            if free is not None:
                self._chosen.append(free)

    def _free(self, ranges: List[AddressRange]) -> Optional[Address]:
        """An address to share, else the lowest free one of the first range, or of the emptiest."""
        shared = (self._allocations.shareable(one, self._service) for one in ranges)
        if self._group.balance_pools:
            ranges = sorted(ranges, key=self._allocations.in_use)
        free = (self._allocations.lowest_free(one) for one in ranges)
        found = (address for source in (shared, free) for address in source)
        return next((address for address in found if address is not None), None)

    def _check_families(self) -> None:
        """Refuse if the Service cannot do without the families that the group has nothing for."""
        missing = [v for v in self._service.families if not self._has(v)]
        if not missing or (self._chosen and not self._service.requires_dual_stack):
            return
        if not all(self._ranges(version) for version in missing):
            text = " and ".join(FAMILIES[version] for version in missing)
            raise none_free(self._group, missing, f"add a pool for {text}")
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
