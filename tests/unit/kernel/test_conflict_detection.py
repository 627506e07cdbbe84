# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Another host has one of our addresses, on a real segment of two namespaces."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from ipaddress import IPv4Address, ip_address

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    IPv6,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether

from labkit.net.namespaces import ip_batch, netns
from purelb.core.node.conflicts import DuplicateAddress
from purelb.core.node.packets import build_announcement
from purelb_agent.node.conflicts import ConflictListener
from purelb_agent.node.netlink import Kernel
from purelb_agent.node.sockets import FrameSender, listen_for_claims
from purelb_agent.runtime import clock
from tests.support.agent.frames import received

pytestmark = pytest.mark.timeout(60)
US, THEM = f"plbconf-{os.getpid()}-us", f"plbconf-{os.getpid()}-them"
THEIR_MAC = "02:1b:00:00:0c:02"
BROADCAST = "ff:ff:ff:ff:ff:ff"
EVERY_PROTOCOL = 3
UNSPECIFIED = str(IPv4Address(0))
BOTH = pytest.mark.parametrize(
    "vip", [ip_address("198.18.0.220"), ip_address("fd28:0:0:9::220")], ids=["v4", "v6"]
)


def announcement(vip, mac=THEIR_MAC):
    """Return the frame by which a host announces an address."""
    if vip.version == 4:
        arp = ARP(op=1, hwsrc=mac, psrc=str(vip), pdst=str(vip))
        return bytes(Ether(dst=BROADCAST, src=mac) / arp)
    return bytes(
        Ether(dst="33:33:00:00:00:01", src=mac)
        / IPv6(src=str(vip), dst="ff02::1", hlim=255)
        / ICMPv6ND_NA(tgt=str(vip), R=0)
        / ICMPv6NDOptDstLLAddr(lladdr=mac)
    )


class Segment:
    """A cable between this node, in whose namespace the test runs, and another host."""

    def __init__(self) -> None:
        ip_batch([f"netns add {US}", f"netns add {THEM}"])
        self.connect()

    def connect(self):
        peer = f"peer name eth0 address {THEIR_MAC} netns {THEM}"
        ip_batch([f"link add eth0 type veth {peer}", "link set eth0 up"], namespace=US)
        ip_batch(["link set eth0 up"], namespace=THEM)
        with netns(THEM):
            self.theirs = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self.theirs.bind(("eth0", EVERY_PROTOCOL))
        self.theirs.setblocking(False)

    def they_take(self, vip):
        ip_batch([f"addr add {vip}/{vip.max_prefixlen} dev eth0 nodad"], namespace=THEM)

    def they_send(self, frame):
        self.theirs.send(frame)

    def they_hear(self):
        """Return the frames that the other host has received so far."""
        heard = []
        while True:
            try:
                heard.append(Ether(self.theirs.recv(2048)))
            except BlockingIOError:
                return heard

    def disconnect(self):
        self.theirs.close()
        ip_batch(["link del eth0"], namespace=US)

    def close(self):
        self.theirs.close()
        ip_batch([f"netns del {US}", f"netns del {THEM}"], force=True)


@pytest.fixture
def segment() -> Iterator[Segment]:
    made = None
    try:
        made = Segment()
        with netns(US):
            yield made
    finally:
        if made:
            made.close()
        else:
            ip_batch([f"netns del {US}", f"netns del {THEM}"], force=True)


class Node:
    """A running conflict listener, with the kernel's interfaces."""

    def __init__(self) -> None:
        self.conflicts = []
        self.kernel = Kernel()
        self.sender = FrameSender()
        self.listener = ConflictListener(self.conflicts.append, sender=self.sender)
        self.held = frozenset()

    @property
    def link(self):
        return next(link for link in self.kernel.links() if link.name == "eth0")

    def holds(self, *vips):
        """Replace the held addresses."""
        self.held = frozenset((self.link.index, vip) for vip in vips)
        self.update()

    def update(self):
        self.listener.update(self.held, self.kernel.links(), nodes={}, now=clock.now())

    async def notices(self, vip, *, seconds, begin=None):
        """Wait for a conflict; return the seconds from `begin`, or from now, until the report."""
        begin = begin or time.monotonic()
        while not self.conflicts:
            assert time.monotonic() - begin < seconds, f"no conflict within {seconds} s"
            await asyncio.sleep(0.01)
        mac = bytes.fromhex(THEIR_MAC.replace(":", ""))
        assert self.conflicts == [DuplicateAddress(vip, self.link.index, mac)]
        return time.monotonic() - begin


@pytest.fixture
async def node(segment):
    made = Node()
    task = asyncio.create_task(made.listener.run())
    yield made
    ended = task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    made.listener.close()
    made.sender.close()
    made.kernel.close()
    assert not ended, "the listener's task ended"


@BOTH
async def test_host_with_the_address_is_reported_once(segment, node, vip):
    segment.they_take(vip)
    # Before the listener's own reading of the clock: it may take a while to open its socket.
    begin = time.monotonic()
    node.holds(vip)
    assert await node.notices(vip, seconds=6, begin=begin) > 2.9
    segment.they_send(announcement(vip))
    await asyncio.sleep(1.5)
    assert len(node.conflicts) == 1


