# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Rtnetlink messages as the kernel sends and reads them: the other side of core/node/rtnetlink.

Layouts: netlink(7), rtnetlink(7).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from purelb.core.model import Address
from purelb.core.node.routes import RT_TABLE_MAIN, RTA_GATEWAY, RTA_OIF, RTA_PRIORITY
from purelb.core.node.rtnetlink import (
    AF_INET,
    AF_INET6,
    ARPHRD_ETHER,
    FOREVER,
    IFA_ADDRESS,
    IFA_CACHEINFO,
    IFA_FLAGS,
    IFA_LOCAL,
    IFA_PROTO,
    IFF_UP,
    IFLA_ADDRESS,
    IFLA_AF_SPEC,
    IFLA_IFALIAS,
    IFLA_IFNAME,
    IFLA_INET_CONF,
    IFLA_INFO_KIND,
    IFLA_LINKINFO,
    IFLA_OPERSTATE,
    IPV4_DEVCONF_PROMOTE_SECONDARIES,
    NLMSG_DONE,
    NLMSG_ERROR,
    AddressMessage,
    Message,
    parse_address,
    parse_attributes,
)

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ADDRESS = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, change mask
_ROUTE = struct.Struct("=BBBBBBBBI")  # family, destination length, source length, tos, table, ...
_CACHE = struct.Struct("=IIII")  # preferred, valid, created, updated
_U32 = struct.Struct("=I")
_OPER_DOWN, _OPER_UP = 2, 6
# linux/if.h
_IFF_RUNNING, _IFF_LOWER_UP = 0x40, 0x10000


def message(kind: int, body: bytes, *, sequence: int = 0, flags: int = 0) -> bytes:
    """Return a message with its header."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0) + body


def acknowledgement(sequence: int, error: int = 0) -> bytes:
    """Return the NLMSG_ERROR that ends a reply; `error` is an errno, 0 for success."""
    return message(NLMSG_ERROR, struct.pack("=i", -error) + bytes(16), sequence=sequence)


def done(sequence: int, *, flags: int = 0) -> bytes:
    """Return the message that ends a dump."""
    return message(NLMSG_DONE, bytes(4), sequence=sequence, flags=flags)


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def _family(address: Address) -> int:
    return AF_INET if address.version == 4 else AF_INET6  # noqa: PLR2004 - the version of IP


class AddressHead(NamedTuple):
    """The parts of an address message that stay while the address is on its interface."""

    before: bytes
    after: bytes


def address_head(link: int, address: Address, prefixlen: int, protocol: int) -> AddressHead:
    """Return what is before and after the lifetimes and flags in the messages about an address."""
    packed = address.packed
    head = _ADDRESS.pack(_family(address), prefixlen, 0, 0, link)
    label = _attribute(IFA_LOCAL, packed) if _family(address) == AF_INET else b""
    mark = _attribute(IFA_PROTO, bytes([protocol])) if protocol else b""
    return AddressHead(head + _attribute(IFA_ADDRESS, packed) + label, mark)


@lru_cache(maxsize=4096)
def address_body(head: AddressHead, valid: int | None, preferred: int | None, flags: int) -> bytes:
    """Return the body of a message about an address; lifetimes in seconds, None for ever."""
    lifetimes = _CACHE.pack(
        FOREVER if preferred is None else preferred, FOREVER if valid is None else valid, 0, 0
    )
    return b"".join(
        (
            head.before,
            _attribute(IFA_CACHEINFO, lifetimes),
            _attribute(IFA_FLAGS, _U32.pack(flags)),
            head.after,
        )
    )


@dataclass
class LinkState:
    """An interface; one that is up may still lack its carrier.

    `promotes`: whether the secondaries of an IPv4 address that goes stay; not by default.
    """

    index: int
    name: str
    mac: bytes
    is_up: bool = True
    has_carrier: bool = True
    alias: str = ""
    is_dummy: bool = False
    promotes: bool = False


def link_body(link: LinkState) -> bytes:
    """Return the body of a message about an interface."""
    works = link.is_up and link.has_carrier
    flags = (IFF_UP if link.is_up else 0) | ((_IFF_RUNNING | _IFF_LOWER_UP) if works else 0)
    attributes = [
        _attribute(IFLA_IFNAME, link.name.encode() + b"\0"),
        _attribute(IFLA_ADDRESS, link.mac),
        _attribute(IFLA_OPERSTATE, bytes([_OPER_UP if works else _OPER_DOWN])),
        _SETTINGS[link.promotes],
    ]
    if link.alias:
        attributes.append(_attribute(IFLA_IFALIAS, link.alias.encode() + b"\0"))
    return _LINK.pack(0, ARPHRD_ETHER, link.index, flags, 0) + b"".join(attributes)


@dataclass(frozen=True)
class Route:
    """A default route."""

    link: int
    metric: int
    gateway: Address


def route_body(route: Route) -> bytes:
    """Return the body of a message about a default route."""
    head = _ROUTE.pack(_family(route.gateway), 0, 0, 0, RT_TABLE_MAIN, 0, 0, 1, 0)
    return head + b"".join(
        (
            _attribute(RTA_OIF, _U32.pack(route.link)),
            _attribute(RTA_PRIORITY, _U32.pack(route.metric)),
            _attribute(RTA_GATEWAY, route.gateway.packed),
        )
    )


def _settings(*, promotes: bool) -> bytes:
    """Return the settings for IPv4 of an interface; all others are 0."""
    values = [0] * IPV4_DEVCONF_PROMOTE_SECONDARIES
    values[-1] = int(promotes)
    packed = b"".join(map(_U32.pack, values))
    return _attribute(IFLA_AF_SPEC, _attribute(AF_INET, _attribute(IFLA_INET_CONF, packed)))


_SETTINGS = {promotes: _settings(promotes=promotes) for promotes in (False, True)}


def wanted_address(request: Message) -> AddressMessage:
    """Return the address that a request adds, changes or removes."""
    parsed = parse_address(request)
    if parsed is None:
        raise ValueError(f"a request without an address: {request}")
    return parsed


class LinkRequest(NamedTuple):
    """What a request says about an interface; empty fields are not in it.

    `promotes`: what its promote_secondaries becomes; None: it stays.
    """

    number: int
    name: str
    alias: str
    kind: str
    promotes: bool | None


def wanted_link(request: Message) -> LinkRequest:
    """Return what a request says about an interface."""
    _unspecified, _type, index, _flags, _change = _LINK.unpack_from(request.body)
    found = parse_attributes(request.body, _LINK.size)
    info = parse_attributes(found.get(IFLA_LINKINFO, b""), 0)
    families = parse_attributes(found.get(IFLA_AF_SPEC, b""), 0)
    of_inet = parse_attributes(families.get(AF_INET, b""), 0)
    settings = parse_attributes(of_inet.get(IFLA_INET_CONF, b""), 0)
    promotes = settings.get(IPV4_DEVCONF_PROMOTE_SECONDARIES)

    def text(data: bytes) -> str:
        return data.rstrip(b"\0").decode()

    return LinkRequest(
        index,
        text(found.get(IFLA_IFNAME, b"")),
        text(found.get(IFLA_IFALIAS, b"")),
        text(info.get(IFLA_INFO_KIND, b"")),
        None if promotes is None else any(promotes),
    )
