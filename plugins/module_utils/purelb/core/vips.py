# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The addresses that Services have from us, each once, with all the Services that share it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from .model import Address, Announcement, PoolType, Service, ServiceGroup, ServiceKey


@dataclass(frozen=True)
class Vip:
    """An address and the Services that it belongs to.

    `prefixlen` is what its pool says; None where no pool holds it (any more).
    """

    address: Address
    services: Tuple[ServiceKey, ...]
    pool_type: PoolType
    prefixlen: Optional[int]
    skip_dad: bool
    announcing: Tuple[Announcement, ...] = ()


def vips_of(services: Iterable[Service], groups: Sequence[ServiceGroup] = ()) -> Tuple[Vip, ...]:
    """All addresses that the allocator gave to these Services, in order of address."""
    by_address: Dict[Address, List[Service]] = defaultdict(list)
    for service in services:
        if service.is_load_balancer and service.allocated_by_us:
            for address in service.addresses:
                by_address[address].append(service)
    return tuple(
        _vip(address, by_address[address], groups)
        for address in sorted(by_address, key=lambda a: (a.version, int(a)))
    )


def _vip(address: Address, owners: List[Service], groups: Sequence[ServiceGroup]) -> Vip:
    group = next((g for g in groups if g.range_of(address)), None)
    found = group.range_of(address) if group else None
    stated = next((s.pool_type for s in owners if s.pool_type), None)
    entries = {e for s in owners for e in s.announcing.get(address.version, ())}
    return Vip(
        address=address,
        services=tuple(sorted((s.key for s in owners), key=str)),
        pool_type=stated or (group.pool_type if group else PoolType.LOCAL),
        prefixlen=found.prefixlen if found else None,
        skip_dad=any(s.skip_dad for s in owners),
        # An entry without an address, as older agents wrote it, speaks for all of its family.
        announcing=tuple(sorted((e for e in entries if e.address in (address, None)), key=str)),
    )
