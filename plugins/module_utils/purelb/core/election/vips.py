# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""VIPs: the addresses that PureLB gave to Services, each with all Services that share it.

Whether, where and how an address is announced is up to the ServiceGroup that holds it. One that no
group holds is announced only if its Service had it while one did. An agent knows that if it saw it,
or if the Lease of a node says so, which only agents write: so a pool that is made smaller cuts
nothing off, and neither a tenant nor who has stolen the allocator's token has anything announced
that an operator has not put into a pool.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import chain
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ..model import Address, Announcement, PoolType, Service, ServiceGroup, ServiceKey
from .claims import is_served
from .outside import OutsideAddress, outside_text, read_outside


@dataclass(frozen=True)
class Vip:
    """An address and the Services that use it.

    `is_in_pool`: a group holds it, or did while one of its Services already had it. `prefixlen`:
    from its pool; None if that is not known; on the dummy interface it is a single host then.
    `everywhere`: a Service takes traffic on every node, with or without endpoints; used for remote
    addresses only. `has_affinity`: all its Services prefer a node with a ready endpoint; used for
    local ones only.
    """

    address: Address
    services: Tuple[ServiceKey, ...]
    pool_type: PoolType
    prefixlen: Optional[int]
    skip_dad: bool
    everywhere: bool = True
    has_affinity: bool = False
    announcing: Tuple[Announcement, ...] = ()
    is_in_pool: bool = True

    def after(self, before: Optional[Vip]) -> Vip:
        """Return it as it was announced before, if no group holds it any more."""
        if self.is_in_pool or before is None or not before.is_in_pool:
            return self
        if set(before.services).isdisjoint(self.services):
            return self
        return replace(
            self,
            pool_type=before.pool_type,
            prefixlen=before.prefixlen,
            skip_dad=before.skip_dad,
            is_in_pool=True,
        )

    @property
    def depends_on_endpoints(self) -> bool:
        """Whether the decision depends on the nodes with ready endpoints."""
        return self.has_affinity if self.pool_type is PoolType.LOCAL else not self.everywhere

    def endpoint_nodes(self, endpoints: Mapping[ServiceKey, FrozenSet[str]]) -> FrozenSet[str]:
        """Return the nodes with a ready endpoint of any of its Services."""
        none: FrozenSet[str] = frozenset()
        return none.union(*(endpoints.get(key, none) for key in self.services))


class VipIndex:
    """All VIPs, kept up to date from single changes of Services.

    `vips` is replaced on each change and never modified. An unchanged VIP stays the same object, so
    its identity shows that nothing about it has changed.
    """

    def __init__(self) -> None:
        self.vips: Mapping[Address, Vip] = {}
        self._groups: Tuple[ServiceGroup, ...] = ()
        self._services: Dict[ServiceKey, Service] = {}
        self._owners: Dict[Address, Set[ServiceKey]] = defaultdict(set)
        # Those in no pool any more: known to this agent, and what Leases say of them.
        self._outside: Dict[Address, Vip] = {}
        self._heard: FrozenSet[str] = frozenset()
        self._told: Mapping[Address, Vip] = {}

    @property
    def outside(self) -> str:
        """The addresses that are in no pool any more, as this agent lists them."""
        known = self._outside.items()
        return outside_text(OutsideAddress(a, v.pool_type, v.services[0]) for a, v in known)

    def change(self, services: Mapping[ServiceKey, Optional[Service]]) -> None:
        """Apply the current state of these Services; None means deleted."""
        # A dict, as a set of addresses has a random order.
        touched: Dict[Address, None] = {}
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
            touched.update(dict.fromkeys((*old, *new)))
        self._revise(touched)

    def regroup(self, groups: Iterable[ServiceGroup]) -> None:
        """Replace all ServiceGroups."""
        self._groups = _ranked(groups)
        self._revise(self._owners)

    def hear(self, texts: FrozenSet[str]) -> None:
        """Take what the Leases say of addresses that are in no pool any more."""
        if texts == self._heard:
            return
        told: Dict[Address, Vip] = {}
        for known in chain.from_iterable(map(read_outside, sorted(texts))):
            other = told.get(known.address)
            services = (known.service, *(other.services if other else ()))
            told[known.address] = Vip(known.address, services, known.pool_type, None, False)
        self._heard, self._told = texts, told
        self._revise(address for address in told if address in self._owners)

    def _revise(self, addresses: Iterable[Address]) -> None:
        vips = dict(self.vips)
        for address in tuple(addresses):
            owners = [self._services[key] for key in self._owners[address]]
            if not owners:
                vips.pop(address, None)
                self._outside.pop(address, None)
                del self._owners[address]
                continue
            stated = _vip(address, owners, self._groups)
            vip = stated.after(vips.get(address)).after(self._told.get(address))
            if not _is_ours(vip, owners):
                vips.pop(address, None)
                self._outside.pop(address, None)
                continue
            if vip.is_in_pool and not stated.is_in_pool:
                self._outside[address] = vip
            else:
                self._outside.pop(address, None)
            if vip != vips.get(address):
                vips[address] = vip
        self.vips = vips