@pytest.mark.thorough
@BOTH
async def test_announcing_host_is_reported_after_the_confirming_probe(segment, node, vip):
    node.holds(vip)
    segment.they_take(vip)
    segment.they_send(announcement(vip))
    # Sooner than by the regular probe.
    assert 0.9 < await node.notices(vip, seconds=3) < 2.9


@pytest.mark.thorough
@BOTH
async def test_announcement_without_an_answer_to_the_probe_is_no_conflict(segment, node, vip):
    node.holds(vip)
    segment.they_send(announcement(vip))
    await asyncio.sleep(2.5)
    assert node.conflicts == []


@pytest.mark.thorough
@BOTH
async def test_own_frames_are_no_conflict(segment, node, vip):
    ip_batch([f"addr add {vip}/{vip.max_prefixlen} dev eth0 nodad"], namespace=US)
    node.holds(vip)
    with closing(FrameSender()) as sender:
        for _time in range(8):
            sender.send("eth0", build_announcement(node.link.mac, vip))
            await asyncio.sleep(0.5)
    assert node.conflicts == []
    probes = [frame for frame in segment.they_hear() if asks_for(frame, vip)]
    assert len(probes) == 1


def asks_for(frame, vip):
    if ARP in frame:
        return (frame[ARP].psrc, frame[ARP].pdst) == (UNSPECIFIED, str(vip))
    return ICMPv6ND_NS in frame and (frame[IPv6].src, frame[ICMPv6ND_NS].tgt) == ("::", str(vip))


@pytest.mark.thorough
@BOTH
async def test_address_released_before_the_probe_is_no_conflict(segment, node, vip):
    node.holds(vip)
    segment.they_take(vip)
    segment.they_send(announcement(vip))
    await asyncio.sleep(0.5)
    node.holds()
    segment.they_send(announcement(vip))
    await asyncio.sleep(2.0)
    assert node.conflicts == []
    assert not [frame for frame in segment.they_hear() if asks_for(frame, vip)]


@pytest.mark.thorough
@BOTH
async def test_recreated_interface_is_listened_to_again(segment, node, vip):
    node.holds(vip)
    await asyncio.sleep(0.1)
    segment.disconnect()
    await asyncio.sleep(0.1)
    node.update()
    segment.connect()
    segment.they_take(vip)
    node.holds(vip)
    segment.they_send(announcement(vip))
    await node.notices(vip, seconds=3)


@pytest.mark.thorough
@BOTH
async def test_interface_deleted_without_notice_stops_nothing(segment, node, vip):
    node.holds(vip)
    segment.disconnect()
    await asyncio.sleep(2.5)
    assert node.conflicts == []


@pytest.mark.thorough
@BOTH
async def test_interface_that_was_down_is_listened_to_again(segment, node, vip):
    node.holds(vip)
    ip_batch(["link set eth0 down", "link set eth0 up"], namespace=US)
    await asyncio.sleep(0.1)
    node.update()
    segment.they_take(vip)
    segment.they_send(announcement(vip))
    await node.notices(vip, seconds=3)


def reply(**fields):
    return ARP(op=2, hwsrc=THEIR_MAC, psrc="198.18.0.220", pdst="198.18.0.1", **fields)


def test_kernel_filter_passes_only_possible_claims(segment):
    own = Ether(dst=BROADCAST, src=THEIR_MAC)
    vip4, vip6 = ip_address("198.18.0.220"), ip_address("fd28:0:0:9::220")
    others = [
        own / ARP(op=1, hwsrc=THEIR_MAC, psrc="198.18.0.220", pdst="198.18.0.1"),
        own / Dot1Q(vlan=100) / reply(),
        own / Dot1Q(vlan=100) / IPv6(hlim=255) / ICMPv6ND_NA(tgt=str(vip6)),
        own / IPv6(dst="ff02::1", hlim=255) / ICMPv6ND_NS(tgt=str(vip6)),
        own / IPv6(dst="ff02::1") / ICMPv6EchoRequest(),
        # 136 at the offset of an ICMPv6 type.
        own / IPv6(dst="ff02::1", nh=17) / bytes([136] * 32),
        own / IP(dst="198.18.0.1") / ICMP(),
        own / IP(dst="198.18.0.1") / UDP(sport=53) / bytes(512),
        own / bytes(2),
        Ether(dst=BROADCAST, src=THEIR_MAC, type=0x0806) / bytes(6),
    ]
    claims = [
        bytes(own / reply()),
        announcement(vip4),
        announcement(vip6),
        bytes(Ether(dst=BROADCAST, src=THEIR_MAC) / IPv6(hlim=255) / ICMPv6ND_NA(tgt=str(vip6))),
    ]
    with listen_for_claims("eth0") as ear, closing(FrameSender()) as sender:
        for frame in [*map(bytes, others * 10), *claims, bytes(own / Dot1Q(vlan=0) / reply())]:
            segment.they_send(frame)
        sender.send("eth0", [bytes(own / reply())])
        # The kernel removes a tag that has only a priority.
        expected = [*claims, claims[0]]
        assert received(ear, len(expected)) == expected


@pytest.mark.thorough
def test_listening_on_a_deleted_interface_raises(segment):
    with pytest.raises(OSError, match="No such device"):
        listen_for_claims("eth9")
