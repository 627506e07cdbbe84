# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Addresses of Services that are in no pool any more, as agents tell of them in their Leases.

What is not said is not left to other nodes either: the mask, and whether duplicate address
detection can be skipped. What cannot be read is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Iterator

from ..addresses import parse_address
from ..model import Address, PoolType, ServiceKey
from ..names import MAX_OUTSIDE


@dataclass(frozen=True)
class OutsideAddress:
    """An address that an agent knew in a pool of this type while this Service had it."""

    address: Address
    pool_type: PoolType
    service: ServiceKey


def outside_text(known: Iterable[OutsideAddress]) -> str:
    """Return the addresses as they stand in a Lease, the first MAX_OUTSIDE of them."""
    first = sorted(known, key=lambda k: (k.address.version, int(k.address)))[:MAX_OUTSIDE]
    return " ".join(f"{k.address},{k.pool_type.value},{k.service}" for k in first)


def read_outside(text: str) -> Iterator[OutsideAddress]:
    """Yield the addresses in a Lease, no more than an agent writes."""
    for entry in text.split()[:MAX_OUTSIDE]:
        try:
            address, pool_type, service = entry.split(",")
            namespace, name = service.split("/")
            kind = PoolType(pool_type)
            yield OutsideAddress(parse_address(address), kind, ServiceKey(namespace, name))
        except ValueError:
            continue
