# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""How the node `n1` keeps its addresses while it cannot renew, by what `n2` and `n3` answer.

Its first renewal that fails is sent at 5, and its right from the Lease ends at 7.
"""

from __future__ import annotations

import asyncio

import pytest

from purelb.core.holding.outage import (
    OUTAGE,
    CanRenew,
    OutageAnswer,
    PeerAnswer,
    outage_answer_body,
    read_outage_question,
)
from purelb.core.holding.right import RightState
from purelb_agent.holding.outage import OutageKeeper
from purelb_agent.runtime import clock
from tests.support.agent.fake_agents import FakeAgents, peer_lease
from tests.support.agent.leased_node import PATH, LeasedNode
from tests.support.agent.logs import Logged
from tests.support.agent.recorded_events import RecordedEvents
from tests.support.core.snapshots import NET4, NET6

CAN, CANNOT, SILENT = PeerAnswer.CAN, PeerAnswer.CANNOT, PeerAnswer.SILENT


class AnsweringPeers:
    """Stands in for `Peers`: `n2` and `n3` give the answer that is set here."""

    def __init__(self, node):
        self.answers = {}
        self.answer = CANNOT
        self.seconds = 0.0
        self.asked = []
        self.since = []
        self.time_to_ask = []
        self._node = node

    async def ask(self, peers, kind, body, *, seconds):
        now = clock.now() - self._node.began
        self.asked.append((round(now, 2), peers))
        self.since.append(round(now - read_outage_question(body).failing_for, 2))
        self.time_to_ask.append(round(seconds, 2))
        await asyncio.sleep(self.seconds)
        assert kind == OUTAGE
        answer = outage_answer_body(OutageAnswer(self.answer, promised=10.0))
        return {} if self.answer is SILENT else dict.fromkeys({"n2", "n3"} & peers.keys(), answer)

    @property
    def asked_at(self):
        return [at for at, _members in self.asked]


@pytest.fixture
def logged(caplog):
    return Logged(caplog)


@pytest.fixture
async def node():
    """The node `n1` with its renewer and its outage keeper."""
    made = LeasedNode()
    for peer in ("n2", "n3"):
        made.store.leases.put(peer_lease(peer))
    made.store.nodes.replace(FakeAgents("n2", "n3").nodes, asked_at=clock.now())
    made.peers, made.events = AnsweringPeers(made), RecordedEvents()
    keeper = OutageKeeper(made.peers, made.renewer, made.store, made.events, metrics=made.metrics)
    task = asyncio.create_task(keeper.run())
    async with made.running():
        yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def state(node):
    return node.renewer.right.state(clock.now())


class TestAsking:
    async def test_no_node_is_asked_while_renewals_succeed(self, node):
        await node.until(20)
        assert node.peers.asked == []

    async def test_all_nodes_with_a_lease_are_asked_when_one_fails(self, node):
        table = node.store.leases
        table.change(table.counting.said_over("n3", "n3.1"))
        node.refuse()
        await node.until(5)
        ((at, members),) = node.peers.asked
        assert at == 5.0
        assert set(members) == {"n2", "n3"}
        assert members["n2"] == node.store.addresses_of("n2") != ()

    async def test_those_that_share_no_subnet_are_not_asked(self, node):
        node.store.leases.put(peer_lease("n1", subnets=(NET4,)))
        node.store.leases.put(peer_lease("n3", subnets=(NET6,), epoch="n3.2"))
        node.refuse()
        await node.until(5)
        ((_at, members),) = node.peers.asked
        assert set(members) == {"n2"}

    async def test_who_said_unasked_that_it_can_is_asked_too_but_is_no_member(self, node):
        node.store.nodes.replace(FakeAgents("n2", "n3", "n4").nodes, asked_at=clock.now())
        node.store.take(node.store.holder.hear_can(CanRenew("n4", age=0.0), now=clock.now()))
        node.refuse()
        await node.until(5)
        ((_at, asked),) = node.peers.asked
        assert set(asked) == {"n2", "n3", "n4"}
        assert asked["n4"] == node.store.addresses_of("n4") != ()

    async def test_they_are_asked_when_one_hangs(self, node):
        node.api.hang("PUT", PATH)
        await node.until(6.1)
        assert node.peers.asked_at == [6.0]
        assert node.peers.since == [5.0]
        # The right ends at 7.
        assert node.peers.time_to_ask == [0.8]

    async def test_they_are_asked_again_until_one_succeeds(self, node):
        node.refuse()
        await node.until(6)
        node.accept()
        node.renewer.renew_soon()
        await node.until(20)
        # While they cannot either, once in a second.
        assert node.peers.asked_at == [5.0, 6.0]

    async def test_they_are_asked_more_often_while_it_is_undecided(self, node):
        node.peers.answer = SILENT
        node.refuse()
        await node.until(6.1)
        assert node.peers.asked_at == [5.0, 5.5, 6.0]

    async def test_answers_that_take_longer_than_the_pause_leave_none(self, node):
        node.peers.seconds = 1.5
        node.refuse()
        await node.until(8.1)
        assert node.peers.asked_at == [5.0, 6.5, 8.0]


class TestHolding:
    async def test_it_holds_while_no_node_can_renew(self, node, logged):
        node.refuse()
        await node.until(100)
        assert state(node) is RightState.AGREED
        assert node.store.hold_deadline.announce_until > clock.now() + 2
        assert logged.events.count("apiDownForAll") == 1
        assert logged.fields("apiDownForAll") == [{"node": "n1", "cannot": "2"}]

    async def test_it_holds_for_a_time_that_begins_with_the_question(self, node):
        node.peers.seconds = 0.6
        node.refuse()
        await node.until(5.7)
        deadline = node.store.hold_deadline
        assert deadline.announce_until == pytest.approx(node.began + 8.5)
        assert deadline.hold_until == pytest.approx(node.began + 12)

    @pytest.mark.parametrize("answer", [CAN, SILENT], ids=str)
    async def test_it_does_not_where_others_can_or_are_out_of_reach(self, node, answer):
        node.peers.answer = answer
        node.refuse()
        await node.until(7)
        assert state(node) is RightState.OVER

    async def test_it_does_not_where_one_said_unasked_that_it_can(self, node, logged):
        node.refuse()
        await node.until(5.6)
        assert state(node) is RightState.AGREED
        node.store.take(node.store.holder.hear_can(CanRenew("n4", age=0.0), now=clock.now()))
        await node.until(9)
        assert state(node) is RightState.OVER
        assert logged.fields("cutOff") == [{"node": "n1", "cannot": "2", "silent": "1"}]

    @pytest.mark.parametrize("answer", [CAN, CANNOT, SILENT], ids=str)
    async def test_it_notes_whether_only_it_is_cut_off(self, node, answer):
        node.peers.answer = answer
        node.refuse()
        await node.until(6)
        assert node.renewer.right.is_cut_off == (answer is CAN)

    async def test_it_ends_a_while_after_another_one_can_renew(self, node, logged):
        node.refuse()
        await node.until(10.5)
        node.peers.answer = CAN
        await node.until(13.4)
        assert state(node) is RightState.AGREED
        await node.until(13.6)
        assert state(node) is RightState.OVER
        assert "cutOff" in logged.events

    async def test_each_answer_is_counted(self, node):
        node.refuse()
        await node.until(6.1)
        found = node.registry.get_sample_value(
            "purelb_election_peer_answers_total", {"answer": CANNOT.value}
        )
        assert found == 4


class TestEnd:
    async def test_an_outage_is_reported_when_it_is_over(self, node, logged):
        node.refuse()
        await node.until(19)
        node.accept()
        await node.until(22)
        assert state(node) is RightState.RENEWED
        assert logged.fields("outageHeld") == [{"node": "n1", "seconds": "21.0"}]
        assert node.metric("outages_held_total") == 1
        (event,) = node.events.records
        assert event.reason == "OutageHeld"
        assert "21 s" in event.message
        assert (event.about.kind, event.about.name) == ("Node", "n1")

    async def test_a_short_one_is_not(self, node):
        node.refuse(times=1)
        await node.until(5.5)
        node.renewer.renew_soon()
        await node.until(10)
        assert state(node) is RightState.RENEWED
        assert node.events.records == []

    async def test_each_is_reported_once(self, node, logged):
        for begin in (0, 30):
            await node.until(begin + 1)
            node.refuse()
            await node.until(begin + 19)
            node.accept()
            await node.until(begin + 29)
        node.refuse(times=1)
        await node.renewer.in_doubt.wait()
        await asyncio.sleep(0.1)
        node.renewer.renew_soon()
        await node.until(90)
        assert state(node) is RightState.RENEWED
        assert node.events.reasons == ["OutageHeld"] * 2
        assert logged.events.count("apiDownForAll") == 3
