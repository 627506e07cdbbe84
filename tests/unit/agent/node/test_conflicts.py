# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The conflict listener in virtual time; each interface is a pair of connected sockets."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from dataclasses import replace

import pytest

from purelb.core.model import Link
from purelb.core.node.conflicts import BATCH, BATCH_EVERY, DuplicateAddress
from purelb.core.node.packets import build_announcement, build_probe
from purelb_agent.node.conflicts import ConflictListener
from purelb_agent.runtime import clock
from tests.support import fail
from tests.support.agent.cancellation import cancel_at_each_await
from tests.support.agent.logs import Logged
from tests.support.core.snapshots import ETH0, VIP4, VIP6

BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
FAILURES = pytest.mark.parametrize(
    "code", [errno.ENODEV, errno.EPERM, errno.ENOBUFS], ids=errno.errorcode.__getitem__
)
ETH1 = Link(3, "eth1", b"\x02\0\0\0\0\x03")
THEIRS = b"\x02\0\0\0\0\x63"
# A socket pair keeps about 280 small datagrams.
STORM = 200


def refusal(code):
    return OSError(code, os.strerror(code))


class Socket:
    """A listening socket whose `recv` can be made to fail."""

    def __init__(self, end):
        self._end = end
        self.failure = None
        self.received = 0

    def fileno(self):
        return self._end.fileno()

    def recv(self, size):
        if self.failure:
            self._end.recv(size)
            fail(self.failure)
        data = self._end.recv(size)
        self.received += 1
        return data

    def close(self):
        self._end.close()


class Segments:
    """The segments of all interfaces: opens listening sockets, sends to them, keeps probes."""

    def __init__(self):
        self.listening = {}
        self.opened = []
        self.probes = []
        self.listen_failure = self.send_failure = None
        self._peers = {}

    def listen(self, interface):
        self.opened.append(interface)
        if self.listen_failure:
            fail(self.listen_failure)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.setblocking(False)
        self.disconnect(interface)
        self._peers[interface] = theirs
        self.listening[interface] = Socket(ours)
        return self.listening[interface]

    def disconnect(self, interface):
        if interface in self._peers:
            self._peers.pop(interface).close()

    def close(self):
        for interface in tuple(self._peers):
            self.disconnect(interface)

    def send(self, interface, frames):
        """As FrameSender.send."""
        if self.send_failure:
            fail(self.send_failure)
        self.probes += [(clock.now(), interface, frame) for frame in frames]

    async def say(self, *frames, interface="eth0"):
        """Send frames to the node, and let it read them."""
        for frame in frames:
            self._peers[interface].send(frame)
        await asyncio.sleep(0.01)


def claim(vip, mac=THEIRS):
    return build_announcement(mac, vip)[0]


@pytest.fixture
def segments():
    made = Segments()
    yield made
    made.close()


class Node:
    """A conflict listener at work."""

    def __init__(self, segments):
        self.conflicts = []
        self.listener = ConflictListener(
            self.conflicts.append, sender=segments, listen=segments.listen
        )
        self.links = (ETH0, ETH1)
        self.nodes = {}
        self.began = clock.now()

    def hold(self, *places):
        self.listener.update(frozenset(places), self.links, nodes=self.nodes, now=clock.now())


@pytest.fixture
async def node(segments):
    made = Node(segments)
    task = asyncio.create_task(made.listener.run())
    yield made
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    made.listener.close()


@pytest.fixture
def logged(caplog):
    return Logged(caplog)


def probe_times(node, segments):
    return [pytest.approx(at - node.began) for at, _interface, _frame in segments.probes]


