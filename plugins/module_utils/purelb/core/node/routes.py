# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The node's default routes, which select interfaces, and its on-link routes, which show subnets.

Decoded from rtnetlink messages; layouts as in rtnetlink, names as in the kernel's headers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Dict, FrozenSet, Iterable, Iterator, Mapping, Optional, Set, Tuple

from ..model import Address, Network
from .rtnetlink import AF_INET, RTMSG, U32, VERSIONS, Message, parse_attributes

# linux/rtnetlink.h
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY = 1, 4, 5, 6
RTA_MULTIPATH, RTA_TABLE, RTA_VIA = 9, 15, 18
RT_TABLE_MAIN = 254
RT_SCOPE_UNIVERSE, RT_SCOPE_LINK = 0, 253
RTN_UNICAST = 1
RTPROT_KERNEL, RTPROT_BOOT, RTPROT_STATIC, RTPROT_RA, RTPROT_DHCP = 2, 3, 4, 9, 16

_RTNEXTHOP = struct.Struct("=HBBi")  # length, flags, hops, interface
_PACKED_SIZES = (4, 16)
# Who adds routes of a host's own network: administrators, network managers, router advertisements.
# Those of routing daemons and CNIs lead elsewhere. The kernel's IPv4 routes come from addresses,
# which show their subnets themselves; its IPv6 routes come from router advertisements, too.
_OF_THE_HOST = frozenset({RTPROT_BOOT, RTPROT_STATIC, RTPROT_RA, RTPROT_DHCP})
_OF_THE_HOST6 = _OF_THE_HOST | {RTPROT_KERNEL}


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


def _may_be_on_link(message: Message) -> bool:
    """Whether a route message may be about an on-link route; as cheap as is_default_route."""
    family, length, _source, _tos, _table, protocol, scope, kind, _flags = RTMSG.unpack_from(
        message.body
    )
    if not length or kind != RTN_UNICAST:
        return False
    if family == AF_INET:
        return scope == RT_SCOPE_LINK and protocol in _OF_THE_HOST
    # The kernel gives all IPv6 routes this scope.
    return family in VERSIONS and scope == RT_SCOPE_UNIVERSE and protocol in _OF_THE_HOST6


def is_of_interest(message: Message) -> bool:
    """Whether a route message may be about a default route or an on-link route."""
    return is_default_route(message) or _may_be_on_link(message)


def parse_default_route(message: Message) -> Optional[DefaultRoute]:
    """Return the default route in an RTM_NEWROUTE or RTM_DELROUTE.

    None if it is another route, of another table than the main one, or leads to no interface.
    """
    if not is_default_route(message):
        return None
    family, _length, _source, _tos, table, *_rest = RTMSG.unpack_from(message.body)
    attributes = parse_attributes(message.body, RTMSG.size)
    hops = tuple(_hops(attributes))
    if not _is_in_main(table, attributes) or not hops:
        return None
    (metric,) = U32.unpack(attributes.get(RTA_PRIORITY, bytes(4)))
    return DefaultRoute(VERSIONS[family], metric, hops)


def parse_on_link_route(message: Message) -> Optional[Tuple[int, Network]]:
    """Return the interface and the subnet of an on-link route in an RTM_NEWROUTE or RTM_DELROUTE.

    Hosts in such a subnet are neighbors on that interface: the route has no gateway. None if it is
    another route, of another table than the main one, or of no subnet for Services (one host,
    link-local, multicast).
    """
    if not _may_be_on_link(message):
        return None
    _family, length, _source, _tos, table, *_rest = RTMSG.unpack_from(message.body)
    attributes = parse_attributes(message.body, RTMSG.size)
    hops, packed = tuple(_hops(attributes)), attributes.get(RTA_DST, b"")
    if not _is_in_main(table, attributes) or len(packed) not in _PACKED_SIZES or len(hops) != 1:
        return None
    network = ip_network((packed, length), strict=False)
    is_subnet = length < network.max_prefixlen and not network.is_link_local
    ((index, gateway),) = hops
    if gateway is not None or network.is_multicast or not is_subnet:
        return None
    return index, network


def _is_in_main(table: int, attributes: Mapping[int, bytes]) -> bool:
    """Whether a route is in the main table; the attribute has what the header has no room for."""
    if RTA_TABLE in attributes:
        (table,) = U32.unpack(attributes[RTA_TABLE])
    return table == RT_TABLE_MAIN


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


def on_link_routes(messages: Iterable[Message]) -> Dict[int, FrozenSet[Network]]:
    """Return the subnets of the on-link routes in a dump, by interface."""
    found: Dict[int, Set[Network]] = {}
    for route in map(parse_on_link_route, messages):
        if route is not None:
            index, network = route
            found.setdefault(index, set()).add(network)
    return {index: frozenset(networks) for index, networks in found.items()}
