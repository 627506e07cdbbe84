# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The frames of a stranger that asks who has an address, read by another program."""

from __future__ import annotations

import pytest
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, IPv6
from scapy.layers.l2 import ARP, Ether

from labkit.probe.wire import answered, question

SOURCES = ("172.29.0.250", "fe80::fefe")
MAC, OTHER = "02:00:00:00:fe:fe", "02:00:00:00:00:0a"


def test_arp_request():
    frame = Ether(question("172.29.16.1", SOURCES))
    assert (frame.src, frame.dst) == (MAC, "ff:ff:ff:ff:ff:ff")
    assert (frame[ARP].op, frame[ARP].psrc, frame[ARP].pdst) == (1, SOURCES[0], "172.29.16.1")


def test_neighbor_solicitation():
    frame = Ether(question("fd28::1:0:0:1:2abc", SOURCES))
    assert (frame.dst, frame[IPv6].dst) == ("33:33:ff:01:2a:bc", "ff02::1:ff01:2abc")
    assert frame[ICMPv6ND_NS].tgt == "fd28::1:0:0:1:2abc"
    assert frame[IPv6].hlim == 255


ARP_REPLY = ARP(op="is-at", hwsrc=OTHER, psrc="172.29.16.1", hwdst=MAC, pdst=SOURCES[0])
ADVERTISEMENT = IPv6(src="fd28::9", dst=SOURCES[1]) / ICMPv6ND_NA(tgt="fd28::9")


@pytest.mark.parametrize(
    ("frame", "address"),
    [
        pytest.param(Ether(src=OTHER, dst=MAC) / ARP_REPLY, "172.29.16.1", id="ARP"),
        pytest.param(Ether(src=OTHER, dst=MAC) / ADVERTISEMENT, "fd28::9", id="NDP"),
    ],
)
def test_answers(frame, address):
    assert answered(bytes(frame)) == (address, OTHER)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(Ether(src=OTHER, dst="02:00:00:00:00:01") / ARP_REPLY, id="to another"),
        pytest.param(Ether(src=OTHER, dst=MAC) / ARP(op="who-has", pdst=SOURCES[0]), id="request"),
        pytest.param(
            Ether(src=OTHER, dst=MAC) / IPv6() / ICMPv6ND_NS(tgt="fd28::9"), id="solicitation"
        ),
    ],
)
def test_other_frames_are_no_answers(frame):
    assert answered(bytes(frame)) is None
