# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes of the few rtnetlink messages that the agent needs; no socket here (see netlink).

Written out because this is the agent's hot path: with fifty VIPs a node refreshes fifty addresses
every few seconds, and encoding and decoding by a general library cost some fifty times as much.
Layouts: rtnetlink(7), linux/if_addr.h, linux/if_link.h, linux/rtnetlink.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from purelb.core.model import Address, InterfaceAddress, Link
from purelb.core.node.plan import Put

NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR = 0x1, 0x10, 0x100
RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_ROUTE = 0x40, 0x400

_REQUEST, _ACK, _REPLACE, _EXCLUSIVE, _CREATE, _DUMP = 0x1, 0x4, 0x100, 0x200, 0x400, 0x300
_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST, _IFA_CACHEINFO, _IFA_FLAGS = 1, 2, 4, 6, 8
_F_NODAD, _F_DADFAILED, _F_DEPRECATED, _F_TENTATIVE = 0x02, 0x08, 0x20, 0x40
_F_NOPREFIXROUTE = 0x200
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_LINKINFO, _IFLA_IFALIAS = 1, 3, 18, 20
_IFLA_INFO_KIND = 1
_IFF_UP = 0x1
_RTA_OIF, _RTA_PRIORITY, _RTA_MULTIPATH, _RTA_TABLE = 4, 6, 9, 15
_RT_TABLE_MAIN = 254
_FOREVER = 0xFFFFFFFF

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_IFADDRMSG = struct.Struct("=BBBBI")  # family, prefixlen, flags, scope, index
_IFINFOMSG = struct.Struct("=BxHiII")  # family, type, index, flags, change
_RTMSG = struct.Struct("=BBBBBBBBI")  # family, dst len, src len, tos, table, ...
_CACHEINFO = struct.Struct("=IIII")  # preferred, valid, cstamp, tstamp
_ATTRIBUTE = struct.Struct("=HH")
_NEXTHOP = struct.Struct("=HBBi")  # length, flags, hops, interface


@dataclass(frozen=True)
class Message:
    """One message: its type, its sequence number and what follows the header."""

    kind: int
    sequence: int
    body: bytes


def _attribute(kind: int, data: bytes) -> bytes:
    return _ATTRIBUTE.pack(4 + len(data), kind) + data + bytes(-len(data) % 4)


def _message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    return _HEADER.pack(16 + len(body), kind, _REQUEST | flags, sequence, 0) + body


def _family(address: Address) -> int:
    return socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6


def build_put(put: Put, sequence: int) -> bytes:
    """RTM_NEWADDR that adds an address, or sets the lifetimes of one that is there."""
    flags = (_F_NOPREFIXROUTE if put.no_prefix_route else 0) | (_F_NODAD if put.no_dad else 0)
    packed = put.address.packed
    valid = _FOREVER if put.valid_lft is None else put.valid_lft
    preferred = _FOREVER if put.preferred_lft is None else put.preferred_lft
    head = _IFADDRMSG.pack(_family(put.address), put.prefixlen, flags & 0xFF, 0, put.link)
    body = (
        head
        + _attribute(_IFA_LOCAL, packed)
        + _attribute(_IFA_ADDRESS, packed)
        + _attribute(_IFA_CACHEINFO, _CACHEINFO.pack(preferred, valid, 0, 0))
        + _attribute(_IFA_FLAGS, struct.pack("=I", flags))
    )
    return _message(RTM_NEWADDR, _ACK | _CREATE | _REPLACE, sequence, body)


def build_remove(held: InterfaceAddress, sequence: int) -> bytes:
    """RTM_DELADDR that takes an address off its interface."""
    packed = held.address.packed
    head = _IFADDRMSG.pack(_family(held.address), held.prefixlen, 0, 0, held.link)
    body = head + _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)
    return _message(RTM_DELADDR, _ACK, sequence, body)


def build_dummy(name: str, sequence: int) -> bytes:
    """RTM_NEWLINK that makes a dummy interface, up; refused if there is a link of that name."""
    body = (
        _IFINFOMSG.pack(socket.AF_UNSPEC, 0, 0, _IFF_UP, _IFF_UP)
        + _attribute(_IFLA_IFNAME, name.encode() + b"\0")
        + _attribute(_IFLA_LINKINFO, _attribute(_IFLA_INFO_KIND, b"dummy"))
    )
    return _message(RTM_NEWLINK, _ACK | _CREATE | _EXCLUSIVE, sequence, body)


def build_alias(name: str, alias: str, sequence: int) -> bytes:
    """RTM_NEWLINK that gives an alias to the interface of that name."""
    body = (
        _IFINFOMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        + _attribute(_IFLA_IFNAME, name.encode() + b"\0")
        + _attribute(_IFLA_IFALIAS, alias.encode())
    )
    return _message(RTM_NEWLINK, _ACK, sequence, body)


