# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Encodes and decodes the rtnetlink messages that the agent, the modules and the tests need.

The only place that knows the layout of these messages; the sockets are elsewhere (the agent's
node/netlink, the modules' audit/netlink). Written by hand because this is the agent's hot path:
with fifty VIPs a node refreshes fifty addresses every few seconds, and a general library takes
about fifty times as long to encode and decode them.
Layouts: netlink(7), rtnetlink(7). Constants and structures have the names of the kernel's headers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import (
    Callable,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Tuple,
)

from ..model import Address, InterfaceAddress
from ..names import OUR_PROTOCOLS
from .plan import Put

# linux/netlink.h
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP_INTR = 0x1, 0x4, 0x10
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE, NLM_F_DUMP = 0x100, 0x200, 0x400, 0x300

# linux/rtnetlink.h
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR = 0x1, 0x10, 0x100
RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_ROUTE = 0x40, 0x400

# linux/if_addr.h
IFA_ADDRESS, IFA_LOCAL, IFA_CACHEINFO, IFA_FLAGS, IFA_PROTO = 1, 2, 6, 8, 11
IFA_F_SECONDARY, IFA_F_NODAD, IFA_F_DADFAILED, IFA_F_DEPRECATED, IFA_F_TENTATIVE = (
    0x01,
    0x02,
    0x08,
    0x20,
    0x40,
)
IFA_F_PERMANENT, IFA_F_NOPREFIXROUTE = 0x80, 0x200

# linux/if_link.h, linux/if.h
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MASTER, IFLA_OPERSTATE = 1, 3, 10, 16
IFLA_LINKINFO, IFLA_IFALIAS = 18, 20
IFLA_AF_SPEC = 26
IFLA_INFO_KIND = 1
IFLA_INET_CONF = 1
IFF_UP = 0x1
# linux/if_arp.h
ARPHRD_ETHER = 1

# linux/ip.h
IPV4_DEVCONF_PROMOTE_SECONDARIES = 20

# linux/socket.h; this core does not import socket
AF_UNSPEC, AF_INET, AF_INET6 = 0, 2, 10

# INFINITY_LIFE_TIME, net/addrconf.h: the lifetime of an address that never expires.
FOREVER = 0xFFFFFFFF

# By IF_OPER_ number (linux/if.h), spelled as in iproute2.
_OPERATIONAL_STATES = (
    "unknown",
    "notpresent",
    "down",
    "lowerlayerdown",
    "testing",
    "dormant",
    "up",
)
_FLAG_NAMES = {
    IFA_F_NODAD: "nodad",
    IFA_F_DADFAILED: "dadfailed",
    IFA_F_DEPRECATED: "deprecated",
    IFA_F_TENTATIVE: "tentative",
    IFA_F_PERMANENT: "permanent",
    IFA_F_NOPREFIXROUTE: "noprefixroute",
}
# netif_oper_up, linux/netdevice.h
_WITH_CARRIER = {"up", "unknown"}
VERSIONS = {AF_INET: 4, AF_INET6: 6}

_NLMSGHDR = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_IFADDRMSG = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index
_IFINFOMSG = struct.Struct("=BxHiII")  # family, type, index, flags, change mask
RTMSG = struct.Struct("=BBBBBBBBI")  # family, destination length, source length, tos, table, ...
_IFA_CACHEINFO = struct.Struct("=IIII")  # preferred, valid, created, updated
_LIFETIMES = struct.Struct("=II")  # the first two of an ifa_cacheinfo
_RTATTR = struct.Struct("=HH")  # length, type
U32 = struct.Struct("=I")
_S32 = struct.Struct("=i")
_HEADERS_OF_DUMPS = {RTM_GETLINK: _IFINFOMSG, RTM_GETADDR: _IFADDRMSG, RTM_GETROUTE: RTMSG}


class Message(NamedTuple):
    """One netlink message: type, flags, sequence number, and the bytes after the header."""

    kind: int
    flags: int
    sequence: int
    body: bytes