@BOTH
class TestProbes:
    async def test_a_held_address_is_probed_after_two_seconds_and_then_every_thirty(
        self, node, segments, vip
    ):
        node.hold((2, vip))
        await asyncio.sleep(63)
        assert probe_times(node, segments) == [2.0, 32.0, 62.0]
        assert {probe[1:] for probe in segments.probes} == {("eth0", build_probe(ETH0.mac, vip))}

    async def test_nothing_is_probed_without_a_held_address(self, node, segments, vip):
        await asyncio.sleep(63)
        assert segments.probes == []

    async def test_an_address_given_up_is_not_probed(self, node, segments, vip):
        node.hold((2, vip))
        await asyncio.sleep(1)
        node.hold()
        await asyncio.sleep(63)
        assert segments.probes == []

    async def test_an_update_without_a_change_changes_nothing(self, node, segments, vip):
        for _second in range(63):
            node.hold((2, vip))
            await asyncio.sleep(1)
        assert probe_times(node, segments) == [2.0, 32.0, 62.0]
        assert segments.opened == ["eth0"]

    async def test_many_addresses_are_probed_in_batches(self, node, segments, vip):
        node.hold(*((2, vip + number) for number in range(2 * BATCH + 1)))
        await asyncio.sleep(3)
        batches = [2.0] * BATCH + [2.0 + BATCH_EVERY] * BATCH + [2.0 + 2 * BATCH_EVERY]
        assert probe_times(node, segments) == batches

    @FAILURES
    async def test_a_probe_that_cannot_be_sent_is_logged_and_the_next_one_sent(
        self, node, segments, logged, vip, code
    ):
        segments.send_failure = refusal(code)
        node.hold((2, vip))
        await asyncio.sleep(3)
        error = str(refusal(code))
        assert logged.fields("probeFailed") == [{"interface": "eth0", "error": error}]
        segments.send_failure = None
        await asyncio.sleep(30)
        assert probe_times(node, segments) == [32.0]


@BOTH
class TestClaims:
    async def test_a_claim_after_the_confirming_probe_is_a_conflict(
        self, node, segments, logged, vip
    ):
        node.hold((2, vip))
        await segments.say(claim(vip))
        await asyncio.sleep(1)
        assert probe_times(node, segments) == [pytest.approx(1.0)]
        assert node.conflicts == []
        await segments.say(claim(vip))
        assert node.conflicts == [DuplicateAddress(vip, 2, THEIRS)]
        assert logged.fields("addressConflict") == [
            {"ip": str(vip), "interface": "eth0", "mac": "02:00:00:00:00:63", "node": ""}
        ]

    async def test_a_conflict_is_reported_once(self, node, segments, vip):
        node.hold((2, vip))
        await segments.say(claim(vip))
        await asyncio.sleep(1)
        await segments.say(*[claim(vip)] * 3)
        assert len(node.conflicts) == 1

    async def test_a_claim_that_is_not_confirmed_is_no_conflict(self, node, segments, vip):
        node.hold((2, vip))
        await segments.say(claim(vip))
        await asyncio.sleep(2.5)
        await segments.say(claim(vip))
        assert node.conflicts == []

    async def test_what_was_claimed_and_is_not_answered_for_is_told_once(self, node, segments, vip):
        told = []
        node.listener.subscribe(lambda: told.append(clock.now() - node.began))
        node.hold((2, vip), (2, vip + 1))
        await segments.say(claim(vip))
        assert node.listener.take_settled() == {}
        await asyncio.sleep(2.5)
        assert told == [pytest.approx(2.0)]
        assert node.listener.take_settled() == {(2, vip): True}
        assert node.listener.take_settled() == {}

    async def test_what_no_other_host_has_is_kept_until_it_is_taken(self, node, vip):
        told = []
        node.listener.subscribe(lambda: told.append(clock.now()))
        node.hold((2, vip))
        await asyncio.sleep(34)
        assert node.listener.take_settled() == {(2, vip): False}
        assert told == []

    async def test_without_a_subscriber_it_waits_to_be_taken(self, node, segments, vip):
        node.hold((2, vip))
        await segments.say(claim(vip))
        await asyncio.sleep(2.5)
        assert node.listener.take_settled() == {(2, vip): True}

    async def test_own_claims_other_addresses_and_other_frames_are_ignored(
        self, node, segments, vip
    ):
        node.hold((2, vip))
        frames = [claim(vip, ETH0.mac), claim(vip, ETH1.mac), claim(vip + 1), bytes(60), b""]
        await segments.say(*frames)
        assert segments.listening["eth0"].received == len(frames)
        await asyncio.sleep(1.5)
        assert segments.probes == []

    async def test_a_claim_on_another_interface_is_ignored(self, node, segments, vip):
        node.hold((2, vip), (3, vip + 1))
        await segments.say(claim(vip), interface="eth1")
        await asyncio.sleep(1.5)
        assert segments.probes == []

    async def test_a_storm_of_frames_lets_other_tasks_run(self, node, segments, vip):
        node.hold((2, vip))
        for _frame in range(STORM):
            segments._peers["eth0"].send(bytes(60))  # noqa: SLF001 - without letting it read
        turns = 0
        while segments.listening["eth0"].received < STORM:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= STORM // 64


