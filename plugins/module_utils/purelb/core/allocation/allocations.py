# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The ledger: which Service has which address, from which group, and which addresses are free.

Addresses in use are kept as sorted numbers, so finding the lowest free one of a range, or counting
those in use, is a binary search: its cost does not depend on the size or use of the pool. One owner
modifies the allocations; decisions only read them.

A Service that has an address keeps it: of two Services that have one and cannot share it any
longer, the later one loses it. Whether an address may be shared across namespaces is asked only of
newcomers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Set, Tuple, Union

from ..model import Address, AddressRange, Port, Service, ServiceKey


@dataclass(frozen=True)
class SharingTerms:
    """A Service shares its address with others of equal key and different ports."""

    namespace: str
    sharing_key: Optional[str] = None
    ports: FrozenSet[Port] = frozenset()


@dataclass(frozen=True)
class AllocationConflict:
    """Another Service that has the address and cannot share it."""

    holder: ServiceKey
    # Ports that both use; empty if they do not share by key.
    ports: Tuple[Port, ...] = ()


@dataclass(frozen=True)
class HeldAddresses:
    """What a Service has: the addresses that it may keep, and the name of the group that gave them.

    They are those in its status, then those that were allocated to it but not written yet.
    """

    addresses: Tuple[Address, ...] = ()
    origin: Optional[str] = None


class AddressTakenError(ValueError):
    """An address was to be entered for a Service while another one has it."""


