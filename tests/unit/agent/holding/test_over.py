# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Who is told that the right of the node `n1` is over, and for how long."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from purelb_agent.holding.over import KIND, OverReporter
from purelb_agent.runtime import clock
from tests.support.agent.fake_agents import HANGS, FakeAgents, peer_lease
from tests.support.agent.leased_node import LeasedNode
from tests.support.core.snapshots import NET4, NET6

PEERS = ("n2", "n3")


@pytest.fixture
async def agents():
    made = FakeAgents(*PEERS)
    for peer in PEERS:
        made.answer(peer, KIND, {})
    return made


@pytest.fixture
async def node(agents):
    """The node `n1`, which counts `n2` and `n3`."""
    made = LeasedNode()
    for peer in PEERS:
        made.store.leases.put(peer_lease(peer))
    made.peers = agents.peers(made)
    reporter = OverReporter(made.store, made.peers)

    def end(number):
        """Let the right in this epoch be over, and nothing be left."""
        holder = made.store.holder
        right = replace(holder.right, token=holder.node, next_number=number + 1)
        holder, _replies = replace(holder, right=right).reply(held=frozenset(), now=clock.now())
        made.store.take(holder)
        reporter.begin()

    made.end = end
    task = asyncio.create_task(reporter.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class TestTelling:
    async def test_all_others_are_told_once(self, node, agents):
        await node.until(1)
        assert agents.told == []
        node.end(1)
        await node.until(20)
        body = {"node": "n1", "epoch": "n1.1", "promised": {}}
        assert [told[:] for told in agents.told] == [
            (1.01, "n2", KIND, body),
            (1.01, "n3", KIND, body),
        ]

    async def test_who_does_not_answer_is_told_again(self, node, agents):
        agents.answer("n2", KIND, None, times=2)
        node.end(1)
        await node.until(20)
        assert agents.asked("n2", KIND) == [0.0, 0.4, 0.8]
        assert agents.asked("n3", KIND) == [0.0]

    async def test_no_node_is_informed_for_longer_than_the_lease_lasts(self, node, agents):
        agents.answer("n2", KIND, None)
        node.end(1)
        await node.until(100)
        asked = agents.asked("n2", KIND)
        assert len(asked) == 26
        assert asked[-1] == 10.0

    async def test_the_same_epoch_is_told_once(self, node, agents):
        for moment in (1, 2):
            node.end(1)
            await node.until(moment)
        assert agents.asked("n2", KIND) == [0.0]

    async def test_another_epoch_is_told_to_all(self, node, agents):
        node.end(1)
        await node.until(1)
        node.end(2)
        await node.until(2)
        assert [told.body["epoch"] for told in agents.told] == ["n1.1"] * 2 + ["n1.2"] * 2

    async def test_an_answer_to_the_epoch_before_is_none_to_the_next(self, node, agents):
        agents.answer("n2", KIND, HANGS, times=1)
        node.end(1)
        await node.until(0.1)
        node.end(2)
        await node.until(2)
        told = [told.body["epoch"] for told in agents.told if told.peer == "n3"]
        assert told == ["n1.1", "n1.2"]

    async def test_who_has_no_right_either_is_told_as_it_may_have_promised_something(
        self, node, agents
    ):
        table = node.store.leases
        table.change(table.counting.said_over("n2", "n2.1"))
        node.end(1)
        await node.until(1)
        assert {told.peer for told in agents.told} == {"n2", "n3"}

    async def test_who_left_has_no_epoch_or_no_subnet_of_this_node_is_not_told(self, node, agents):
        table = node.store.leases
        table.put(peer_lease("n1", subnets=(NET4,)))
        table.put(peer_lease("n2", holder="", renew_time=2.0))
        table.put(peer_lease("n4", epoch=""))
        table.put(peer_lease("n5", subnets=(NET6,)))
        node.end(1)
        await node.until(1)
        assert {told.peer for told in agents.told} == {"n3"}


class TestHearing:
    async def test_whose_right_is_over_counts_no_more_in_that_epoch(self, node):
        answer = await node.peers.answers[KIND]({"node": "n2", "epoch": "n2.1"})
        assert answer == {}
        assert not node.store.leases.counting.is_live("n2")
        assert node.store.leases.counting.is_live("n3")

    async def test_another_epoch_says_nothing_about_the_present_one(self, node):
        await node.peers.answers[KIND]({"node": "n2", "epoch": "n2.0"})
        assert node.store.leases.counting.is_live("n2")

    async def test_it_wakes_the_reconcile_loop(self, node):
        await node.store.changed.wait(seconds=0)
        await node.peers.answers[KIND]({"node": "n2", "epoch": "n2.1"})
        assert await node.store.changed.wait(seconds=0)
