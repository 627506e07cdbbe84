# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the node `n1` answers to questions of `n2` about permissions, and when."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from purelb.core.holding.messages import Mail, mail_text, read_mail
from purelb.core.holding.permissions import QuestionRefusal
from purelb_agent.holding.questions import KIND
from purelb_agent.runtime import clock
from tests.support.agent.fake_agents import HANGS, peer_lease
from tests.support.agent.questions_node import QuestionsNode, settle
from tests.support.core.ranks import won_by
from tests.support.core.snapshots import VIP4, VIP6

FAMILIES = pytest.mark.parametrize("first", [VIP4, VIP6], ids=["v4", "v6"])


@pytest.fixture
async def node():
    made = QuestionsNode()
    made.agents.answer("n2", KIND, made.n2)
    return made


async def answered(node, question):
    """The answer to a question and how many seconds it took."""
    began = clock.now()
    answer = await node.answer(question)
    return answer, round(clock.now() - began, 2)


class TestAnswer:
    @FAMILIES
    async def test_what_no_node_wants_here_is_given_at_once(self, node, first):
        address = won_by("n1", first)
        async with node.working():
            answer, seconds = await answered(node, node.n2.ask(node.epoch, wants=[address]))
            assert answer.refusal is None
            assert answer.has.lent == {address}
            assert seconds == 0.0

    @FAMILIES
    async def test_what_is_held_is_withdrawn_before_the_answer_is_sent(self, node, first):
        address = won_by("n2", first)
        node.held = frozenset({address})
        node.plan(address)
        async with node.working():
            await settle()
            assert node.held == {address}
            question = node.n2.ask(node.epoch, wants=[address], moves=[address])
            task = node.ask(question)
            held = []
            task.add_done_callback(lambda _task: held.append(node.held))
            assert (await task)["refusal"] is None
            await settle()
            assert held == [frozenset()]

    async def test_what_is_held_stays_while_it_is_not_the_last_that_is_missing(self, node):
        address = won_by("n2", VIP4)
        node.held = frozenset({address})
        node.plan(address)
        async with node.working():
            await settle()
            answer = await node.answer(node.n2.ask(node.epoch, wants=[address]))
            assert answer.has.borrowed == {address}
            assert node.held == {address}

    @FAMILIES
    async def test_what_could_not_be_removed_is_kept_and_all_else_is_given(self, node, first):
        address = won_by("n2", first)
        node.held = node.stuck = frozenset({address})
        node.plan(address)
        async with node.working():
            await settle()
            other = won_by("n1", VIP6 if first is VIP4 else VIP4)
            both = [address, other]
            answer = await node.answer(node.n2.ask(node.epoch, wants=both, moves=both))
            assert (answer.has.borrowed, answer.has.lent) == ({address}, {other})
            assert node.held == {address}
            node.stuck = frozenset()
            again = node.n2.ask(node.epoch, nonce="again", wants=[address], moves=[address])
            answer = await node.answer(again)
            assert address not in answer.has.borrowed
            assert node.held == frozenset()

    async def test_an_address_of_a_subnet_that_the_asker_lacks_is_no_reason_to_give_none(
        self, node
    ):
        """It ranks the asker first, which does not ask for it."""
        theirs, address = won_by("n2", VIP4), won_by("n2", VIP6)
        async with node.working():
            await node.answer(node.n2.ask(node.epoch))
            node.held = node.stuck = frozenset({theirs})
            again = node.n2.ask(node.epoch, nonce="again", wants=[address], moves=[address])
            answer = await node.answer(again)
            assert address not in answer.has.borrowed

    async def test_it_says_whose_epochs_are_over(self, node):
        node.store.leases.put(peer_lease("n3", duration=100))
        table = node.store.leases
        table.change(table.counting.said_over("n3", "n3.1"))
        async with node.working():
            body = await node.ask(node.n2.ask(node.epoch))
            assert body["ended"] == {"n3": "n3.1"}

    async def test_it_says_whom_this_node_promised_to_count(self, node):
        table = node.store.leases
        table.put(peer_lease("n3", duration=100))
        async with node.working():
            table.change(table.counting.promise("n3", until=clock.now() + 7))
            answer = await node.answer(node.n2.ask(node.epoch))
            assert answer.promised == (("n3", 7.0),)
            refused = await node.answer(node.n2.ask("another", nonce="2"))
            assert refused.refusal is not None
            assert dict(refused.promised).keys() == {"n3"}

    async def test_one_says_whom_its_asker_promised_to_count(self, node):
        table = node.store.leases
        table.put(peer_lease("n3", duration=100))
        async with node.working():
            table.change(table.counting.ended("n3", "n3.1", now=clock.now()))
            assert not table.counting.is_live("n3")
            question = replace(node.n2.ask(node.epoch), promised=(("n3", 200.0),))
            await node.answer(question)
            assert table.counting.is_live("n3")

    async def test_one_is_a_sign_that_its_asker_lives(self, node):
        table = node.store.leases
        async with node.working():
            table.change(table.counting.ended("n2", "n2.1", now=clock.now()))
            assert not table.counting.is_live("n2")
            await node.answer(node.n2.ask(node.epoch))
            assert table.counting.is_live("n2")

    async def test_several_are_answered_in_one_cycle(self, node):
        node.store.leases.put(peer_lease("n3", duration=100))
        node.agents.answer("n3", KIND, HANGS)
        async with node.working():
            await settle()
            cycles = node.cycles
            questions = [node.n2.ask(node.epoch, nonce=nonce) for nonce in ("one", "two")]
            answers = await asyncio.gather(*map(node.answer, questions))
            assert [answer.nonce for answer in answers] == ["one", "two"]
            assert node.cycles == cycles + 1

    @pytest.mark.parametrize("body", [None, {}, "text"], ids=str)
    async def test_what_is_no_question_gets_none(self, node, body):
        async with node.working():
            assert await node.peers.answers[KIND](body) is None

    async def test_one_to_another_node_gets_none(self, node):
        async with node.working():
            question = replace(node.n2.ask(node.epoch), peer="n3")
            assert await node.answer(question) is None