class AddressMessage(NamedTuple):
    """An address on an interface; lifetimes in seconds, None if it never expires.

    `protocol`: IFA_PROTO, 0 if it has none.
    """

    link: int
    address: Address
    prefixlen: int
    valid_lft: Optional[int] = None
    preferred_lft: Optional[int] = None
    flags: int = 0
    protocol: int = 0

    @property
    def flag_names(self) -> Tuple[str, ...]:
        """The known flags, spelled as in iproute2."""
        return tuple(name for bit, name in _FLAG_NAMES.items() if self.flags & bit)

    def received_at(self, now: float) -> InterfaceAddress:
        """Return the address with the moments at which its lifetimes end."""
        link, address, prefixlen, valid, preferred, flags, protocol = self
        # By position, because keywords cost a tenth of the time.
        return InterfaceAddress(
            link,
            address,
            prefixlen,
            None if valid is None else now + valid,
            None if preferred is None else now + preferred,
            flags & IFA_F_NOPREFIXROUTE != 0,
            flags & IFA_F_TENTATIVE != 0,
            flags & IFA_F_DADFAILED != 0,
            flags & IFA_F_DEPRECATED != 0,
            protocol,
        )


@dataclass(frozen=True)
class LinkMessage:
    """A network interface; see Link for `kind` and `master`."""

    index: int
    name: str
    mac: bytes
    is_up: bool
    state: str
    alias: str
    is_ethernet: bool = True
    kind: str = ""
    master: int = 0


class Reply(NamedTuple):
    """The reply to a request; `error` is an errno, 0 for success.

    `was_interrupted`: something changed during the dump, which may therefore lack something.
    """

    messages: List[Message]
    error: int
    was_interrupted: bool


def has_carrier(state: str) -> bool:
    """Whether an interface in this state has a carrier; `unknown` is of drivers that know none."""
    return state in _WITH_CARRIER


def build_put(put: Put, sequence: int) -> bytes:
    """Return the RTM_NEWADDR that adds an address or resets the lifetimes of an existing one.

    EEXIST if a new address is there already: with NLM_F_REPLACE the kernel would make another
    program's address ours, for IPv6 with any mask. Without the mark a reset would clear it.
    """
    flags = (IFA_F_NOPREFIXROUTE if put.no_prefix_route else 0) | (IFA_F_NODAD if put.no_dad else 0)
    packed = put.address.packed
    valid = FOREVER if put.valid_lft is None else put.valid_lft
    preferred = FOREVER if put.preferred_lft is None else put.preferred_lft
    body = (
        _IFADDRMSG.pack(_family(put.address), put.prefixlen, flags & 0xFF, 0, put.link)
        + attribute(IFA_LOCAL, packed)
        + attribute(IFA_ADDRESS, packed)
        + attribute(IFA_CACHEINFO, _IFA_CACHEINFO.pack(preferred, valid, 0, 0))
        + attribute(IFA_FLAGS, U32.pack(flags))
        + MARKS[put.protocol]
    )
    mode = NLM_F_EXCL if put.is_new else NLM_F_REPLACE
    return request(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | mode, sequence, body)


def build_remove(held: InterfaceAddress, sequence: int) -> bytes:
    """Return the RTM_DELADDR that removes an address from its interface."""
    packed = held.address.packed
    body = (
        _IFADDRMSG.pack(_family(held.address), held.prefixlen, 0, 0, held.link)
        + attribute(IFA_LOCAL, packed)
        + attribute(IFA_ADDRESS, packed)
    )
    return request(RTM_DELADDR, NLM_F_ACK, sequence, body)


def build_dummy(name: str, sequence: int) -> bytes:
    """Return the RTM_NEWLINK that creates a dummy interface, up; EEXIST if the name is taken."""
    body = (
        _IFINFOMSG.pack(AF_UNSPEC, 0, 0, IFF_UP, IFF_UP)
        + attribute(IFLA_IFNAME, name.encode() + b"\0")
        + attribute(IFLA_LINKINFO, attribute(IFLA_INFO_KIND, b"dummy"))
    )
    return request(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, sequence, body)


