# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The addresses that Services have from us, each once, with all the Services that share it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ..model import Address, Announcement, PoolType, Service, ServiceGroup, ServiceKey
from .claims import is_served


@dataclass(frozen=True)
class Vip:
    """An address and the Services that it belongs to.

    `prefixlen` is what its pool says; None where no pool holds it (any more). `everywhere`: a
    Service takes traffic on each node, with or without endpoints (only remote addresses ask).
    `has_affinity`: all its Services prefer a node with a ready endpoint (only local ones ask).
    """

    address: Address
    services: Tuple[ServiceKey, ...]
    pool_type: PoolType
    prefixlen: Optional[int]
    skip_dad: bool
    everywhere: bool = True
    has_affinity: bool = False
    announcing: Tuple[Announcement, ...] = ()

    @property
    def asks_endpoints(self) -> bool:
        """Whether it matters where the Services' ready endpoints are."""
        return self.has_affinity if self.pool_type is PoolType.LOCAL else not self.everywhere

    def near(self, endpoints: Mapping[ServiceKey, FrozenSet[str]]) -> FrozenSet[str]:
        """Nodes with a ready endpoint of its Services."""
        nobody: FrozenSet[str] = frozenset()
        return nobody.union(*(endpoints.get(key, nobody) for key in self.services))


class VipIndex:
    """The addresses of Services as these come, change and go, one at a time.

    `vips` is replaced, never changed, and a VIP that stays as it is stays the same record: who
    remembers one can tell by identity that nothing happened to it.
    """

    def __init__(self) -> None:
        self.vips: Mapping[Address, Vip] = {}
        self._groups: Tuple[ServiceGroup, ...] = ()
        self._services: Dict[ServiceKey, Service] = {}
        self._owners: Dict[Address, Set[ServiceKey]] = defaultdict(set)

    def change(self, services: Mapping[ServiceKey, Optional[Service]]) -> None:
        """Take these Services as they are now; None is gone."""
        touched: Set[Address] = set()
        for key, service in services.items():
            before = self._services.pop(key, None)
            old = before.addresses if before else ()
            new = service.addresses if service and is_served(service) else ()
            for address in old:
                self._owners[address].discard(key)
            for address in new:
                self._owners[address].add(key)
            if service and new:
                self._services[key] = service
            touched.update(old, new)
        self._revise(touched)

    def regroup(self, groups: Iterable[ServiceGroup]) -> None:
        """Take these as all ServiceGroups."""
        self._groups = tuple(groups)
        self._revise(self._owners)

    def _revise(self, addresses: Iterable[Address]) -> None:
        vips = dict(self.vips)
        for address in tuple(addresses):
            owners = [self._services[key] for key in self._owners[address]]
            if not owners:
                vips.pop(address, None)
                del self._owners[address]
                continue
            vip = _vip(address, owners, self._groups)
            if vip != vips.get(address):
                vips[address] = vip
        self.vips = vips


def vips_of(services: Iterable[Service], groups: Sequence[ServiceGroup] = ()) -> Tuple[Vip, ...]:
    """All addresses that the allocator gave to these Services, in order of address."""
    by_address: Dict[Address, List[Service]] = defaultdict(list)
    for service in services:
        if is_served(service):
            for address in service.addresses:
                by_address[address].append(service)
    return tuple(
        _vip(address, by_address[address], groups)
        for address in sorted(by_address, key=lambda a: (a.version, int(a)))
    )


def _group_of(
    address: Address, owners: List[Service], groups: Sequence[ServiceGroup]
) -> Optional[ServiceGroup]:
    """The group that holds the address, or one whose status is yet to name it."""
    allocated_from = {service.allocated_from for service in owners}
    holding = (g for g in groups if g.range_of(address))
    giving = (g for g in groups if g.source is not None and g.name in allocated_from)
    return next(chain(holding, giving), None)


def _vip(address: Address, owners: List[Service], groups: Sequence[ServiceGroup]) -> Vip:
    group = _group_of(address, owners, groups)
    stated = next((s.pool_type for s in owners if s.pool_type), None)
    entries = {e for s in owners for e in s.announcing.get(address.version, ())}
    return Vip(
        address=address,
        services=tuple(sorted((s.key for s in owners), key=str)),
        pool_type=stated or (group.pool_type if group else PoolType.LOCAL),
        prefixlen=group.prefixlen_of(address) if group else None,
        skip_dad=any(s.skip_dad for s in owners),
        everywhere=not all(s.is_external_local for s in owners),
        has_affinity=all(s.has_affinity for s in owners),
        # An entry without an address, as older agents wrote it, speaks for all of its family.
        announcing=tuple(sorted((e for e in entries if e.address in (address, None)), key=str)),
    )
