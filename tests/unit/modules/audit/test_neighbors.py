# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Requests are dissected, and replies built, by scapy; the lab tests real segments."""

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
INTERFACE = neighbors.QueryInterface("eth0", bytes.fromhex(MAC.replace(":", "")), OWN)
PARAMS = {
    "vips": ["172.28.1.220"],
    "skip_routed": False,
    "interface": None,
    "timeout": 0.1,
    "count": 1,
}


def request(vip, *own):
    frame = neighbors.build_request(
        INTERFACE._replace(addresses=tuple(map(ip_address, own)) or OWN), vip
    )
    return Ether(bytes(frame))


def arp(mac, vip=VIP4, to=MAC):
    reply = ARP(op=2, hwsrc=mac, psrc=str(vip), hwdst=to, pdst="172.28.1.3")
    return Ether(src=mac, dst=to) / reply


def advertisement(mac, vip=VIP6, to=MAC):
    reply = ICMPv6ND_NA(tgt=str(vip), S=1, R=0) / ICMPv6NDOptDstLLAddr(lladdr=mac)
    return Ether(src=mac, dst=to) / IPv6(src=str(vip), dst="fe80::3", hlim=255) / reply


def replies(*frames):
    claims = {VIP4: set(), VIP6: set()}
    for frame in frames:
        neighbors.record_reply(bytes(frame), INTERFACE.mac, claims)
    return {vip: sorted(mac.hex(":") for mac in macs) for vip, macs in claims.items()}


class TestRequest:
    def test_for_ipv4_it_is_an_arp_request(self):
        frame = request(VIP4)
        assert (frame.dst, frame.src) == ("ff:ff:ff:ff:ff:ff", MAC)
        assert (frame[ARP].op, frame[ARP].pdst) == (1, "172.28.1.220")
        assert (frame[ARP].hwsrc, frame[ARP].psrc) == (MAC, "172.28.1.3")

    def test_without_an_own_ipv4_address_it_is_an_arp_probe(self):
        assert request(VIP4, "fe80::3")[ARP].psrc == "0.0.0.0"  # noqa: S104

    def test_for_ipv6_it_is_a_solicitation_with_a_source_address(self):
        frame = request(VIP6)
        assert frame.dst == "33:33:ff:00:02:20"
        assert (frame[IPv6].dst, frame[IPv6].hlim) == ("ff02::1:ff00:220", 255)
        assert frame[ICMPv6ND_NS].tgt == "fd28::220"
        assert frame[IPv6].src == "fe80::3"

    def test_for_ipv6_an_own_address_is_required(self):
        with pytest.raises(PureLBError, match="eth0 has no IPv6 source address for fd28::220"):
            request(VIP6, "172.28.1.3")

    def test_the_source_is_never_the_requested_address(self):
        assert request(VIP4, "172.28.1.220", "172.28.1.3")[ARP].psrc == "172.28.1.3"


@pytest.mark.parametrize(("vip", "reply"), [(VIP4, arp), (VIP6, advertisement)], ids=["v4", "v6"])
class TestReply:
    def test_each_host_is_recorded_once(self, vip, reply):
        assert replies(reply(FIRST), reply(SECOND), reply(FIRST))[vip] == [FIRST, SECOND]

    def test_a_broadcast_or_a_reply_to_others_is_ignored(self, vip, reply):
        assert replies(reply(FIRST, to="ff:ff:ff:ff:ff:ff"), reply(FIRST, to=SECOND))[vip] == []

    def test_a_reply_for_another_address_is_ignored(self, vip, reply):
        assert replies(reply(FIRST, vip=vip + 1))[vip] == []


def test_other_frames_are_ignored():
    assert replies(b"", bytes(60), Ether(src=FIRST, dst=MAC)) == {VIP4: [], VIP6: []}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"count": 0}, "timeout and count must be greater than 0"),
        ({"timeout": 0.0}, "timeout and count must be greater than 0"),
        ({"vips": ["x"]}, "vips: 'x' is not an address"),
    ],
)
def test_invalid_parameters_are_refused(params, words):
    with pytest.raises(SettingError, match=words):
        neighbors.neighbor_info({**PARAMS, **params})


@pytest.mark.parametrize(("is_up", "state"), [(None, "does not exist"), (False, "is down")])
def test_an_unusable_interface_is_named_with_the_usable_ones(monkeypatch, is_up, state):
    found = [Interface(1, "lo", b"", True, "up", {}, ())]
    if is_up is not None:
        found.append(Interface(2, "eth9", b"", is_up, "down", {}, ()))
    monkeypatch.setattr(neighbors, "interfaces", lambda: found)
    with pytest.raises(PureLBError, match=f"interface: eth9 {state}; these are up: lo"):
        neighbors.neighbor_info({**PARAMS, "interface": "eth9"})


@pytest.mark.parametrize("vip", ["127.0.0.1", "::1"])
def test_an_address_that_is_not_on_a_segment_is_refused(vip):
    with pytest.raises(PureLBError, match="is not on a segment of this host"):
        neighbors.neighbor_info({**PARAMS, "vips": [vip]})
    found = neighbors.neighbor_info({**PARAMS, "vips": [vip], "skip_routed": True})
    assert found == {"changed": False, "answers": [], "skipped": [vip]}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(1, "Operation not permitted"), r"as root \(become: true\)"),
        (OSError(19, "No such device"), r"cannot use the interface eth0: .*No such device"),
    ],
    ids=["no permission", "removed interface"],
)
def test_a_socket_error_is_reported_with_its_cause(monkeypatch, error, words):
    def refuse(**_options):
        raise error

    monkeypatch.setattr(neighbors.conf, "L2socket", refuse)
    with pytest.raises(PureLBError, match=words):
        neighbors.query(INTERFACE, [VIP4], seconds=0.1, times=1)
