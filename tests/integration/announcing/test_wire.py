# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The frames on the segment when a node gets an address."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from labkit.probe.addresses import nodes_with
from tests.support.lab.cluster_queries import Wire, addresses_of, delete_agent, eventually, holder
from tests.support.lab.faults import agents_replaced

pytestmark = pytest.mark.timeout(90)
# One immediately, then the default sequence of three.
SEQUENCE = 4


@pytest.fixture
def wire(cluster) -> Iterator[Wire]:
    opened = Wire(cluster)
    yield opened
    opened.close()


def arps(wire, vip):
    return [f for _time, f in wire.frames() if ARP in f and f[ARP].psrc == f[ARP].pdst == vip]


def advertisements(wire, vip):
    """Return the unsolicited advertisements, which go to all nodes."""
    return [
        f
        for _time, f in wire.frames()
        if ICMPv6ND_NA in f and f[ICMPv6ND_NA].tgt == vip and f[IPv6].dst == "ff02::1"
    ]


def mac_of(lab, node):
    return lab.nodes[node].interfaces[0].mac


def test_new_ipv4_address_is_announced_by_arp_request_and_reply(cluster, make_service, wire):
    vip4, _vip6 = addresses_of(cluster, make_service())
    seen = eventually(
        lambda: (s := arps(wire, vip4)) and len(s) >= 2 * SEQUENCE and s, "ARP sequence"
    )
    assert {f[ARP].op for f in seen} == {1, 2}
    assert {f[ARP].hwsrc for f in seen} == {mac_of(cluster, holder(cluster, vip4))}
    assert {f[Ether].dst for f in seen} == {"ff:ff:ff:ff:ff:ff"}


def test_new_ipv6_address_is_announced_by_unsolicited_advertisement(cluster, make_service, wire):
    _vip4, vip6 = addresses_of(cluster, make_service())
    seen = eventually(
        lambda: (s := advertisements(wire, vip6)) and len(s) >= SEQUENCE and s, "NA sequence"
    )
    mac = mac_of(cluster, holder(cluster, vip6))
    for frame in seen:
        flags = frame[ICMPv6ND_NA]
        assert (flags.R, flags.S, flags.O, frame[IPv6].hlim) == (0, 0, 1, 255)
        assert frame[ICMPv6NDOptDstLLAddr].lladdr == mac
        checksum = flags.cksum
        del flags.cksum
        assert Ether(bytes(frame))[ICMPv6ND_NA].cksum == checksum


@pytest.mark.thorough
def test_new_addresses_are_announced_by_one_sequence_alone(cluster, make_service, wire):
    vip4, vip6 = addresses_of(cluster, make_service())

    def counts():
        return len(arps(wire, vip4)), len(advertisements(wire, vip6))

    eventually(lambda: counts()[0] >= 2 * SEQUENCE and counts()[1] >= SEQUENCE, "both sequences")
    time.sleep(1)
    assert counts() == (2 * SEQUENCE, SEQUENCE)


@pytest.mark.thorough
def test_next_holder_announces_with_its_own_mac(cluster, make_service, wire):
    vip4, vip6 = addresses_of(cluster, make_service())
    for vip, look in ((vip4, arps), (vip6, advertisements)):
        # The agent that was deleted first may still be terminating, on the same node.
        eventually(lambda: agents_replaced(cluster), "new agents", seconds=60)
        first = holder(cluster, vip)
        delete_agent(cluster, first)
        taker = eventually(lambda v=vip, f=first: nodes_with(cluster, v) - {f}, "next holder").pop()
        eventually(
            lambda v=vip, see=look, t=taker: any(f.src == mac_of(cluster, t) for f in see(wire, v)),
            "announcement by the next holder",
        )


@pytest.mark.thorough
def test_withdrawn_address_is_not_announced_any_more(cluster, make_service, wire):
    path = make_service()
    vip4, vip6 = addresses_of(cluster, path)
    cluster.api.delete(path)
    eventually(lambda: not nodes_with(cluster, vip4) | nodes_with(cluster, vip6), "withdrawal")
    count = len(arps(wire, vip4)) + len(advertisements(wire, vip6))
    with pytest.raises(AssertionError, match="announcement"):
        eventually(
            lambda: len(arps(wire, vip4)) + len(advertisements(wire, vip6)) > count,
            "announcement",
            seconds=1.5,
        )
