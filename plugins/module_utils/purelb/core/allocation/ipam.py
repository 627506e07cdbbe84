# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Requests to an external IPAM, its answers, and the addresses in a ServiceGroup's status.

The nodes read the addresses of such a group from its status, which the allocator writes. An entry
is an address with its mask, or the first and last address of a range. Other entries are for people
and are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_interface
from typing import Iterable, List, Mapping, Optional, Tuple

from ..addresses import parse_bare_range, parse_range
from ..model import Address, AddressRange, ServiceKey


@dataclass(frozen=True)
class IpamRequest:
    """The request of a Service: the `explicit` addresses, else one of each of the `families`.

    Services with the same `sharing_key` may share an address; "" shares with none.
    """

    service: ServiceKey
    sharing_key: str = ""
    explicit: Tuple[Address, ...] = ()
    families: Tuple[int, ...] = ()


@dataclass(frozen=True)
class Leased:
    """An address that a Service got; `prefixlen` is None if the IPAM knows none."""

    address: Address
    prefixlen: Optional[int] = None

    def __str__(self) -> str:
        return str(self.address) if self.prefixlen is None else f"{self.address}/{self.prefixlen}"


@dataclass(frozen=True)
class Stats:
    """The use of a pool by IP version, and its content as text for the group's status.

    A `size` of None is unknown.
    """

    in_use: Mapping[int, int]
    size: Mapping[int, Optional[int]]
    display: Tuple[str, ...] = ()


def listed_ranges(entries: Iterable[str]) -> Tuple[AddressRange, ...]:
    """Return the ranges in a group's status; other entries are skipped."""
    found: List[AddressRange] = []
    for entry in entries:
        try:
            found.append(_listed_range(entry))
        except ValueError:
            continue
    return tuple(found)


def _listed_range(entry: str) -> AddressRange:
    """Parse a range `first-last[/mask]`, an address with or without a mask, or a CIDR."""
    if "-" in entry:
        pool, _slash, length = entry.partition("/")
        return parse_bare_range(pool, length)
    interface = ip_interface(entry.strip())
    if interface.ip == interface.network.network_address:
        return parse_range(str(interface.network), str(interface.network))
    return parse_range(f"{interface.ip}-{interface.ip}", str(interface.network))


def listing(held: Iterable[Leased]) -> Tuple[str, ...]:
    """Return entries for a group's status as `listed_ranges` reads them; neighbours are joined."""
    entries: List[Tuple[Leased, Leased]] = []
    for leased in sorted(held, key=lambda h: (h.address.version, int(h.address))):
        last = entries[-1][1] if entries else None
        if last is not None and _continues(leased, last):
            entries[-1] = (entries[-1][0], leased)
        else:
            entries.append((leased, leased))
    return tuple(_entry(first, last) for first, last in entries)


def _entry(first: Leased, last: Leased) -> str:
    """Format one address as an address, unless that would be parsed as a network."""
    interface = ip_interface(str(first))
    is_network = (
        interface.network.num_addresses > 1 and interface.ip == interface.network.network_address
    )
    return str(first) if first == last and not is_network else f"{first.address}-{last}"


def _continues(current: Leased, last: Leased) -> bool:
    return (
        current.address.version == last.address.version
        and current.prefixlen == last.prefixlen
        and int(current.address) - int(last.address) <= 1
    )
