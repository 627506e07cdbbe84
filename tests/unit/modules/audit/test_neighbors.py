# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Questions are taken apart, and answers made, by scapy; the wire itself is the lab's."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

pytest.importorskip("scapy")
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from purelb.audit import neighbors
from purelb.audit.netlink import Interface
from purelb.core.errors import PureLBError, SettingError

VIP4, VIP6 = ip_address("172.28.1.220"), ip_address("fd28::220")
MAC, FIRST, SECOND = "02:00:00:00:00:03", "02:00:00:00:00:11", "02:00:00:00:00:12"
OWN = tuple(map(ip_address, ("172.28.1.3", "fd28::3", "fe80::3")))
PLACE = neighbors.Place("eth0", bytes.fromhex(MAC.replace(":", "")), OWN)
PARAMS = {"vips": ["172.28.1.220"], "interface": None, "timeout": 0.1, "count": 1}


def question(vip, *own):
    frame = neighbors.build_question(
        PLACE._replace(addresses=tuple(map(ip_address, own)) or OWN), vip
    )
    return Ether(bytes(frame))


def arp(mac, vip=VIP4, to=MAC):
    reply = ARP(op=2, hwsrc=mac, psrc=str(vip), hwdst=to, pdst="172.28.1.3")
    return Ether(src=mac, dst=to) / reply


def advertisement(mac, vip=VIP6, to=MAC):
    reply = ICMPv6ND_NA(tgt=str(vip), S=1, R=0) / ICMPv6NDOptDstLLAddr(lladdr=mac)
    return Ether(src=mac, dst=to) / IPv6(src=str(vip), dst="fe80::3", hlim=255) / reply


def heard(*frames):
    claims = {VIP4: set(), VIP6: set()}
    for frame in frames:
        neighbors.heard(bytes(frame), PLACE.mac, claims)
    return {vip: sorted(mac.hex(":") for mac in macs) for vip, macs in claims.items()}


class TestAQuestion:
    def test_for_ipv4_is_the_arp_request_of_a_client(self):
        frame = question(VIP4)
        assert (frame.dst, frame.src) == ("ff:ff:ff:ff:ff:ff", MAC)
        assert (frame[ARP].op, frame[ARP].pdst) == (1, "172.28.1.220")
        assert (frame[ARP].hwsrc, frame[ARP].psrc) == (MAC, "172.28.1.3")

    def test_for_ipv4_without_an_own_address_is_a_probe(self):
        assert question(VIP4, "fe80::3")[ARP].psrc == "0.0.0.0"  # noqa: S104

    def test_for_ipv6_is_a_solicitation_and_none_of_duplicate_address_detection(self):
        frame = question(VIP6)
        assert frame.dst == "33:33:ff:00:02:20"
        assert (frame[IPv6].dst, frame[IPv6].hlim) == ("ff02::1:ff00:220", 255)
        assert frame[ICMPv6ND_NS].tgt == "fd28::220"
        assert frame[IPv6].src == "fe80::3"

    def test_for_ipv6_needs_an_own_address(self):
        with pytest.raises(PureLBError, match="eth0 has no IPv6 address to ask for fd28::220"):
            question(VIP6, "172.28.1.3")

    def test_never_comes_from_the_address_that_it_asks_for(self):
        assert question(VIP4, "172.28.1.220", "172.28.1.3")[ARP].psrc == "172.28.1.3"


@pytest.mark.parametrize(("vip", "answer"), [(VIP4, arp), (VIP6, advertisement)], ids=["v4", "v6"])
class TestAnAnswer:
    def test_is_noted_once_for_each_host(self, vip, answer):
        assert heard(answer(FIRST), answer(SECOND), answer(FIRST))[vip] == [FIRST, SECOND]

    def test_to_everybody_is_an_announcement_and_none(self, vip, answer):
        assert heard(answer(FIRST, to="ff:ff:ff:ff:ff:ff"), answer(FIRST, to=SECOND))[vip] == []

    def test_about_another_address_is_none(self, vip, answer):
        assert heard(answer(FIRST, vip=vip + 1))[vip] == []


def test_what_is_neither_is_no_answer():
    assert heard(b"", bytes(60), Ether(src=FIRST, dst=MAC)) == {VIP4: [], VIP6: []}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"count": 0}, "timeout and count must be more than 0"),
        ({"timeout": 0.0}, "timeout and count must be more than 0"),
        ({"vips": ["x"]}, "vips: 'x' is not an address"),
    ],
)
def test_what_cannot_be_asked_is_refused(params, words):
    with pytest.raises(SettingError, match=words):
        neighbors.neighbor_info({**PARAMS, **params})


@pytest.mark.parametrize(("is_up", "state"), [(None, "is not there"), (False, "is down")])
def test_an_interface_that_cannot_be_used_is_named_with_those_that_can(monkeypatch, is_up, state):
    found = [Interface(1, "lo", b"", True, "up", {}, ())]
    if is_up is not None:
        found.append(Interface(2, "eth9", b"", is_up, "down", {}, ()))
    monkeypatch.setattr(neighbors, "interfaces", lambda: found)
    with pytest.raises(PureLBError, match=f"interface: eth9 {state}; up are: lo"):
        neighbors.neighbor_info({**PARAMS, "interface": "eth9"})


@pytest.mark.parametrize("vip", ["127.0.0.1", "::1"])
def test_an_address_behind_no_segment_is_refused(vip):
    with pytest.raises(PureLBError, match="is not on a segment of this host"):
        neighbors.neighbor_info({**PARAMS, "vips": [vip]})


def test_who_may_not_send_frames_is_told_how_to(monkeypatch):
    def refuse(**_options):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(neighbors.conf, "L2socket", refuse)
    with pytest.raises(PureLBError, match=r"as root \(become: true\)"):
        neighbors.ask(PLACE, [VIP4], seconds=0.1, times=1)


def test_an_interface_that_went_away_is_named(monkeypatch):
    def refuse(**_options):
        raise OSError(19, "No such device")

    monkeypatch.setattr(neighbors.conf, "L2socket", refuse)
    with pytest.raises(PureLBError, match=r"cannot use the interface eth0: .*No such device"):
        neighbors.ask(PLACE, [VIP4], seconds=0.1, times=1)
