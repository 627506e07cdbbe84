# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the annotations of a node's Lease say, which its agent writes with each renewal.

A stolen token can write anything there. What cannot be read is skipped, and so is what is more than
an agent writes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Optional, Tuple

from .. import names
from ..addresses import is_of_an_interface, parse_address, parse_mac, parse_subnets
from ..model import Address, Network, NodeAddress, Outage
from ..times import format_time, parse_time

# Characters of a list of subnets, or of what is shorter, that are read: caches keep them.
_MAX_LIST = names.MAX_SUBNETS * len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128,")


def subnets_of(text: str) -> Tuple[Tuple[Network, ...], Tuple[str, ...]]:
    """Return the subnets of a Lease, at most MAX_SUBNETS, and entries that are none, or too wide.

    All nodes of a segment write the same text with each renewal. The cache avoids parsing it again,
    and makes Leases with equal subnets share one tuple, which compares fast.
    """
    return _subnets_of(text[:_MAX_LIST])


@lru_cache(maxsize=1024)
def _subnets_of(text: str) -> Tuple[Tuple[Network, ...], Tuple[str, ...]]:
    found, malformed = parse_subnets(t.strip() for t in text.split(",") if t.strip())
    subnets = tuple(subnet for subnet in found if is_of_an_interface(subnet))
    wide = (str(subnet) for subnet in found if not is_of_an_interface(subnet))
    return subnets[: names.MAX_SUBNETS], (*malformed, *wide)


def listed(text: str) -> Tuple[str, ...]:
    """Return the entries of a list, which are separated by commas."""
    return tuple(text.split(",")) if text else ()


def answering_of(text: str) -> Tuple[str, ...]:
    """Return the nodes of a list, at most MAX_ANSWERING."""
    return listed(text)[: names.MAX_ANSWERING]


def duplicates_of(text: str) -> Tuple[Address, ...]:
    """Return the addresses of a list, at most MAX_DUPLICATES; what is no address is skipped."""
    found = []
    for entry in listed(text)[: names.MAX_DUPLICATES]:
        try:
            found.append(parse_address(entry))
        except ValueError:
            continue
    return tuple(found)


def macs_of(text: str) -> Tuple[bytes, ...]:
    """Return the MAC addresses of a list, at most MAX_MACS; what is none is skipped."""
    return _macs_of(text[:_MAX_LIST])


@lru_cache(maxsize=1024)
def _macs_of(text: str) -> Tuple[bytes, ...]:
    found = (parse_mac(entry) for entry in listed(text)[: names.MAX_MACS])
    return tuple(mac for mac in found if mac)


def mistaken_of(text: str) -> Tuple[NodeAddress, ...]:
    """Return the entries `node/address` of a list, at most MAX_MISTAKEN; others are skipped."""
    found = []
    for entry in listed(text)[: names.MAX_MISTAKEN]:
        node, _slash, address = entry.partition("/")
        try:
            found.append((node, parse_address(address)))
        except ValueError:
            continue
    return tuple(found)


def outage_of(text: str) -> Optional[Outage]:
    """Return the outage `begin/end`; None if there is none."""
    begin, _slash, end = text.partition("/")
    begin_time, end_time = parse_time(begin), parse_time(end)
    if begin_time is None or end_time is None:
        return None
    return Outage(begin_time, end_time)


def outage_text(outage: Optional[Outage]) -> str:
    """Return an outage as `begin/end`; empty if there is none."""
    if outage is None:
        return ""
    return "/".join(map(format_time, (outage.begin_time, outage.end_time)))
