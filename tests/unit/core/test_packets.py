# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.packets import (
    build_announcement,
    build_arp,
    build_na,
)

MAC = bytes.fromhex("021b00000b01")
MAC_TEXT = "02:1b:00:00:0b:01"


@pytest.mark.parametrize(
    ("operation", "name", "target_mac"),
    [(1, "who-has", "00:00:00:00:00:00"), (2, "is-at", "ff:ff:ff:ff:ff:ff")],
)
def test_arp_is_what_scapy_encodes(operation, name, target_mac):
    vip = "172.28.1.220"
    expected = Ether(dst="ff:ff:ff:ff:ff:ff", src=MAC_TEXT) / ARP(
        op=name, hwsrc=MAC_TEXT, psrc=vip, hwdst=target_mac, pdst=vip
    )
    assert build_arp(MAC, ip_address(vip), operation) == bytes(expected)


@given(st.ip_addresses(v=6), st.binary(min_size=6, max_size=6))
def test_na_is_what_scapy_encodes(vip, mac):
    expected = (
        Ether(dst="33:33:00:00:00:01", src=mac.hex(":"))
        / IPv6(src=str(vip), dst="ff02::1", hlim=255)
        / ICMPv6ND_NA(R=0, S=0, O=1, tgt=str(vip))
        / ICMPv6NDOptDstLLAddr(lladdr=mac.hex(":"))
    )
    assert build_na(mac, vip) == bytes(expected)


def test_an_ipv4_address_is_announced_as_request_and_as_reply():
    frames = [Ether(f) for f in build_announcement(MAC, ip_address("172.28.1.220"))]
    assert [frame[ARP].op for frame in frames] == [1, 2]
    assert {(frame[ARP].psrc, frame[ARP].pdst) for frame in frames} == {("172.28.1.220",) * 2}


def test_an_ipv6_address_is_announced_as_one_unsolicited_advertisement():
    (frame,) = map(Ether, build_announcement(MAC, ip_address("fd28::220")))
    advertisement = frame[ICMPv6ND_NA]
    assert (advertisement.R, advertisement.S, advertisement.O) == (0, 0, 1)
