# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the node `n1` finds out about the Leases of others, each of which lasts 10 s.

Times are those since the Lease was seen: its node is asked at 9.55, and it is read at 10.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from purelb.core.holding.deadline import HoldDeadline
from purelb_agent.holding.ends import PROMISED, RIGHT, Ends
from purelb_agent.kube.client import ApiError
from purelb_agent.runtime import clock
from tests.support.agent.fake_agents import HANGS, FakeAgents, peer_lease
from tests.support.agent.kubernetes_objects import NAMESPACE
from tests.support.agent.leased_node import COLLECTION, DOWN, PATH, LeasedNode

N2, N3 = f"{COLLECTION}/purelb-node-n2", f"{COLLECTION}/purelb-node-n3"
NOT_FOUND = ApiError(404, "not found")


class EndsNode(LeasedNode):
    """The node `n1`, which checks the ends of the Leases that are stored here."""

    def __init__(self):
        super().__init__()
        self.agents = FakeAgents("n2", "n3", "n4")
        self._tasks = []

    def see(self, *nodes, **how):
        """See these Leases renewed now; a read shows them so."""
        for name in nodes:
            body = peer_lease(name, **how)
            self.store.leases.put(body)
            self.api.answer("GET", f"{COLLECTION}/purelb-node-{name}", body)

    def start(self, *, with_peers=True):
        peers = self.agents.peers(self) if with_peers else None
        ends = Ends(self.api, NAMESPACE, self.store, self.renewer, peers)
        self._tasks.append(asyncio.create_task(ends.run()))
        return peers

    async def stop(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # What it started ends with it.
        await asyncio.sleep(0)

    def counts(self, name="n2"):
        return self.store.leases.counting.is_live(name)

    def reads(self, path=N2):
        return [round(r.at - self.began, 2) for r in self.api.sent("GET", path)]


@pytest.fixture
async def node():
    made = EndsNode()
    yield made
    await made.stop()


class TestEnd:
    async def test_each_check_is_made_in_turn(self, node):
        node.see("n2")
        node.see("n3", duration=100)
        node.start()
        await node.until(9.5)
        assert node.agents.told == []
        assert node.api.requests == []
        await node.until(9.9)
        assert node.agents.told[0] == (9.55, "n2", RIGHT, {"epoch": "n2.1"})
        assert node.reads() == []
        assert node.counts()
        await node.until(10)
        assert node.reads() == [10.0]
        assert node.agents.asked("n3", PROMISED) == [10.0]
        await node.until(11)
        assert not node.counts()
        assert node.counts("n3")

    async def test_who_can_renew_says_so_to_all_that_it_asks(self, node):
        node.see("n2")
        node.see("n3", duration=100)
        node.start()
        async with node.running():
            await node.until(11)
        said = [(told.peer, told.kind, told.body.get("can")) for told in node.agents.told]
        assert said == [("n2", RIGHT, "n1"), ("n3", PROMISED, "n1"), ("n2", RIGHT, "n1")]

    async def test_of_two_nodes_no_other_is_asked(self, node):
        node.see("n2")
        node.start()
        await node.until(10)
        assert not node.counts()
        assert {told.kind for told in node.agents.told} == {RIGHT}

    async def test_one_that_is_refused_is_sent_once(self, node):
        node.see("n2")
        node.start()
        await node.until(11)
        # And once more with the others.
        assert node.agents.asked("n2", RIGHT) == [9.55, 10.0]

    async def test_a_message_without_an_answer_is_sent_twice(self, node):
        node.see("n2")
        node.see("n3", duration=100)
        node.agents.answer("n2", RIGHT, HANGS)
        node.agents.answer("n3", PROMISED, HANGS)
        node.start()
        await node.until(11)
        assert node.agents.asked("n2", RIGHT) == [9.55, 9.77, 10.0, 10.06]
        assert node.agents.asked("n3", PROMISED) == [10.0, 10.22]

    async def test_a_node_that_did_not_answer_is_hardly_waited_for_again(self, node):
        node.see("n2")
        node.see("n3", duration=100)
        node.agents.answer("n2", RIGHT, HANGS)
        node.start()
        await node.until(10.1)
        assert node.counts()
        await node.until(10.15)
        assert not node.counts()

    async def test_those_who_do_not_answer_are_not_waited_for(self, node):
        node.see("n2")
        node.see("n3", duration=100)
        node.agents.answer("n2", RIGHT, HANGS)
        node.agents.answer("n3", PROMISED, HANGS)
        node.start()
        await node.until(10.4)
        assert node.counts()
        await node.until(10.5)
        assert not node.counts()

    async def test_a_lease_without_an_epoch_is_only_read(self, node):
        node.see("n2", "n3", epoch="")
        node.start()
        await node.until(10)
        assert not node.counts()
        assert node.agents.told == []

    async def test_a_deleted_lease_ends_when_it_is_due(self, node):
        node.see("n2")
        node.start()
        node.store.leases.drop(peer_lease("n2"))
        node.api.answer("GET", N2, NOT_FOUND)
        await node.until(9.9)
        assert node.counts()
        await node.until(10)
        assert "n2" not in node.store.leases.counting.leases

    async def test_the_reconcile_loop_is_woken_by_an_end(self, node):
        node.see("n2")
        node.start()
        await node.until(9)
        await node.store.changed.wait(seconds=0)
        assert await node.store.changed.wait(seconds=2)
        assert clock.now() == pytest.approx(node.began + 10)

    async def test_several_leases_are_checked_at_the_same_time(self, node):
        node.see("n2", "n3")
        node.api.hang("GET", N2)
        node.start()
        await node.until(10.5)
        assert node.counts("n2")
        assert not node.counts("n3")

    async def test_one_that_is_seen_later_is_checked_later(self, node):
        node.start()
        await node.until(3)
        node.see("n2")
        await node.until(12.9)
        assert node.counts()
        await node.until(13.1)
        assert not node.counts()


class TestAnswerOfTheNode:
    async def test_who_has_a_right_counts_on(self, node):
        node.see("n2")
        node.agents.answer("n2", RIGHT, {"seconds": 4.0}, times=1)
        node.start()
        await node.until(13.5)
        assert node.counts()
        assert node.reads() == []
        assert node.agents.asked("n2", RIGHT)[:2] == [9.55, 13.1]
        await node.until(13.6)
        assert not node.counts()

    async def test_it_is_enough_that_one_of_two_messages_arrives(self, node):
        node.see("n2")
        node.agents.answer("n2", RIGHT, {"seconds": 4.0}, times=1)
        node.agents.answer("n2", RIGHT, HANGS, times=1)
        node.start()
        await node.until(13.5)
        assert node.counts()

    async def test_it_is_told_nothing_by_who_cannot_renew(self, node):
        node.see("n2")
        node.api.answer("GET", PATH, DOWN)
        node.start()
        await node.until(9.9)
        assert node.agents.told[0].body == {"epoch": "n2.1"}

    async def test_who_says_that_it_is_over_counts_no_more(self, node):
        node.see("n2")
        node.agents.answer("n2", RIGHT, {"seconds": 0, "over": True})
        node.start()
        await node.until(9.55)
        assert not node.counts()
        assert node.store.leases.counting.ends() == {"n2": "n2.1"}
        await node.until(20)
        assert node.reads() == []
        assert len(node.agents.told) == 1

    @pytest.mark.parametrize("answer", [{"seconds": 0.1}, {"seconds": 0}, {"seconds": "x"}, {}])
    async def test_one_that_does_not_count_it_longer_is_not_asked_for_again(self, node, answer):
        node.see("n2")
        asked = []

        def once(_body):
            asked.append(clock.now())
            return answer if len(asked) == 1 else {}

        node.agents.answer("n2", RIGHT, once)
        node.start()
        await node.until(9.9)
        assert len(asked) == 1
        await node.until(10.1)
        assert not node.counts()


class TestRead:
    async def test_a_renewal_that_it_shows_counts(self, node):
        node.see("n2")
        node.start()
        await node.until(5)
        node.api.answer("GET", N2, peer_lease("n2", version="2"))
        await node.until(19)
        assert node.counts()
        assert node.reads() == [10.0]
        await node.until(20.1)
        assert node.reads() == [10.0, 20.0]
        assert not node.counts()

    async def test_an_older_state_does_not_replace_what_the_watch_brought(self, node):
        node.see("n2", version="1")
        node.start()
        node.api.hang("GET", N2)
        await node.until(10)
        newer = peer_lease("n2", version="2", epoch="n2.2")
        node.store.leases.put(newer)
        node.api.resume("GET", N2)
        await node.until(10.1)
        assert node.counts()
        assert node.store.leases.counting.epochs() == {"n2": "n2.2"}

    async def test_one_that_fails_is_repeated(self, node):
        node.see("n2")
        node.api.answer("GET", N2, DOWN, times=3)
        node.start()
        await node.until(11.4)
        assert node.counts()
        await node.until(11.6)
        assert node.reads() == [10.0, 10.5, 11.0, 11.5]
        assert not node.counts()

    async def test_one_that_hangs_is_repeated(self, node):
        node.see("n2")
        node.api.hang("GET", N2)
        node.start()
        await node.until(12.6)
        assert node.reads() == [10.0, 12.5]
        assert node.counts()

    async def test_nothing_ends_while_none_succeeds(self, node):
        node.see("n2", "n3")
        node.api.answer("GET", N2, DOWN)
        node.api.answer("GET", N3, DOWN)
        node.start()
        await node.until(100)
        assert node.counts("n2")
        assert node.counts("n3")


class TestWhoCannotBeAsked:
    """Where reads failed before, it may have been cut off too, and be about to renew."""

    @pytest.mark.parametrize("how", ["no peers", "no epoch"])
    async def test_it_counts_for_a_while_after_reads_failed(self, node, how):
        node.see("n2", epoch="" if how == "no epoch" else None)
        node.api.answer("GET", N2, DOWN, times=2)
        node.start(with_peers=how == "no epoch")
        await node.until(13.4)
        assert node.reads()[:3] == [10.0, 10.5, 11.0]
        assert node.counts()
        await node.until(13.6)
        assert not node.counts()

    async def test_it_counts_on_if_it_renews_meanwhile(self, node):
        node.see("n2", epoch="")
        node.api.answer("GET", N2, DOWN, times=2)
        node.start()
        await node.until(12)
        node.see("n2", epoch="", version="2")
        await node.until(21)
        assert node.counts()

    async def test_it_ends_at_once_where_none_failed(self, node):
        node.see("n2")
        node.start(with_peers=False)
        await node.until(10)
        assert not node.counts()


class TestPromisesOfOthers:
    async def test_who_was_promised_something_counts_for_so_long(self, node):
        node.see("n2")
        node.see("n3", duration=100)
        node.agents.answer("n3", PROMISED, {"seconds": 5.0}, times=1)
        node.start()
        await node.until(14.9)
        assert node.counts()
        assert node.agents.told[1] == (10.0, "n3", PROMISED, {"node": "n2"})
        await node.until(15.1)
        assert node.reads() == [10.0, 15.0]
        await node.until(15.5)
        assert not node.counts()

    async def test_who_denies_one_lets_it_end_at_once(self, node):
        node.see("n2")
        node.see("n3", duration=100)
        node.agents.answer("n3", PROMISED, {"seconds": -1.0})
        node.start()
        await node.until(10)
        assert not node.counts()
        assert node.agents.asked("n3", PROMISED) == [10.0]

    async def test_who_withdrew_is_asked_too(self, node):
        node.see("n2")
        node.see("n3", duration=100)
        node.agents.answer("n3", PROMISED, {"seconds": 5.0}, times=1)
        node.start()
        table = node.store.leases
        table.change(table.counting.said_over("n3", "n3.1"))
        assert not node.counts("n3")
        await node.until(14.9)
        assert node.counts()

    async def test_who_writes_no_epoch_is_not_asked(self, node):
        node.see("n2")
        node.see("n3", duration=100)
        node.see("n4", duration=100, epoch="")
        node.start()
        await node.until(11)
        assert node.agents.asked("n4", PROMISED) == []
        assert node.agents.asked("n3", PROMISED) != []


class TestAnswersOfThisNode:
    async def test_who_has_a_right_says_for_how_long(self, node):
        peers = node.start()
        async with node.running():
            await node.until(1)
            answer = await peers.answers[RIGHT]({"epoch": "any"})
            assert answer == {"seconds": pytest.approx(9.99 - 1.01), "promised": {}}

    async def test_who_holds_nothing_says_that_it_is_over(self, node):
        peers = node.start()
        async with node.running():
            epoch = node.lease.epoch
            node.refuse()
            await node.until(8)
            assert await peers.answers[RIGHT]({"epoch": epoch}) is None
            node.store.holder = replace(node.store.holder, held=frozenset())
            said = {"seconds": 0, "over": True, "promised": {}}
            assert await peers.answers[RIGHT]({"epoch": epoch}) == said

    async def test_one_that_is_about_to_enter_an_epoch_does_not_say_so(self, node):
        peers = node.start()
        node.store.holder = replace(node.store.holder, held=frozenset())
        epoch = node.renewer.right.sent((), now=clock.now())[1].epoch
        assert await peers.answers[RIGHT]({"epoch": epoch}) is None

    async def test_what_it_promised_counts_for_who_asks(self, node):
        peers = node.start()
        node.see("n2")
        table = node.store.leases
        table.change(table.counting.promise("n2", until=clock.now() + 8))
        await node.until(3)
        body = {"node": "n2"}
        assert await peers.answers[PROMISED](body) == {"seconds": pytest.approx(8.0 - 3.01)}
        assert await peers.answers[PROMISED]({**body, "node": "x"}) == {"seconds": 0.0}

    async def test_who_says_that_it_can_renew_is_heard(self, node):
        peers = node.start()
        can = {"can": "n3", "age": 1.0}
        await peers.answers[PROMISED]({"node": "n2", **can})
        assert set(node.store.holder.who_can.told) == {"n3"}
        await peers.answers[RIGHT]({"epoch": "n1.1", **can, "can": "n4"})
        assert set(node.store.holder.who_can.told) == {"n3", "n4"}

    async def test_who_does_not_say_that_it_can_is_not_heard(self, node):
        peers = node.start()
        await peers.answers[PROMISED]({"node": "n2"})
        await peers.answers[RIGHT]({"epoch": "n1.1"})
        assert node.store.holder.who_can.told == {}

    async def test_an_agreement_is_a_right(self, node):
        peers = node.start()
        async with node.running():
            node.refuse()
            await node.until(6)
            node.extend(HoldDeadline(clock.now() + 20, clock.now() + 23))
            answer = await peers.answers[RIGHT]({"epoch": ""})
            assert answer["seconds"] == pytest.approx(23.0)
