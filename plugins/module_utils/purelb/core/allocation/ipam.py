# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What is asked of and told by a system that gives out addresses in place of the cluster.

Such a group's addresses are known to the nodes by its status, which the allocator writes and
everybody else reads: an address with its mask, or the first and the last of several. What there
cannot be read is for people.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_interface
from typing import Iterable, List, Mapping, Optional, Tuple

from ..addresses import parse_bare_range, parse_range
from ..model import Address, AddressRange, ServiceKey


@dataclass(frozen=True)
class IpamRequest:
    """What a Service needs: the `explicit` addresses, or else one of each of the `families`.

    Services with one `sharing_key` may have one address; "" shares with nobody.
    """

    service: ServiceKey
    sharing_key: str = ""
    explicit: Tuple[Address, ...] = ()
    families: Tuple[int, ...] = ()


@dataclass(frozen=True)
class Leased:
    """An address that a Service has got; without a mask where the system knows none."""

    address: Address
    prefixlen: Optional[int] = None

    def __str__(self) -> str:
        return str(self.address) if self.prefixlen is None else f"{self.address}/{self.prefixlen}"


@dataclass(frozen=True)
class Stats:
    """How full a pool is, by IP version, and what it holds, as text for the group's status.

    A `size` of None is not known.
    """

    in_use: Mapping[int, int]
    size: Mapping[int, Optional[int]]
    display: Tuple[str, ...] = ()


def listed_ranges(entries: Iterable[str]) -> Tuple[AddressRange, ...]:
    """The ranges in a group's status, without what is none."""
    found: List[AddressRange] = []
    for entry in entries:
        try:
            found.append(_listed_range(entry))
        except ValueError:
            continue
    return tuple(found)


def _listed_range(entry: str) -> AddressRange:
    """`first-last`, the last with or without a mask; an address with or without one; a CIDR."""
    if "-" in entry:
        pool, _slash, length = entry.partition("/")
        return parse_bare_range(pool, length)
    one = ip_interface(entry.strip())
    if one.ip == one.network.network_address:
        return parse_range(str(one.network), str(one.network))
    return parse_range(f"{one.ip}-{one.ip}", str(one.network))


def listing(held: Iterable[Leased]) -> Tuple[str, ...]:
    """Entries for a group's status, as `listed_ranges` reads them: neighbours become one."""
    entries: List[Tuple[Leased, Leased]] = []
    for one in sorted(held, key=lambda h: (h.address.version, int(h.address))):
        last = entries[-1][1] if entries else None
        if last is not None and _continues(one, last):
            entries[-1] = (entries[-1][0], one)
        else:
            entries.append((one, one))
    return tuple(_entry(first, last) for first, last in entries)


def _entry(first: Leased, last: Leased) -> str:
    """One address is written as an address, unless that would read as a whole network."""
    one = ip_interface(str(first))
    is_network = one.network.num_addresses > 1 and one.ip == one.network.network_address
    return str(first) if first == last and not is_network else f"{first.address}-{last}"


def _continues(one: Leased, last: Leased) -> bool:
    return (
        one.address.version == last.address.version
        and one.prefixlen == last.prefixlen
        and int(one.address) - int(last.address) <= 1
    )