class Allocations:
    """The addresses in use and the Services that have them."""

    def __init__(self) -> None:
        # The Services of an address in the order in which they came.
        self._claims: Dict[Address, Dict[ServiceKey, SharingTerms]] = {}
        self._held: Dict[ServiceKey, FrozenSet[Address]] = {}
        self._groups: Dict[ServiceKey, str] = {}
        self._numbers: Mapping[int, List[int]] = {4: [], 6: []}
        self._shared: Dict[str, Set[Address]] = {}
        # Addresses that Nodes have, and that hosts outside the cluster have; both together.
        self._of_nodes: FrozenSet[Address] = frozenset()
        self._duplicates: FrozenSet[Address] = frozenset()
        self._excluded: FrozenSet[Address] = frozenset()
        self._replaced: Set[Tuple[ServiceKey, Address]] = set()

    def __len__(self) -> int:
        """Return the number of addresses in use."""
        return len(self._claims)

    def of(self, key: ServiceKey) -> FrozenSet[Address]:
        """Return the addresses of the Service."""
        return self._held.get(key, frozenset())

    def given(self, key: ServiceKey) -> FrozenSet[Address]:
        """Return the addresses of the Service if a group gave them, not another program."""
        return self.of(key) if key in self._groups else frozenset()

    def holders(self, address: Address) -> Tuple[ServiceKey, ...]:
        """Return the Services that have the address."""
        return tuple(self._claims.get(address, ()))

    def group_of(self, key: ServiceKey) -> Optional[str]:
        """Return the name of the group that gave the Service its addresses.

        Empty if that is not known any more; None if no group gave them.
        """
        return self._groups.get(key)

    def given_by(self, group: str) -> FrozenSet[Address]:
        """Return the addresses that Services have from a group; it looks at every Service."""
        held = (self.of(key) for key, name in self._groups.items() if name == group)
        return frozenset().union(*held)

    def exclude_nodes(self, addresses: Iterable[Address]) -> None:
        """Set the addresses that no Service may get, as a Node has them; they count as in use.

        A Service that has one already keeps it.
        """
        self._of_nodes = frozenset(addresses)
        self._exclude(self._of_nodes | self._duplicates)

    def set_aside(self, addresses: Iterable[Address]) -> FrozenSet[Address]:
        """Set the addresses that a Service gets only if it asks for them, as another host has them.

        They count as in use. Returns those that are new.
        """
        before, self._duplicates = self._duplicates, frozenset(addresses)
        self._exclude(self._of_nodes | self._duplicates)
        return self._duplicates - before

    def replace(self, address: Address) -> None:
        """Let no Service keep this address that has it and does not ask for it."""
        self._replaced.update((key, address) for key in self.holders(address))

    def is_replaced(self, key: ServiceKey, address: Address) -> bool:
        """Whether the Service must get another address for this one unless it asks for it."""
        return (key, address) in self._replaced

    def _exclude(self, wanted: FrozenSet[Address]) -> None:
        for address in wanted - self._excluded - self._claims.keys():
            insort(self._numbers[address.version], int(address))
        for address in self._excluded - wanted - self._claims.keys():
            self._free_number(address)
        self._excluded = wanted

    def is_excluded(self, address: Address) -> bool:
        """Whether the address is given to no Service that does not ask for it."""
        return address in self._excluded

    def is_of_a_node(self, address: Address) -> bool:
        """Whether a Node has the address, so that no Service may get it."""
        return address in self._of_nodes

    def hold(
        self, service: Service, addresses: Iterable[Address], group: Optional[str] = None
    ) -> FrozenSet[Address]:
        """Set the Service's addresses, with its current sharing terms; return the freed ones.

        `group` gave them, see `group_of`; None leaves what is known. Raises AddressTakenError, and
        changes nothing, if another Service has an address that is new to this one, and its key and
        ports do not fit.
        """
        terms = SharingTerms(service.key.namespace, service.sharing_key, service.ports)
        before, wanted = self.of(service.key), frozenset(addresses)
        for address in wanted - before:
            conflict = self.conflict(address, service, across_namespaces=True)
            if conflict is not None:
                raise AddressTakenError(f"{conflict.holder} has {address}, not {service.key}")
        for address in before - wanted:
            self._leave(service.key, address)
        for address in wanted:
            self._enter(service.key, address, terms)
        if not wanted:
            self._forget(service.key)
            return before
        self._held[service.key] = wanted
        if group is not None:
            self._groups[service.key] = group
        return before - wanted

    def release(self, key: ServiceKey) -> FrozenSet[Address]:
        """Remove the Service and return its addresses."""
        freed = self.of(key)
        for address in freed:
            self._leave(key, address)
        self._forget(key)
        return freed

    def _forget(self, key: ServiceKey) -> None:
        self._held.pop(key, None)
        self._groups.pop(key, None)

    def _enter(self, key: ServiceKey, address: Address, terms: SharingTerms) -> None:
        """Enter a Service after those that have the address; one of them stays in its place."""
        claims = self._claims.setdefault(address, {})
        if not claims and address not in self._excluded:
            insort(self._numbers[address.version], int(address))
        before = claims.get(key)
        claims[key] = terms
        if before is not None:
            self._unshare(address, before)
        if terms.sharing_key is not None:
            self._shared.setdefault(terms.sharing_key, set()).add(address)

    def _leave(self, key: ServiceKey, address: Address) -> None:
        claims = self._claims[address]
        terms = claims.pop(key)
        self._replaced.discard((key, address))
        if not claims:
            del self._claims[address]
            if address not in self._excluded:
                self._free_number(address)
        self._unshare(address, terms)

    def _free_number(self, address: Address) -> None:
        numbers = self._numbers[address.version]
        del numbers[bisect_left(numbers, int(address))]

    def _unshare(self, address: Address, terms: SharingTerms) -> None:
        """Forget that an address is shared by a key, if no Service has that key there any more."""
        shared, claims = terms.sharing_key, self._claims.get(address, {})
        if shared is not None and all(c.sharing_key != shared for c in claims.values()):
            self._shared[shared].discard(address)
            if not self._shared[shared]:
                del self._shared[shared]

    def conflict(
        self, address: Address, service: Service, *, across_namespaces: bool
    ) -> Optional[AllocationConflict]:
        """Return the Service that keeps this one from having the address, or None.

        For one that has the address already, only those that came before it count, wherever they
        are.
        """
        claims = self._claims.get(address, {})
        is_new = service.key not in claims
        for holder, terms in claims.items():
            if holder == service.key:
                return None
            is_far = is_new and not across_namespaces and terms.namespace != service.key.namespace
            if is_far or service.sharing_key is None or terms.sharing_key != service.sharing_key:
                return AllocationConflict(holder)
            if terms.ports & service.ports:
                return AllocationConflict(holder, tuple(sorted(terms.ports & service.ports)))
        return None

    def unclaimed(self, service: Service, addresses: Iterable[Address]) -> Tuple[Address, ...]:
        """Return those addresses that the Service may keep, of those that it shows or has."""
        return tuple(
            a for a in addresses if self.conflict(a, service, across_namespaces=True) is None
        )

    def shareable(
        self, pool_range: AddressRange, service: Service, *, across_namespaces: bool
    ) -> Union[Address, AllocationConflict, None]:
        """Return the lowest address of the range that the Service can share by its key.

        If others have its key, and its ports everywhere, the conflict at their lowest address; None
        if no Service has its key.
        """
        known = self._shared.get(service.sharing_key or "", ())
        clash: Optional[AllocationConflict] = None
        for address in sorted((a for a in known if a in pool_range), key=int):
            if address in self._excluded:
                continue
            conflict = self.conflict(address, service, across_namespaces=across_namespaces)
            if conflict is None:
                return address
            if conflict.ports and clash is None:
                clash = conflict
        return clash

    def in_use(self, pool_range: AddressRange) -> int:
        """Return how many addresses of the range are in use, by Services, Nodes and others."""
        numbers = self._numbers[pool_range.first.version]
        return bisect_right(numbers, int(pool_range.last)) - bisect_left(
            numbers, int(pool_range.first)
        )

    def spare(self, pool_range: AddressRange) -> int:
        """Return how many addresses of the range no Service and no Node has."""
        aside = sum(a in pool_range and not self.is_in_use(a) for a in self._duplicates)
        return pool_range.size - self.in_use(pool_range) + aside

    def is_in_use(self, address: Address) -> bool:
        """Whether a Service or a Node has the address."""
        return address in self._claims or address in self._of_nodes

    def aside(self, pool_range: AddressRange) -> Tuple[Address, ...]:
        """Return the addresses of the range that are set aside, in their order."""
        return tuple(sorted((a for a in self._duplicates if a in pool_range), key=int))

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