class TestNews:
    async def test_one_about_what_was_not_seen_waits_and_is_refused(self, node):
        async with node.working():
            await node.until(1)
            question = replace(node.n2.ask(node.epoch), epoch="n2.2")
            answer, seconds = await answered(node, question)
            assert answer.refusal is QuestionRefusal.UNKNOWN_EPOCH
            assert seconds == 0.25
            assert node.looked_at == [1.26]

    async def test_one_is_answered_once_the_watch_has_brought_the_news(self, node):
        async with node.working():
            task = asyncio.create_task(
                answered(node, replace(node.n2.ask(node.epoch), epoch="n2.2"))
            )
            await asyncio.sleep(0.1)
            assert not task.done()
            node.store.leases.put(peer_lease("n2", epoch="n2.2", version="2"))
            answer, seconds = await task
            assert answer.refusal is None
            assert seconds == 0.1
            assert node.looked_at == []

    async def test_one_to_a_later_own_epoch_waits_too(self, node):
        async with node.working():
            question = replace(node.n2.ask(node.epoch), peer_epoch="another")
            answer, seconds = await answered(node, question)
            assert answer.refusal is QuestionRefusal.UNKNOWN_EPOCH
            assert seconds == 0.25

    @FAMILIES
    async def test_what_this_node_wants_is_not_given(self, node, first):
        address = won_by("n1", first)
        node.plan(address)
        async with node.working():
            await node.until(1)
            assert node.held == {address}
            question = node.n2.ask(node.epoch, wants=[address], moves=[address])
            answer, seconds = await answered(node, question)
            assert seconds == 0.25
            assert answer.has.lent == frozenset()
            assert node.held == {address}
            assert node.looked_at == [1.26]

    async def test_lists_are_a_while_apart(self, node):
        async with node.working():
            began = clock.now()
            while clock.now() < began + 4:
                await node.answer(replace(node.n2.ask(node.epoch), epoch="n2.2"))
            first, *others = node.looked_at
            assert [round(at - first, 2) for at in others] == [2.0]

    async def test_one_that_no_cycle_answers_in_time_is_forgotten(self, node):
        async with node.running():
            assert await answered(node, node.n2.ask(node.epoch)) == (None, 0.45)
            node.cycle()
            await settle()
            # They have not met.
            assert len(node.asked) == 1


class TestCrossing:
    async def test_of_two_questions_the_one_of_the_first_node_goes_first(self, node):
        node.agents.answer("n2", KIND, HANGS, times=1)
        async with node.working():
            answer = await node.answer(node.n2.ask(node.epoch))
            assert answer.refusal is QuestionRefusal.CROSSING


class TestEpochOver:
    async def test_who_has_no_right_and_holds_nothing_says_so(self, node):
        async with node.working():
            epoch = node.epoch
            node.refuse()
            await node.until(8)
            answer, seconds = await answered(node, node.n2.ask(epoch))
            assert answer.refusal is QuestionRefusal.EPOCH_OVER
            assert seconds == 0.0

    async def test_who_holds_something_does_not(self, node):
        async with node.working():
            epoch = node.epoch
            node.refuse()
            await node.until(8)
            node.held = node.stuck = frozenset({VIP4})
            answer = await node.answer(node.n2.ask(epoch))
            assert answer.refusal is QuestionRefusal.UNKNOWN_EPOCH


class TestMail:
    def mailed(self, node, *questions, version):
        mail = mail_text(Mail(questions))
        node.store.leases.put(peer_lease("n2", mail=mail, duration=100, version=version))

    @FAMILIES
    async def test_one_in_the_lease_of_the_peer_is_answered_in_the_own(self, node, first):
        address = won_by("n1", first)
        async with node.working():
            question = node.n2.ask(node.epoch, wants=[address])
            self.mailed(node, question, version="2")
            await settle()
            ((asker, answer),) = read_mail(node.lease.mail).answers
            assert (asker, answer.nonce) == ("n2", question.nonce)
            assert answer.has.lent == {address}

    async def test_the_answer_stands_there_as_long_as_the_question(self, node):
        async with node.working():
            self.mailed(node, node.n2.ask(node.epoch), version="2")
            await node.until(12)
            assert read_mail(node.lease.mail).answers != ()
            self.mailed(node, version="3")
            await settle()
            assert node.lease.mail == ""

    async def test_it_is_answered_also_when_an_address_was_not_removed(self, node):
        address = won_by("n2", VIP4)
        node.held = node.stuck = frozenset({address})
        node.plan(address)
        async with node.working():
            question = node.n2.ask(node.epoch, wants=[address], moves=[address])
            self.mailed(node, question, version="2")
            await settle()
            ((_asker, answer),) = read_mail(node.lease.mail).answers
            assert answer.has.borrowed == {address}
            node.stuck = frozenset()
            again = node.n2.ask(node.epoch, nonce="again", wants=[address], moves=[address])
            self.mailed(node, again, version="3")
            await settle()
            ((_asker, answer),) = read_mail(node.lease.mail).answers
            assert answer.has.borrowed == frozenset()
