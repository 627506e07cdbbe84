# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which Service has which address, and which addresses are free.

Addresses in use are kept as sorted numbers, so finding the lowest free one of a range, or counting
those in use, is a binary search: its cost does not depend on the size or use of the pool. One owner
modifies the allocations; decisions only read them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Set, Tuple

from ..model import Address, AddressRange, Port, Service, ServiceKey


@dataclass(frozen=True)
class SharingTerms:
    """A Service shares its address with others of equal key and different ports."""

    sharing_key: Optional[str] = None
    ports: FrozenSet[Port] = frozenset()


@dataclass(frozen=True)
class AllocationConflict:
    """Another Service that has the address and cannot share it."""

    holder: ServiceKey
    # Ports that both use; empty if the sharing keys differ.
    ports: Tuple[Port, ...] = ()


class Allocations:
    """The addresses in use and the Services that have them."""

    def __init__(self) -> None:
        self._claims: Dict[Address, Dict[ServiceKey, SharingTerms]] = {}
        self._held: Dict[ServiceKey, FrozenSet[Address]] = {}
        self._numbers: Mapping[int, List[int]] = {4: [], 6: []}
        self._shared: Dict[str, Set[Address]] = {}

    def __len__(self) -> int:
        """Return the number of addresses in use."""
        return len(self._claims)

    def of(self, key: ServiceKey) -> FrozenSet[Address]:
        """Return the addresses of the Service."""
        return self._held.get(key, frozenset())

    def holders(self, address: Address) -> Tuple[ServiceKey, ...]:
        """Return the Services that have the address."""
        return tuple(self._claims.get(address, ()))

    def hold(self, service: Service, addresses: Iterable[Address]) -> FrozenSet[Address]:
        """Set the Service's addresses, with its current sharing terms; return the freed ones."""
        claim = SharingTerms(service.sharing_key, service.ports)
        wanted = frozenset(addresses)
        freed = self.of(service.key) - wanted
        for address in freed:
            self._leave(service.key, address)
        for address in wanted:
            self._leave(service.key, address)
            self._enter(service.key, address, claim)
        if wanted:
            self._held[service.key] = wanted
        else:
            self._held.pop(service.key, None)
        return freed

    def release(self, key: ServiceKey) -> FrozenSet[Address]:
        """Remove the Service and return its addresses."""
        freed = self._held.pop(key, frozenset())
        for address in freed:
            self._leave(key, address)
        return freed

    def _enter(self, key: ServiceKey, address: Address, claim: SharingTerms) -> None:
        claims = self._claims.setdefault(address, {})
        if not claims:
            insort(self._numbers[address.version], int(address))
        claims[key] = claim
        if claim.sharing_key is not None:
            self._shared.setdefault(claim.sharing_key, set()).add(address)

    def _leave(self, key: ServiceKey, address: Address) -> None:
        claims = self._claims.get(address, {})
        claim = claims.pop(key, None)
        if claim is None:
            return
        if not claims:
            del self._claims[address]
            numbers = self._numbers[address.version]
            del numbers[bisect_left(numbers, int(address))]
        shared = claim.sharing_key
        if shared is not None and all(c.sharing_key != shared for c in claims.values()):
            self._shared[shared].discard(address)
            if not self._shared[shared]:
                del self._shared[shared]

    def conflict(self, address: Address, service: Service) -> Optional[AllocationConflict]:
        """Return the Service that keeps this one from having the address, or None."""
        for holder, claim in self._claims.get(address, {}).items():
            if holder == service.key:
                continue
            if service.sharing_key is None or claim.sharing_key != service.sharing_key:
                return AllocationConflict(holder)
            if claim.ports & service.ports:
                return AllocationConflict(holder, tuple(sorted(claim.ports & service.ports)))
        return None

    def unclaimed(self, service: Service, addresses: Iterable[Address]) -> Tuple[Address, ...]:
        """Return those of the addresses that the Service can have."""
        return tuple(a for a in addresses if self.conflict(a, service) is None)

    def shareable(self, pool_range: AddressRange, service: Service) -> Optional[Address]:
        """Return the lowest address of the range that the Service can share, or None."""
        if service.sharing_key is None:
            return None
        known = self._shared.get(service.sharing_key, ())
        fit = (a for a in known if a in pool_range and self.conflict(a, service) is None)
        return min(fit, key=int, default=None)

    def in_use(self, pool_range: AddressRange) -> int:
        """Return how many addresses of the range are in use."""
        numbers = self._numbers[pool_range.first.version]
        return bisect_right(numbers, int(pool_range.last)) - bisect_left(
            numbers, int(pool_range.first)
        )

    def lowest_free(self, pool_range: AddressRange) -> Optional[Address]:
        """Return the lowest free address of the range, or None.

        The numbers below the first gap are consecutive, so the gap is found by bisection.
        """
        numbers = self._numbers[pool_range.first.version]
        start = bisect_left(numbers, int(pool_range.first))
        low, high = start, bisect_right(numbers, int(pool_range.last))
        while low < high:
            middle = (low + high) // 2
            if numbers[middle] - int(pool_range.first) == middle - start:
                low = middle + 1
            else:
                high = middle
        offset = low - start
        return pool_range.first + offset if offset < pool_range.size else None
