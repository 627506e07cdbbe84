# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Frames that announce an address, probe for duplicates, or claim an address.

They are built and parsed here, but sent and received elsewhere, so every byte is testable without a
socket.
ARP goes out both as request and as reply, because some hosts listen only to one of them (RFC 5227,
section 3). The neighbour advertisement has the Override flag set and the Router flag clear
(RFC 4861, 4.4): it replaces cached entries, and a VIP is not a router. A probe contains no sender
address, so it does not change any cache.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import List, Optional

from ..model import Address

_BROADCAST = b"\xff" * 6
_ALL_NODES = IPv6Address("ff02::1")
_SOLICITED_NODE = IPv6Address("ff02::1:ff00:0")
_ETHERTYPE_ARP, _ETHERTYPE_IPV6 = 0x0806, 0x86DD
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_ETHERNET_IPV4 = (1, 0x0800, 6, 4)
_ARP_REQUEST, _ARP_REPLY = 1, 2
_IPV6 = struct.Struct("!IHBB16s16s")
_IPV6_VERSION = 6
_ICMPV6, _NEIGHBOR_SOLICITATION, _NEIGHBOR_ADVERTISEMENT = 58, 135, 136
# Receivers drop neighbour messages with a lower one: a router may have forwarded them (RFC 4861,
# 7.1).
_HOP_LIMIT = 255
_FLAG_OVERRIDE = 0x20000000
_TARGET_LINK_LAYER = 2
# A neighbour advertisement without options; the length of an option is a multiple of 8 bytes.
_NEIGHBOR = struct.Struct("!BBHI16s")


@dataclass(frozen=True)
class AddressClaim:
    """A host's claim to have an address."""

    mac: bytes
    address: Address


def _ethernet(destination: bytes, source: bytes, ethertype: int, payload: bytes) -> bytes:
    return destination + source + struct.pack("!H", ethertype) + payload


def build_arp(mac: bytes, address: IPv4Address, operation: int) -> bytes:
    """Return a gratuitous ARP frame: sender and target are the address (RFC 826, RFC 5227)."""
    target_mac = bytes(6) if operation == _ARP_REQUEST else _BROADCAST
    ends = (mac, address.packed, target_mac, address.packed)
    payload = _ARP.pack(*_ETHERNET_IPV4, operation, *ends)
    return _ethernet(_BROADCAST, mac, _ETHERTYPE_ARP, payload)


def _build_arp_probe(mac: bytes, address: IPv4Address) -> bytes:
    """Return an ARP probe (RFC 5227, 2.1.1): a request without a sender address."""
    payload = _ARP.pack(*_ETHERNET_IPV4, _ARP_REQUEST, mac, bytes(4), bytes(6), address.packed)
    return _ethernet(_BROADCAST, mac, _ETHERTYPE_ARP, payload)


def _checksum(source: bytes, destination: bytes, body: bytes) -> int:
    """Return the checksum of an ICMPv6 message (RFC 4443, 2.3); 0 if it contains a valid one.

    The message has an even length.
    """
    data = source + destination + struct.pack("!II", len(body), _ICMPV6) + body
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _icmpv6(mac: bytes, source: IPv6Address, group: IPv6Address, body: bytes) -> bytes:
    """Return the frame of an ICMPv6 message, given with checksum 0, to a multicast group."""
    checksum = _checksum(source.packed, group.packed, body)
    checked = body[:2] + struct.pack("!H", checksum) + body[4:]
    header = _IPV6.pack(
        _IPV6_VERSION << 28, len(body), _ICMPV6, _HOP_LIMIT, source.packed, group.packed
    )
    # RFC 2464, section 7.
    group_mac = b"\x33\x33" + group.packed[-4:]
    return _ethernet(group_mac, mac, _ETHERTYPE_IPV6, header + checked)


