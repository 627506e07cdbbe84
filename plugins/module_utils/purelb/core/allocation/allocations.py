# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Who has which address: kept in step with the Services, and asked for what is free.

Taken addresses are kept as sorted numbers, so that finding the lowest free one of a range, or
counting those in use, takes a binary search: neither the size of a pool nor the number of its
addresses that are in use matters. One owner changes a allocations; deciding only reads it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Set, Tuple

from ..model import Address, AddressRange, Port, Service, ServiceKey


@dataclass(frozen=True)
class SharingTerms:
    """On what terms a Service has an address: it shares with equals that listen elsewhere."""

    sharing_key: Optional[str] = None
    ports: FrozenSet[Port] = frozenset()


@dataclass(frozen=True)
class AllocationConflict:
    """Another Service has the address, and it cannot be shared."""

    holder: ServiceKey
    # Ports that both listen on; none where the sharing keys differ.
    ports: Tuple[Port, ...] = ()


class Allocations:
    """Addresses and the Services that have them."""

    def __init__(self) -> None:
        self._claims: Dict[Address, Dict[ServiceKey, SharingTerms]] = {}
        self._held: Dict[ServiceKey, FrozenSet[Address]] = {}
        self._numbers: Mapping[int, List[int]] = {4: [], 6: []}
        self._shared: Dict[str, Set[Address]] = {}

    def __len__(self) -> int:
        """Number of addresses that some Service has."""
        return len(self._claims)

    def of(self, key: ServiceKey) -> FrozenSet[Address]:
        """Addresses that the Service has."""
        return self._held.get(key, frozenset())

    def holders(self, address: Address) -> Tuple[ServiceKey, ...]:
        """Services that have the address."""
        return tuple(self._claims.get(address, ()))

    def hold(self, service: Service, addresses: Iterable[Address]) -> FrozenSet[Address]:
        """Let the Service have exactly these addresses on its terms of now; those it had to go."""
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
        """Let the Service have nothing; what it had."""
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
        """Why the Service cannot have the address, or None if it can."""
        for holder, claim in self._claims.get(address, {}).items():
            if holder == service.key:
                continue
            if service.sharing_key is None or claim.sharing_key != service.sharing_key:
                return AllocationConflict(holder)
            if claim.ports & service.ports:
                return AllocationConflict(holder, tuple(sorted(claim.ports & service.ports)))
        return None

    def unclaimed(self, service: Service, addresses: Iterable[Address]) -> Tuple[Address, ...]:
        """Those of the addresses that no other Service keeps the Service from."""
        return tuple(a for a in addresses if self.conflict(a, service) is None)

    def shareable(self, one: AddressRange, service: Service) -> Optional[Address]:
        """The lowest address of the range that others have and the Service can share."""
        if service.sharing_key is None:
            return None
        known = self._shared.get(service.sharing_key, ())
        fit = (a for a in known if a in one and self.conflict(a, service) is None)
        return min(fit, key=int, default=None)

    def in_use(self, one: AddressRange) -> int:
        """Number of the range's addresses that some Service has."""
        numbers = self._numbers[one.first.version]
        return bisect_right(numbers, int(one.last)) - bisect_left(numbers, int(one.first))

    def lowest_free(self, one: AddressRange) -> Optional[Address]:
        """The lowest address of the range that nobody has.

        Below the first gap the numbers that are taken follow each other, above it they do not:
        the border between the two is found by halving.
        """
        numbers = self._numbers[one.first.version]
        start = bisect_left(numbers, int(one.first))
        low, high = start, bisect_right(numbers, int(one.last))
        while low < high:
            middle = (low + high) // 2
            if numbers[middle] - int(one.first) == middle - start:
                low = middle + 1
            else:
                high = middle
        offset = low - start
        return one.first + offset if offset < one.size else None
