# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from purelb.core.model import Link
from purelb.core.node.packets import build_announcement
from purelb.core.settings import AnnounceConfig
from purelb_agent.node.announcer import Announcer
from purelb_agent.node.metrics import NodeMetrics
from tests.support.agent.logs import Logged
from tests.support.core.snapshots import ETH0, VIP4, VIP6

BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
ETH1 = Link(3, "eth1", b"\x02\0\0\0\0\x03")
# Sent at 0.0, 0.5, 1.5 and 2.5 after an address became usable.
CONFIG = AnnounceConfig(count=3, interval=1.0, delay=0.5)
TIMES = [0.0, 0.5, 1.5, 2.5]


class FakeSender:
    """Records the frames by interface, and fails where it is told to."""

    def __init__(self):
        self.sent = []
        self.failures = {}

    def send(self, interface, frames):
        if interface in self.failures:
            code = self.failures[interface]
            raise OSError(code, os.strerror(code))
        self.sent.append((interface, *frames))


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def count(registry):
    return lambda name: registry.get_sample_value(f"purelb_lbnodeagent_{name}_total")


@pytest.fixture
def sender():
    return FakeSender()


class Node:
    """An announcer with what it is called with, and the loop that calls it."""

    def __init__(self, sender, registry):
        self.sender = sender
        self.announcer = Announcer(NodeMetrics(registry).announcements, sender=sender)
        self.links = (ETH0, ETH1)
        self.config = CONFIG

    def announce(self, *places, fresh=(), again=(), now=0.0):
        """Announce once; the frames that were sent."""
        before = len(self.sender.sent)
        self.announcer.announce(
            frozenset(places), set(fresh), self.links, self.config, again=again, now=now
        )
        return self.sender.sent[before:]

    def run(self, *places, until=10.0):
        """Announce whenever something is due; the times at which frames were sent."""
        times, now = [], 0.0
        while now is not None and now <= until:
            if self.announce(*places, now=now):
                times.append(now)
            now = self.announcer.next_at
        return times


@pytest.fixture
def node(sender, registry):
    return Node(sender, registry)


@BOTH
class TestSequence:
    def test_a_usable_address_is_announced_at_once_and_then_in_sequence(self, node, count, vip):
        assert node.run((2, vip)) == TIMES
        frames = ("eth0", *build_announcement(ETH0.mac, vip))
        assert node.sender.sent == [frames] * 4
        counts = {4: 0, 6: 0, vip.version: 4}
        assert (count("garp_sent"), count("na_sent")) == (counts[4], counts[6])
        assert node.announcer.next_at is None

    def test_an_address_that_stays_is_not_announced_again(self, node, vip):
        node.run((2, vip))
        assert node.announce((2, vip), now=60.0) == []

    def test_a_fresh_address_starts_its_sequence_again(self, node, vip):
        node.run((2, vip))
        assert node.announce((2, vip), fresh=[(2, vip)], now=60.0)
        assert node.announcer.next_at == 60.5

    def test_an_address_that_goes_again_is_announced_once(self, node, vip):
        frames = ("eth0", *build_announcement(ETH0.mac, vip))
        assert node.announce((2, vip), again=[(2, vip)]) == [frames]
        node.run((2, vip))
        assert node.announce((2, vip), again=[(2, vip)], now=60.0) == [frames]
        assert node.announce(again=[(2, vip)], now=90.0) == []
        assert node.announcer.next_at is None

    def test_without_announcements_none_goes_again(self, node, vip):
        node.config = replace(CONFIG, enabled=False)
        assert node.announce((2, vip), again=[(2, vip)]) == []

    def test_a_fresh_address_that_is_not_usable_is_not_announced(self, node, vip):
        assert node.announce(fresh=[(2, vip)]) == []
        assert node.announcer.next_at is None

    def test_an_address_that_is_back_is_announced_again(self, node, vip):
        node.run((2, vip))
        node.announce(now=60.0)
        assert node.announce((2, vip), now=61.0)

    def test_a_lost_address_is_announced_no_more(self, node, vip):
        node.announce((2, vip))
        assert node.announce(now=0.5) == []
        assert node.announcer.next_at is None

    def test_without_verification_a_sequence_continues_after_the_loss(self, node, vip):
        node.config = replace(CONFIG, verify=False)
        node.announce((2, vip))
        assert node.run() == TIMES[1:]

    def test_missed_frames_are_sent_once(self, node, vip):
        node.announce((2, vip))
        assert len(node.announce((2, vip), now=2.0)) == 1
        assert node.announcer.next_at == 2.5

    def test_nothing_is_sent_when_announcing_is_disabled(self, node, vip):
        node.config = replace(CONFIG, enabled=False)
        assert node.run((2, vip)) == []


def test_addresses_of_a_link_are_sent_together(node, count):
    sent = node.announce((2, VIP4), (2, VIP6), (3, VIP6 + 1))
    assert [interface for interface, *_frames in sent] == ["eth0", "eth1"]
    expected = {*build_announcement(ETH0.mac, VIP4), *build_announcement(ETH0.mac, VIP6)}
    assert set(sent[0][1:]) == expected
    assert sent[1] == ("eth1", *build_announcement(ETH1.mac, VIP6 + 1))
    assert (count("garp_sent"), count("na_sent")) == (1, 2)


def test_an_address_on_a_link_without_ethernet_is_not_sent(node, sender):
    """A frame needs a MAC address: a tunnel has none, InfiniBand one of 20 bytes."""
    node.links = [replace(ETH0, mac=b""), ETH1]
    node.announce((ETH0.index, VIP4), (ETH0.index, VIP6), (ETH1.index, VIP4))
    assert {interface for interface, *_frames in sender.sent} == {ETH1.name}


def test_an_address_on_an_unknown_link_is_not_sent(node):
    node.links = (ETH1,)
    assert node.run((2, VIP4)) == []


@pytest.mark.parametrize(
    "code",
    [errno.ENODEV, errno.ENETDOWN, errno.EPERM, errno.ENOBUFS],
    ids=errno.errorcode.__getitem__,
)
class TestFailure:
    def test_a_failure_is_counted_and_logged(self, node, count, caplog, code):
        logged = Logged(caplog)
        node.sender.failures["eth0"] = code
        assert node.announce((2, VIP4), (2, VIP6), (2, VIP6 + 1)) == []
        assert (count("garp_errors"), count("na_errors")) == (1, 2)
        assert (count("garp_sent"), count("na_sent")) == (0, 0)
        error = f"[Errno {code}] {os.strerror(code)}"
        assert logged.fields("announceFailed") == [{"interface": "eth0", "error": error}]

    def test_the_sequence_continues_after_a_failure(self, node, code):
        node.sender.failures["eth0"] = code
        node.announce((2, VIP4))
        node.sender.failures.clear()
        assert node.run((2, VIP4)) == TIMES[1:]

    def test_other_interfaces_are_not_affected(self, node, code):
        node.sender.failures["eth0"] = code
        sent = node.announce((2, VIP4), (3, VIP6))
        assert [interface for interface, *_frames in sent] == ["eth1"]