def vips_of(services: Iterable[Service], groups: Sequence[ServiceGroup] = ()) -> Tuple[Vip, ...]:
    """Return the VIPs of these Services, sorted by address."""
    ranked = _ranked(groups)
    by_address: Dict[Address, List[Service]] = defaultdict(list)
    for service in services:
        if is_served(service):
            for address in service.addresses:
                by_address[address].append(service)
    ordered = sorted(by_address, key=lambda a: (a.version, int(a)))
    vips = (_vip(address, by_address[address], ranked) for address in ordered)
    return tuple(vip for vip in vips if _is_ours(vip, by_address[vip.address]))


def _is_ours(vip: Vip, owners: Iterable[Service]) -> bool:
    """Whether a pool holds the address, or a Service says that it is of a former one.

    Others are not announced, but reported; what another program has given is neither.
    """
    return vip.is_in_pool or any(service.allocated_by_us for service in owners)


def _ranked(groups: Iterable[ServiceGroup]) -> Tuple[ServiceGroup, ...]:
    """Return the groups in the order in which they claim an address.

    Of overlapping groups the allocator uses the oldest. What the status of a group says, of which
    an external IPAM allocates the addresses, never counts against a pool.
    """
    return tuple(sorted(groups, key=lambda g: (g.source is not None, g.created, g.name)))


def _group_of(
    address: Address, owners: List[Service], groups: Sequence[ServiceGroup]
) -> Optional[ServiceGroup]:
    """Return the group that contains the address, or whose IPAM gave it out."""
    allocated_from = {service.allocated_from for service in owners}
    holding = (g for g in groups if g.range_of(address))
    giving = (g for g in groups if g.source is not None and g.name in allocated_from)
    return next(chain(holding, giving), None)


def _vip(address: Address, owners: List[Service], groups: Sequence[ServiceGroup]) -> Vip:
    group = _group_of(address, owners, groups)
    stated = next((s.pool_type for s in owners if s.pool_type), PoolType.LOCAL)
    entries = {e for s in owners for e in s.announcing.get(address.version, ())}
    return Vip(
        address=address,
        services=tuple(sorted((s.key for s in owners), key=str)),
        pool_type=group.pool_type if group else stated,
        prefixlen=group.prefixlen_of(address) if group else None,
        skip_dad=group is not None and group.skip_dad,
        everywhere=not all(s.is_external_local for s in owners),
        has_affinity=all(s.has_affinity for s in owners),
        # An entry without an address, as older agents wrote it, applies to the whole family.
        announcing=tuple(sorted((e for e in entries if e.address in (address, None)), key=str)),
        is_in_pool=group is not None,
    )
