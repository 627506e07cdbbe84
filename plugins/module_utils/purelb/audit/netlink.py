# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the kernel has on its interfaces, by three netlink dumps; changes nothing.

Netlink and not the command `ip`: it needs neither iproute2 (small systems have none, or one without
JSON) nor privileges, and is the same everywhere. The kernel says when a change disturbed a dump;
then it is asked again.
Layouts: rtnetlink(7), linux/if_addr.h, linux/if_link.h, linux/rtnetlink.h.
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from ..core.errors import PureLBError
from ..core.model import Address

_ERROR, _DONE = 2, 3
_GETLINK, _GETADDR, _GETROUTE = 18, 22, 26
_REQUEST, _DUMP, _INTERRUPTED = 0x1, 0x300, 0x10
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_OPERSTATE = 1, 3, 16
_IFA_ADDRESS, _IFA_LOCAL, _IFA_CACHEINFO, _IFA_FLAGS = 1, 2, 6, 8
_RTA_OIF, _RTA_PRIORITY, _RTA_MULTIPATH, _RTA_TABLE = 4, 6, 9, 15
_MAIN_TABLE = 254
_IFF_UP = 0x1
_FOREVER = 0xFFFFFFFF
_STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
_FLAGS = {
    0x02: "nodad",
    0x08: "dadfailed",
    0x20: "deprecated",
    0x40: "tentative",
    0x80: "permanent",
    0x200: "noprefixroute",
}

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_IFADDRMSG = struct.Struct("=BBBBI")  # family, prefixlen, flags, scope, index
_IFINFOMSG = struct.Struct("=BxHiII")  # family, type, index, flags, change
_RTMSG = struct.Struct("=BBBBBBBBI")  # family, destination length, source length, tos, table, ...
_CACHEINFO = struct.Struct("=IIII")  # preferred, valid, created, changed
_ATTRIBUTE = struct.Struct("=HH")
_NEXTHOP = struct.Struct("=HBBi")  # length, flags, hops, interface
_BUFFER = 1 << 18
_ATTEMPTS = 5
_TIMEOUT = 10.0


class Held(NamedTuple):
    """An address on an interface; lifetimes in seconds, None is without end."""

    address: Address
    prefixlen: int
    valid: Optional[int]
    preferred: Optional[int]
    flags: Tuple[str, ...]


@dataclass(frozen=True)
class Interface:
    """An interface and what is on it. `default_metrics`: by IP version, of its default routes."""

    index: int
    name: str
    mac: bytes
    is_up: bool
    state: str
    default_metrics: Mapping[int, int]
    addresses: Tuple[Held, ...]


def interfaces() -> List[Interface]:
    """All interfaces of this network namespace, by index."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.settimeout(_TIMEOUT)
        link.bind((0, 0))
        held = addresses_of(_dump(link, _GETADDR, _IFADDRMSG.size))
        metrics = metrics_of(_dump(link, _GETROUTE, _RTMSG.size, keep=is_default_route))
        bodies = _dump(link, _GETLINK, _IFINFOMSG.size)
    found = (_interface(body, held, metrics) for body in bodies)
    return sorted(found, key=lambda one: one.index)


def _dump(
    link: socket.socket, kind: int, size: int, keep: Callable[[bytes], bool] = bool
) -> List[bytes]:
    """Bodies of the messages of a kind that are worth it, from a dump that nothing disturbed."""
    for sequence in range(1, _ATTEMPTS + 1):
        length = _HEADER.size + size
        link.send(_HEADER.pack(length, kind, _REQUEST | _DUMP, sequence, 0) + bytes(size))
        bodies, is_whole = _receive(link, sequence, keep)
        if is_whole:
            return bodies
    raise PureLBError(
        f"the interfaces of this host changed during each of {_ATTEMPTS} looks at them: try again"
    )


def _receive(
    link: socket.socket, sequence: int, keep: Callable[[bytes], bool]
) -> Tuple[List[bytes], bool]:
    bodies: List[bytes] = []
    is_whole = True
    while True:
        for kind, flags, of_sequence, body in messages(link.recv(_BUFFER)):
            if of_sequence != sequence:
                continue
            is_whole = is_whole and not flags & _INTERRUPTED
            if kind == _DONE:
                return bodies, is_whole
            if kind == _ERROR:
                (code,) = struct.unpack_from("=i", body)
                raise PureLBError(f"the kernel does not list its interfaces: {os.strerror(-code)}")
            if keep(body):
                bodies.append(body)


def messages(data: bytes) -> Iterator[Tuple[int, int, int, bytes]]:
    """Type, flags, sequence number and body of each message in one answer of the kernel."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, flags, sequence, _port = _HEADER.unpack_from(data, offset)
        yield kind, flags, sequence, data[offset + _HEADER.size : offset + length]
        offset += max(_HEADER.size, (length + 3) & ~3)