def build_alias(name: str, alias: str, sequence: int) -> bytes:
    """Return the RTM_NEWLINK that sets the alias of the interface of that name."""
    body = (
        _IFINFOMSG.pack(AF_UNSPEC, 0, 0, 0, 0)
        + attribute(IFLA_IFNAME, name.encode() + b"\0")
        + attribute(IFLA_IFALIAS, alias.encode())
    )
    return request(RTM_NEWLINK, NLM_F_ACK, sequence, body)


def build_delete_link(index: int, sequence: int) -> bytes:
    """Return the RTM_DELLINK that removes an interface."""
    body = _IFINFOMSG.pack(AF_UNSPEC, 0, index, 0, 0)
    return request(RTM_DELLINK, NLM_F_ACK, sequence, body)


def build_get_link(index: int, sequence: int) -> bytes:
    """Return the RTM_GETLINK that asks for an interface and its settings."""
    body = _IFINFOMSG.pack(AF_UNSPEC, 0, index, 0, 0)
    return request(RTM_GETLINK, NLM_F_ACK, sequence, body)


def build_promote(index: int, sequence: int, *, on: bool) -> bytes:
    """Return the RTM_SETLINK that sets an interface's promote_secondaries.

    Without it the kernel removes, with an IPv4 address, the later ones of the same subnet.
    """
    value = attribute(IPV4_DEVCONF_PROMOTE_SECONDARIES, U32.pack(on))
    settings = attribute(AF_INET, attribute(IFLA_INET_CONF, value))
    body = _IFINFOMSG.pack(AF_UNSPEC, 0, index, 0, 0) + attribute(IFLA_AF_SPEC, settings)
    return request(RTM_SETLINK, NLM_F_ACK, sequence, body)


def build_dump(kind: int, sequence: int) -> bytes:
    """Return the request for all links, addresses or routes (RTM_GETLINK, _GETADDR, _GETROUTE)."""
    return request(kind, NLM_F_DUMP, sequence, bytes(_HEADERS_OF_DUMPS[kind].size))


