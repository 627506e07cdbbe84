# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import IPv4Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
)
from scapy.layers.l2 import ARP, Ether

from purelb.core.node.packets import (
    AddressClaim,
    build_announcement,
    build_arp,
    build_na,
    build_probe,
    parse_claim,
)

MAC = bytes.fromhex("021b00000b01")
MAC_TEXT = "02:1b:00:00:0b:01"
OTHER = bytes.fromhex("021b00000c02")
OTHER_TEXT = "02:1b:00:00:0c:02"
MACS = st.binary(min_size=6, max_size=6)
VIP4, VIP6 = "172.28.1.220", "fd28::220"
UNSPECIFIED = str(IPv4Address(0))


@pytest.mark.parametrize(
    ("operation", "name", "target_mac"),
    [(1, "who-has", "00:00:00:00:00:00"), (2, "is-at", "ff:ff:ff:ff:ff:ff")],
)
def test_arp_equals_scapy(operation, name, target_mac):
    vip = "172.28.1.220"
    expected = Ether(dst="ff:ff:ff:ff:ff:ff", src=MAC_TEXT) / ARP(
        op=name, hwsrc=MAC_TEXT, psrc=vip, hwdst=target_mac, pdst=vip
    )
    assert build_arp(MAC, ip_address(vip), operation) == bytes(expected)


@given(st.ip_addresses(v=6), st.binary(min_size=6, max_size=6))
def test_na_equals_scapy(vip, mac):
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


@given(st.ip_addresses(v=4), MACS)
def test_arp_probe_equals_scapy(vip, mac):
    expected = Ether(dst="ff:ff:ff:ff:ff:ff", src=mac.hex(":")) / ARP(
        op="who-has", hwsrc=mac.hex(":"), psrc=UNSPECIFIED, hwdst="00:00:00:00:00:00", pdst=str(vip)
    )
    assert build_probe(mac, vip) == bytes(expected)


@given(st.ip_addresses(v=6), MACS)
def test_solicitation_equals_scapy(vip, mac):
    group = ip_address(int(ip_address("ff02::1:ff00:0")) | int(vip) & 0xFFFFFF)
    group_mac = b"\x33\x33" + group.packed[-4:]
    expected = (
        Ether(dst=group_mac.hex(":"), src=mac.hex(":"))
        / IPv6(src="::", dst=str(group), hlim=255)
        / ICMPv6ND_NS(tgt=str(vip))
    )
    assert build_probe(mac, vip) == bytes(expected)


def test_scapy_reads_no_sender_in_a_probe():
    assert Ether(build_probe(MAC, ip_address(VIP4)))[ARP].psrc == UNSPECIFIED
    frame = Ether(build_probe(MAC, ip_address(VIP6)))
    assert (frame[IPv6].src, frame.src) == ("::", MAC_TEXT)
    assert ICMPv6NDOptSrcLLAddr not in frame


def arp(**fields):
    """What a host that has the address says about itself, unless told otherwise."""
    told = {"op": 2, "hwsrc": OTHER_TEXT, "psrc": VIP4, "hwdst": MAC_TEXT, "pdst": "172.28.1.1"}
    return Ether(dst=MAC_TEXT, src=OTHER_TEXT) / ARP(**{**told, **fields})


def advertisement(*options, target=VIP6, **header):
    fields = {"src": "fd28::1", "dst": "ff02::1", "hlim": 255, **header}
    frame = Ether(dst="33:33:00:00:00:01", src=OTHER_TEXT) / IPv6(**fields)
    frame /= ICMPv6ND_NA(tgt=target, R=0)
    for option in options:
        frame /= option
    return frame


LINK_LAYER = ICMPv6NDOptDstLLAddr(lladdr=OTHER_TEXT)
CLAIM4, CLAIM6 = AddressClaim(OTHER, ip_address(VIP4)), AddressClaim(OTHER, ip_address(VIP6))