def build_na(mac: bytes, address: IPv6Address) -> bytes:
    """Return an unsolicited neighbour advertisement to all nodes (RFC 4861, 4.4 and 7.2.6)."""
    option = struct.pack("!BB", _TARGET_LINK_LAYER, 1) + mac
    head = _NEIGHBOR.pack(_NEIGHBOR_ADVERTISEMENT, 0, 0, _FLAG_OVERRIDE, address.packed)
    return _icmpv6(mac, address, _ALL_NODES, head + option)


def _build_dad(mac: bytes, address: IPv6Address) -> bytes:
    """Return a solicitation for duplicate address detection, without options (RFC 4862, 5.4.2)."""
    body = _NEIGHBOR.pack(_NEIGHBOR_SOLICITATION, 0, 0, 0, address.packed)
    group = IPv6Address(_SOLICITED_NODE.packed[:13] + address.packed[13:])
    return _icmpv6(mac, IPv6Address(0), group, body)


def build_announcement(mac: bytes, address: Address) -> List[bytes]:
    """Return the frames that announce an address once."""
    if isinstance(address, IPv4Address):
        return [build_arp(mac, address, _ARP_REQUEST), build_arp(mac, address, _ARP_REPLY)]
    return [build_na(mac, address)]


def build_probe(mac: bytes, address: Address) -> bytes:
    """Return the frame that asks the segment whether another host has an address."""
    if isinstance(address, IPv4Address):
        return _build_arp_probe(mac, address)
    return _build_dad(mac, address)


def parse_claim(frame: bytes) -> Optional[AddressClaim]:
    """Return the claim in a frame; None if it contains none or is invalid."""
    ethertype, packet = frame[12:14], frame[14:]
    if ethertype == _ETHERTYPE_ARP.to_bytes(2, "big"):
        return _arp_claim(packet)
    if ethertype == _ETHERTYPE_IPV6.to_bytes(2, "big"):
        return _advertised(frame[6:12], packet)
    return None


def _arp_claim(packet: bytes) -> Optional[AddressClaim]:
    if len(packet) < _ARP.size:
        return None
    *kind, operation, mac, address, _target_mac, _target = _ARP.unpack_from(packet)
    is_known = tuple(kind) == _ETHERNET_IPV4 and operation in (_ARP_REQUEST, _ARP_REPLY)
    if not is_known or not any(address):
        return None
    return AddressClaim(mac, IPv4Address(address))


def _advertised(sender: bytes, packet: bytes) -> Optional[AddressClaim]:
    body = _neighbor_body(packet)
    if len(body) < _NEIGHBOR.size:
        return None
    kind, code, _sum, _flags, target = _NEIGHBOR.unpack_from(body)
    mac = _target_mac(body[_NEIGHBOR.size :], sender)
    address = IPv6Address(target)
    if (kind, code) != (_NEIGHBOR_ADVERTISEMENT, 0) or mac is None or address.is_multicast:
        return None
    return AddressClaim(mac, address)


def _neighbor_body(packet: bytes) -> bytes:
    """Return the ICMPv6 message of an IPv6 packet; empty if it is not a valid neighbour message."""
    if len(packet) < _IPV6.size:
        return b""
    first, length, protocol, hop_limit, source, destination = _IPV6.unpack_from(packet)
    body = packet[_IPV6.size : _IPV6.size + length]
    is_whole = len(body) == length and length % 8 == 0
    is_fit = (first >> 28, protocol, hop_limit) == (_IPV6_VERSION, _ICMPV6, _HOP_LIMIT)
    if not is_whole or not is_fit or _checksum(source, destination, body):
        return b""
    return body


def _target_mac(options: bytes, sender: bytes) -> Optional[bytes]:
    """Return the target's link-layer address, else the sender's; None for invalid options."""
    mac = sender
    while options:
        size = options[1] * 8
        # RFC 4861, 4.6: an option of length 0 invalidates the whole message.
        if not 0 < size <= len(options):
            return None
        if options[0] == _TARGET_LINK_LAYER:
            mac = options[2:8]
        options = options[size:]
    return mac