def build_delete_link(index: int, sequence: int) -> bytes:
    """RTM_DELLINK that removes an interface."""
    head = _IFINFOMSG.pack(socket.AF_UNSPEC, 0, index, 0, 0)
    return _message(RTM_DELLINK, _ACK, sequence, head)


def build_dump(kind: int, sequence: int) -> bytes:
    """Request for all links, addresses or routes (RTM_GETLINK, RTM_GETADDR, RTM_GETROUTE)."""
    size = _RTMSG.size if kind == RTM_GETROUTE else _IFINFOMSG.size
    return _message(kind, _DUMP, sequence, bytes(size))


def parse_messages(data: bytes) -> Iterator[Message]:
    """Split one datagram of the kernel into its messages."""
    offset = 0
    while offset + 16 <= len(data):
        length, kind, _flags, sequence, _port = _HEADER.unpack_from(data, offset)
        yield Message(kind, sequence, data[offset + 16 : offset + length])
        offset += (length + 3) & ~3


def parse_error(message: Message) -> int:
    """The errno in an NLMSG_ERROR; 0 is an acknowledgement."""
    (code,) = struct.unpack_from("=i", message.body)
    return -int(code)


def _attributes(body: bytes, offset: int) -> dict[int, bytes]:
    found = {}
    while offset + 4 <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        found[kind] = body[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def parse_address(message: Message, now: float) -> InterfaceAddress | None:
    """The address in an RTM_NEWADDR or RTM_DELADDR, seen at `now`."""
    family, prefixlen, flags, _scope, index = _IFADDRMSG.unpack_from(message.body)
    attributes = _attributes(message.body, _IFADDRMSG.size)
    packed = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)
    if packed is None:
        return None
    if _IFA_FLAGS in attributes:
        (flags,) = struct.unpack("=I", attributes[_IFA_FLAGS])
    preferred = valid = _FOREVER
    if _IFA_CACHEINFO in attributes:
        preferred, valid, *_stamps = _CACHEINFO.unpack_from(attributes[_IFA_CACHEINFO])
    return InterfaceAddress(
        link=index,
        address=IPv4Address(packed) if family == socket.AF_INET else IPv6Address(packed),
        prefixlen=prefixlen,
        expires_at=None if valid == _FOREVER else now + valid,
        preferred_until=None if preferred == _FOREVER else now + preferred,
        no_prefix_route=bool(flags & _F_NOPREFIXROUTE),
        tentative=bool(flags & _F_TENTATIVE),
        dad_failed=bool(flags & _F_DADFAILED),
        deprecated=bool(flags & _F_DEPRECATED),
    )


def parse_link(message: Message, default_metrics: dict[int, int]) -> Link:
    """The interface in an RTM_NEWLINK, with the metrics of its default routes."""
    _family, _type, index, flags, _change = _IFINFOMSG.unpack_from(message.body)
    attributes = _attributes(message.body, _IFINFOMSG.size)
    return Link(
        index=index,
        name=attributes[_IFLA_IFNAME].rstrip(b"\0").decode(),
        mac=attributes.get(_IFLA_ADDRESS, b""),
        is_up=bool(flags & _IFF_UP),
        default_metrics=default_metrics,
        alias=attributes.get(_IFLA_IFALIAS, b"").rstrip(b"\0").decode(errors="replace"),
    )


@dataclass(frozen=True)
class DefaultRoute:
    """A default route of the main table: IP version, metric, interfaces."""

    version: int
    metric: int
    links: tuple[int, ...]


def parse_default_route(message: Message) -> DefaultRoute | None:
    """The default route in an RTM_NEWROUTE or RTM_DELROUTE, or None if it is another route."""
    family, prefixlen, _source, _tos, table, *_rest = _RTMSG.unpack_from(message.body)
    if prefixlen or family not in (socket.AF_INET, socket.AF_INET6):
        return None
    attributes = _attributes(message.body, _RTMSG.size)
    if _RTA_TABLE in attributes:
        (table,) = struct.unpack("=I", attributes[_RTA_TABLE])
    links = tuple(_outgoing(attributes))
    if table != _RT_TABLE_MAIN or not links:
        return None
    (metric,) = struct.unpack("=I", attributes.get(_RTA_PRIORITY, bytes(4)))
    return DefaultRoute(4 if family == socket.AF_INET else 6, metric, links)


def _outgoing(attributes: dict[int, bytes]) -> Iterator[int]:
    if _RTA_OIF in attributes:
        yield struct.unpack("=I", attributes[_RTA_OIF])[0]
    hops, offset = attributes.get(_RTA_MULTIPATH, b""), 0
    while offset + _NEXTHOP.size <= len(hops):
        length, _flags, _hops, index = _NEXTHOP.unpack_from(hops, offset)
        yield index
        offset += max(_NEXTHOP.size, (length + 3) & ~3)
