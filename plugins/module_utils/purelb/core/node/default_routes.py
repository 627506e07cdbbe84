# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The node's default routes: which interfaces they select, and their gateways.

Decoded from rtnetlink messages; layouts as in rtnetlink, names as in the kernel's headers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Dict, FrozenSet, Iterable, Iterator, Mapping, Optional, Set, Tuple

from ..model import Address
from .rtnetlink import RTMSG, U32, VERSIONS, Message, parse_attributes

# linux/rtnetlink.h
RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_MULTIPATH, RTA_TABLE, RTA_VIA = 4, 5, 6, 9, 15, 18
RT_TABLE_MAIN = 254

_RTNEXTHOP = struct.Struct("=HBBi")  # length, flags, hops, interface
_PACKED_SIZES = (4, 16)


@dataclass(frozen=True)
class DefaultRoute:
    """A default route of the main table: IP version, metric, and its hops.

    A hop is the index of an interface and the gateway there, or None without a gateway.
    """

    version: int
    metric: int
    hops: Tuple[Tuple[int, Optional[Address]], ...]


def is_default_route(message: Message) -> bool:
    """Whether a route message is about a default route of any table.

    This must be cheap: a router's table may have a million other routes.
    """
    family, prefixlen, *_rest = RTMSG.unpack_from(message.body)
    return not prefixlen and family in VERSIONS


def parse_default_route(message: Message) -> Optional[DefaultRoute]:
    """Return the default route in an RTM_NEWROUTE or RTM_DELROUTE.

    None if it is another route, of another table than the main one, or leads to no interface.
    """
    if not is_default_route(message):
        return None
    family, _length, _source, _tos, table, *_rest = RTMSG.unpack_from(message.body)
    attributes = parse_attributes(message.body, RTMSG.size)
    if RTA_TABLE in attributes:
        (table,) = U32.unpack(attributes[RTA_TABLE])
    hops = tuple(_hops(attributes))
    if table != RT_TABLE_MAIN or not hops:
        return None
    (metric,) = U32.unpack(attributes.get(RTA_PRIORITY, bytes(4)))
    return DefaultRoute(VERSIONS[family], metric, hops)


def _hops(attributes: Mapping[int, bytes]) -> Iterator[Tuple[int, Optional[Address]]]:
    """Yield the interfaces that a route leads to, each with its gateway."""
    if RTA_OIF in attributes:
        (index,) = U32.unpack(attributes[RTA_OIF])
        yield index, _gateway(attributes)
    hops, offset = attributes.get(RTA_MULTIPATH, b""), 0
    while offset + _RTNEXTHOP.size <= len(hops):
        length, _flags, _hops, index = _RTNEXTHOP.unpack_from(hops, offset)
        yield index, _gateway(parse_attributes(hops[: offset + length], offset + _RTNEXTHOP.size))
        offset += max(_RTNEXTHOP.size, (length + 3) & ~3)


def _gateway(attributes: Mapping[int, bytes]) -> Optional[Address]:
    """Return the gateway of a hop; that of an IPv4 route may be an IPv6 address (RTA_VIA)."""
    # struct rtvia: the family before the address.
    packed = attributes.get(RTA_GATEWAY) or attributes.get(RTA_VIA, b"")[2:]
    return ip_address(packed) if len(packed) in _PACKED_SIZES else None


def default_routes(messages: Iterable[Message]) -> Tuple[DefaultRoute, ...]:
    """Return the default routes of the main table in a dump."""
    return tuple(filter(None, map(parse_default_route, messages)))


def default_metrics(routes: Iterable[DefaultRoute]) -> Dict[int, Dict[int, int]]:
    """Return the lowest metric of default routes by interface and IP version."""
    metrics: Dict[int, Dict[int, int]] = {}
    for route in routes:
        for index, _hop in route.hops:
            by_version = metrics.setdefault(index, {})
            known = by_version.get(route.version, route.metric)
            by_version[route.version] = min(known, route.metric)
    return metrics


def gateways(routes: Iterable[DefaultRoute]) -> Dict[int, FrozenSet[Address]]:
    """Return the gateways of default routes by interface."""
    found: Dict[int, Set[Address]] = {}
    for route in routes:
        for index, gateway in route.hops:
            if gateway is not None:
                found.setdefault(index, set()).add(gateway)
    return {index: frozenset(addresses) for index, addresses in found.items()}