@pytest.mark.parametrize(
    ("frame", "claim"),
    [
        pytest.param(arp(), CLAIM4, id="reply"),
        pytest.param(arp(op=1), CLAIM4, id="request"),
        pytest.param(arp(op=1, pdst=VIP4), CLAIM4, id="announcement"),
        pytest.param(arp() / bytes(18), CLAIM4, id="padded"),
        pytest.param(advertisement(LINK_LAYER), CLAIM6, id="advertisement"),
        pytest.param(advertisement(), CLAIM6, id="advertisement without a link-layer address"),
        pytest.param(
            advertisement(ICMPv6NDOptDstLLAddr(lladdr=MAC_TEXT)),
            AddressClaim(MAC, ip_address(VIP6)),
            id="advertisement on behalf of another",
        ),
        pytest.param(
            advertisement(ICMPv6NDOptSrcLLAddr(lladdr=MAC_TEXT), LINK_LAYER),
            CLAIM6,
            id="advertisement with an option that does not belong there",
        ),
    ],
)
def test_scapy_frame_is_parsed_as_a_claim(frame, claim):
    assert parse_claim(bytes(frame)) == claim


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(arp(op=1, psrc=UNSPECIFIED, pdst=VIP4), id="ARP probe"),
        pytest.param(arp(op=3), id="reverse ARP"),
        pytest.param(arp(hwtype=6), id="ARP of another link layer"),
        pytest.param(arp(ptype=0x86DD), id="ARP for another protocol"),
        pytest.param(advertisement(hlim=254), id="advertisement that crossed a router"),
        pytest.param(advertisement(nh=17), id="another protocol"),
        pytest.param(advertisement(version=5), id="another IP version"),
        pytest.param(advertisement(plen=200), id="shorter than it says"),
        pytest.param(advertisement(plen=16), id="too short for an advertisement"),
        pytest.param(advertisement(LINK_LAYER, plen=28), id="half an option"),
        pytest.param(advertisement(target="ff02::1"), id="multicast target"),
        pytest.param(advertisement(ICMPv6NDOptDstLLAddr(len=0)), id="option without length"),
        pytest.param(advertisement(ICMPv6NDOptDstLLAddr(len=2)), id="option longer than the rest"),
        pytest.param(
            Ether() / IPv6(src="::1", dst="ff02::1", hlim=255) / ICMPv6ND_NA(tgt=VIP6, cksum=1),
            id="wrong checksum",
        ),
        pytest.param(
            Ether() / IPv6(src="::1", dst="ff02::1", hlim=255) / ICMPv6ND_NA(tgt=VIP6, code=1),
            id="unknown code",
        ),
        pytest.param(
            Ether() / IPv6(src="::1", dst="ff02::1", hlim=255) / ICMPv6ND_NS(tgt=VIP6),
            id="solicitation",
        ),
        pytest.param(
            Ether() / IPv6(src="::1", dst="::2", hlim=255) / ICMPv6EchoReply(data=bytes(16)),
            id="answer to a ping",
        ),
        pytest.param(Ether(type=0x0800) / bytes(64), id="IPv4"),
    ],
)
def test_any_other_frame_is_no_claim(frame):
    assert parse_claim(bytes(frame)) is None


HOSTS = st.ip_addresses().filter(lambda address: int(address) and not address.is_multicast)


@given(HOSTS, MACS)
def test_each_announcement_is_a_claim_of_its_sender_and_no_probe_is_one(vip, mac):
    assert {parse_claim(frame) for frame in build_announcement(mac, vip)} == {
        AddressClaim(mac, vip)
    }
    assert parse_claim(build_probe(mac, vip)) is None


@pytest.mark.parametrize(
    "whole", [bytes(arp()), bytes(advertisement(LINK_LAYER))], ids=["v4", "v6"]
)
def test_a_truncated_claim_is_none(whole):
    assert {parse_claim(whole[:size]) for size in range(len(whole))} == {None}


HEADS = st.sampled_from([b"", bytes(arp())[:22], bytes(advertisement())[:14]])


@given(HEADS, st.binary(max_size=128))
def test_no_frame_crashes_the_parser(head, rest):
    claim = parse_claim(head + rest)
    assert claim is None or len(claim.mac) == 6


@given(st.data())
def test_no_damaged_claim_crashes_the_parser(data):
    whole = bytearray(data.draw(st.sampled_from([arp(), advertisement(LINK_LAYER)])).build())
    where = data.draw(st.integers(0, len(whole) - 1))
    whole[where] = data.draw(st.integers(0, 255))
    claim = parse_claim(bytes(whole))
    assert claim is None or len(claim.mac) == 6