def request(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """Return a request: its header and its body."""
    length = _NLMSGHDR.size + len(body)
    return _NLMSGHDR.pack(length, kind, NLM_F_REQUEST | flags, sequence, 0) + body


def attribute(kind: int, data: bytes) -> bytes:
    """Return an attribute, padded."""
    return _RTATTR.pack(_RTATTR.size + len(data), kind) + data + bytes(-len(data) % 4)


# By which an address that we put is recognised; an older kernel ignores it.
MARKS = {protocol: attribute(IFA_PROTO, bytes([protocol])) for protocol in OUR_PROTOCOLS}


def _family(address: Address) -> int:
    return AF_INET if isinstance(address, IPv4Address) else AF_INET6


def parse_messages(data: bytes) -> Iterator[Message]:
    """Yield the messages of one datagram; a message that is cut off, or claims to be, ends it."""
    offset = 0
    while offset + 16 <= len(data):
        length, kind, flags, sequence, _port = _NLMSGHDR.unpack_from(data, offset)
        end = offset + length
        if length < 16 or end > len(data):  # noqa: PLR2004 - the size of the header
            return
        yield Message(kind, flags, sequence, data[offset + 16 : end])
        offset += (length + 3) & ~3


def parse_error(message: Message) -> int:
    """Return the errno in an NLMSG_ERROR; 0 is an acknowledgement."""
    (code,) = _S32.unpack_from(message.body)
    return -int(code)


def read_reply(
    receive: Callable[[], bytes],
    sequence: int,
    *,
    keep: Optional[Callable[[Message], bool]] = None,
) -> Reply:
    """Receive datagrams up to the end of the reply to the request with this sequence number.

    Messages of other replies, to requests that timed out, are ignored. `keep`: which messages are
    worth returning.
    """
    messages: List[Message] = []
    was_interrupted = False
    while True:
        for message in parse_messages(receive()):
            if message.sequence != sequence:
                continue
            was_interrupted = was_interrupted or message.flags & NLM_F_DUMP_INTR != 0
            if message.kind == NLMSG_ERROR:
                return Reply(messages, parse_error(message), was_interrupted)
            if message.kind == NLMSG_DONE:
                return Reply(messages, 0, was_interrupted)
            if keep is None or keep(message):
                messages.append(message)


def parse_attributes(data: bytes, offset: int) -> Dict[int, bytes]:
    """Return the attributes from an offset on, by type; one that is cut off ends them."""
    found = {}
    while offset + 4 <= len(data):
        length, kind = _RTATTR.unpack_from(data, offset)
        end = offset + length
        if length < 4 or end > len(data):  # noqa: PLR2004 - the size of the header
            break
        found[kind] = data[offset + 4 : end]
        offset += (length + 3) & ~3
    return found


def parse_address(message: Message) -> Optional[AddressMessage]:
    """Return the address in an RTM_NEWADDR or RTM_DELADDR; None if it is not an IP address."""
    family, prefixlen, flags, _scope, index = _IFADDRMSG.unpack_from(message.body)
    attributes = parse_attributes(message.body, _IFADDRMSG.size)
    # On a point-to-point link IFA_ADDRESS is the peer.
    packed = attributes.get(IFA_LOCAL) or attributes.get(IFA_ADDRESS)
    if packed is None or family not in VERSIONS:
        return None
    if IFA_FLAGS in attributes:
        (flags,) = U32.unpack(attributes[IFA_FLAGS])
    preferred = valid = FOREVER
    if IFA_CACHEINFO in attributes:
        preferred, valid = _LIFETIMES.unpack_from(attributes[IFA_CACHEINFO])
    return AddressMessage(
        index,
        IPv4Address(packed) if family == AF_INET else IPv6Address(packed),
        prefixlen,
        None if valid == FOREVER else valid,
        None if preferred == FOREVER else preferred,
        flags,
        attributes[IFA_PROTO][0] if attributes.get(IFA_PROTO) else 0,
    )


def interface_address(message: Message, now: float) -> Optional[InterfaceAddress]:
    """Return the address in a message received at `now`; None if it is not an IP address."""
    parsed = parse_address(message)
    return None if parsed is None else parsed.received_at(now)


def parse_link(message: Message) -> LinkMessage:
    """Return the interface in an RTM_NEWLINK or RTM_DELLINK."""
    _family, kind, index, flags, _change = _IFINFOMSG.unpack_from(message.body)
    attributes = parse_attributes(message.body, _IFINFOMSG.size)
    (state,) = attributes.get(IFLA_OPERSTATE, b"\0")[:1]
    info = parse_attributes(attributes.get(IFLA_LINKINFO, b""), 0)
    return LinkMessage(
        index=index,
        name=attributes[IFLA_IFNAME].rstrip(b"\0").decode(),
        mac=attributes.get(IFLA_ADDRESS, b""),
        is_up=bool(flags & IFF_UP),
        state=_OPERATIONAL_STATES[state] if state < len(_OPERATIONAL_STATES) else "unknown",
        alias=attributes.get(IFLA_IFALIAS, b"").rstrip(b"\0").decode(errors="replace"),
        is_ethernet=kind == ARPHRD_ETHER,
        kind=info.get(IFLA_INFO_KIND, b"").rstrip(b"\0").decode(errors="replace"),
        master=U32.unpack(attributes[IFLA_MASTER])[0] if IFLA_MASTER in attributes else 0,
    )


def parse_promotes(message: Message) -> bool:
    """Return the promote_secondaries of the interface in an RTM_NEWLINK."""
    families = parse_attributes(message.body, _IFINFOMSG.size).get(IFLA_AF_SPEC, b"")
    settings = parse_attributes(parse_attributes(families, 0).get(AF_INET, b""), 0)
    values = settings.get(IFLA_INET_CONF, b"")
    at = U32.size * (IPV4_DEVCONF_PROMOTE_SECONDARIES - 1)
    return values[at : at + U32.size] not in {b"", bytes(U32.size)}