def _attributes(body: bytes, offset: int) -> Dict[int, bytes]:
    found = {}
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        found[kind] = body[offset + _ATTRIBUTE.size : offset + length]
        offset += max(_ATTRIBUTE.size, (length + 3) & ~3)
    return found


def addresses_of(bodies: List[bytes]) -> Dict[int, Tuple[Held, ...]]:
    """The addresses in these messages, by index of the interface."""
    found: Dict[int, List[Held]] = {}
    for body in bodies:
        family, prefixlen, flags, _scope, index = _IFADDRMSG.unpack_from(body)
        attributes = _attributes(body, _IFADDRMSG.size)
        # On a link between two hosts IFA_ADDRESS is the other end.
        packed = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)
        if packed is None or family not in (socket.AF_INET, socket.AF_INET6):
            continue
        if _IFA_FLAGS in attributes:
            (flags,) = struct.unpack("=I", attributes[_IFA_FLAGS])
        is_v4 = family == socket.AF_INET
        held = Held(
            IPv4Address(packed) if is_v4 else IPv6Address(packed),
            prefixlen,
            *_lifetimes(attributes),
            tuple(name for bit, name in _FLAGS.items() if flags & bit),
        )
        found.setdefault(index, []).append(held)
    return {index: tuple(several) for index, several in found.items()}


def _lifetimes(attributes: Mapping[int, bytes]) -> Tuple[Optional[int], Optional[int]]:
    if _IFA_CACHEINFO not in attributes:
        return None, None
    preferred, valid, *_stamps = _CACHEINFO.unpack_from(attributes[_IFA_CACHEINFO])
    return (None if valid == _FOREVER else valid), (None if preferred == _FOREVER else preferred)


def is_default_route(body: bytes) -> bool:
    """Whether this is a default route. A router's table has a million that are none."""
    family, prefixlen, *_rest = _RTMSG.unpack_from(body)
    return not prefixlen and family in (socket.AF_INET, socket.AF_INET6)


def metrics_of(bodies: List[bytes]) -> Dict[int, Dict[int, int]]:
    """Lowest metric of these default routes in the main table, by interface and IP version."""
    found: Dict[int, Dict[int, int]] = {}
    for body in bodies:
        family, _length, _source, _tos, table, *_rest = _RTMSG.unpack_from(body)
        attributes = _attributes(body, _RTMSG.size)
        if _RTA_TABLE in attributes:
            (table,) = struct.unpack("=I", attributes[_RTA_TABLE])
        if table != _MAIN_TABLE:
            continue
        version = 4 if family == socket.AF_INET else 6
        (metric,) = struct.unpack("=I", attributes.get(_RTA_PRIORITY, bytes(4)))
        for index in _outgoing(attributes):
            of_link = found.setdefault(index, {})
            of_link[version] = min(metric, of_link.get(version, metric))
    return found


def _outgoing(attributes: Mapping[int, bytes]) -> Set[int]:
    links = set()
    if _RTA_OIF in attributes:
        links.add(struct.unpack("=I", attributes[_RTA_OIF])[0])
    hops, offset = attributes.get(_RTA_MULTIPATH, b""), 0
    while offset + _NEXTHOP.size <= len(hops):
        length, _flags, _hops, index = _NEXTHOP.unpack_from(hops, offset)
        links.add(index)
        offset += max(_NEXTHOP.size, (length + 3) & ~3)
    return links


def _interface(
    body: bytes, held: Mapping[int, Tuple[Held, ...]], metrics: Mapping[int, Mapping[int, int]]
) -> Interface:
    _family, _type, index, flags, _change = _IFINFOMSG.unpack_from(body)
    attributes = _attributes(body, _IFINFOMSG.size)
    (state,) = attributes.get(_IFLA_OPERSTATE, b"\0")[:1]
    return Interface(
        index=index,
        name=attributes[_IFLA_IFNAME].rstrip(b"\0").decode(),
        mac=attributes.get(_IFLA_ADDRESS, b""),
        is_up=bool(flags & _IFF_UP),
        state=_STATES[state] if state < len(_STATES) else "unknown",
        default_metrics=metrics.get(index, {}),
        addresses=held.get(index, ()),
    )