@BOTH
class TestSockets:
    async def test_each_interface_with_addresses_has_one(self, node, segments, vip):
        node.hold((2, vip), (2, vip + 1), (3, vip))
        assert sorted(segments.opened) == ["eth0", "eth1"]

    async def test_an_interface_without_addresses_has_none(self, node, segments, vip):
        node.hold((2, vip), (3, vip))
        node.hold((3, vip))
        assert segments.listening["eth0"].fileno() == -1
        assert segments.listening["eth1"].fileno() != -1

    @pytest.mark.parametrize("change", [{"is_up": False}, {"mac": b""}], ids=["down", "no MAC"])
    async def test_an_interface_that_cannot_be_probed_has_none(self, node, segments, vip, change):
        node.links = (replace(ETH0, **change),)
        node.hold((2, vip))
        await asyncio.sleep(63)
        assert (segments.opened, segments.probes) == ([], [])

    async def test_an_unknown_interface_has_none(self, node, segments, vip):
        node.hold((77, vip))
        assert segments.opened == []

    @FAILURES
    async def test_one_that_cannot_be_opened_is_retried_by_the_next_update(
        self, node, segments, logged, vip, code
    ):
        segments.listen_failure = refusal(code)
        node.hold((2, vip))
        assert logged.fields("listenFailed") == [{"interface": "eth0", "error": str(refusal(code))}]
        await asyncio.sleep(3)
        assert segments.probes == []
        segments.listen_failure = None
        node.hold((2, vip))
        node.hold((2, vip))
        assert segments.opened == ["eth0"] * 2
        await asyncio.sleep(2.5)
        assert len(segments.probes) == 1

    async def test_one_that_fails_is_closed_and_replaced_by_the_next_update(
        self, node, segments, vip
    ):
        node.hold((2, vip))
        failing = segments.listening["eth0"]
        failing.failure = refusal(errno.ENETDOWN)
        await segments.say(claim(vip))
        assert failing.fileno() == -1
        await asyncio.sleep(3)
        assert segments.probes == []
        node.hold((2, vip))
        await segments.say(claim(vip))
        await asyncio.sleep(1)
        assert len(segments.probes) == 1

    async def test_closing_twice_is_allowed(self, node, segments, vip):
        node.hold((2, vip))
        node.listener.close()
        node.listener.close()
        assert segments.listening["eth0"].fileno() == -1


async def test_cancelled_at_any_await_it_continues_when_it_is_run_again(segments):
    listener = ConflictListener(lambda _conflict: None, sender=segments)
    listener.update(frozenset({(2, VIP4)}), (ETH0,), nodes={}, now=clock.now())

    async def run():
        try:
            async with asyncio.timeout(40):
                await listener.run()
        except TimeoutError:
            return

    async for interruption in cancel_at_each_await(run):
        begin = len(segments.probes)
        await run()
        assert len(segments.probes) > begin, interruption
    listener.close()
