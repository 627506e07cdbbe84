# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Bytes of the frames that announce an address: gratuitous ARP and unsolicited NA.

Built here, sent elsewhere, so that each byte can be checked without a socket. ARP goes out both as
request and as reply, because some hosts listen only to one of them (RFC 5227, section 3). The
neighbour advertisement has the Override flag set and the Router flag clear (RFC 4861, 4.4): it
replaces what neighbours remember, and a VIP is no router.
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address
from typing import List

from .model import Address

_BROADCAST = b"\xff" * 6
_ALL_NODES = IPv6Address("ff02::1")
_ALL_NODES_MAC = bytes.fromhex("333300000001")
_ETHERTYPE_ARP, _ETHERTYPE_IPV6 = 0x0806, 0x86DD
_ARP_REQUEST, _ARP_REPLY = 1, 2
_ICMPV6, _NEIGHBOR_ADVERTISEMENT = 58, 136
_FLAG_OVERRIDE = 0x20000000
_TARGET_LINK_LAYER = 2


def _ethernet(destination: bytes, source: bytes, ethertype: int, payload: bytes) -> bytes:
    return destination + source + struct.pack("!H", ethertype) + payload


def build_arp(mac: bytes, address: IPv4Address, operation: int) -> bytes:
    """Gratuitous ARP frame: sender and target are both the address (RFC 826, RFC 5227)."""
    ethernet_ipv4 = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
    target_mac = b"\0" * 6 if operation == _ARP_REQUEST else _BROADCAST
    payload = ethernet_ipv4 + mac + address.packed + target_mac + address.packed
    return _ethernet(_BROADCAST, mac, _ETHERTYPE_ARP, payload)


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def build_na(mac: bytes, address: IPv6Address) -> bytes:
    """Unsolicited neighbour advertisement frame to all nodes (RFC 4861, 4.4 and 7.2.6)."""
    option = struct.pack("!BB", _TARGET_LINK_LAYER, 1) + mac
    head = struct.pack("!BBHI", _NEIGHBOR_ADVERTISEMENT, 0, 0, _FLAG_OVERRIDE)
    body = head + address.packed + option
    pseudo = address.packed + _ALL_NODES.packed + struct.pack("!II", len(body), _ICMPV6)
    checked = body[:2] + struct.pack("!H", _checksum(pseudo + body)) + body[4:]
    # Hop limit 255: a receiver drops a neighbour advertisement that may have crossed a router.
    header = struct.pack("!IHBB", 6 << 28, len(body), _ICMPV6, 255)
    packet = header + address.packed + _ALL_NODES.packed + checked
    return _ethernet(_ALL_NODES_MAC, mac, _ETHERTYPE_IPV6, packet)


def build_announcement(mac: bytes, address: Address) -> List[bytes]:
    """Frames that announce an address once."""
    if isinstance(address, IPv4Address):
        return [build_arp(mac, address, _ARP_REQUEST), build_arp(mac, address, _ARP_REPLY)]
    return [build_na(mac, address)]
