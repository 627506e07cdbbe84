# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The questions of the node `n1` about permissions; those to it are in test_questions_answers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from ipaddress import ip_network

import pytest

from purelb.core.holding.messages import Mail, answer_body, mail_text, read_mail
from purelb.core.holding.permissions import PermissionAnswer, QuestionRefusal
from purelb.core.holding.right import is_earlier
from purelb_agent.holding.questions import KIND
from purelb_agent.runtime import clock
from tests.support.agent.fake_agents import HANGS, peer_lease
from tests.support.agent.questions_node import QuestionsNode, QuestionsPeer, settle
from tests.support.core.ranks import won_by
from tests.support.core.snapshots import VIP4, VIP6

FAMILIES = pytest.mark.parametrize("first", [VIP4, VIP6], ids=["v4", "v6"])


@pytest.fixture
async def node():
    return QuestionsNode()


def refusing(refusal):
    def answer(body):
        return answer_body(PermissionAnswer(body["nonce"], refusal=refusal))

    return answer


class TestMeeting:
    async def test_a_peer_is_met_although_nothing_is_wanted(self, node):
        node.agents.answer("n2", KIND, node.n2)
        async with node.working():
            await node.until(20)
            (question,) = node.asked
            assert (question.asker, question.epoch) == ("n1", node.epoch)
            assert (question.peer, question.peer_epoch) == ("n2", "n2.1")
            assert question.wants == question.holds == frozenset()

    @FAMILIES
    async def test_nothing_is_put_before(self, node, first):
        address = won_by("n1", first)
        node.plan(address)
        node.agents.answer("n2", KIND, HANGS, times=1)
        async with node.working():
            await node.until(0.4)
            assert node.held == frozenset()
            node.agents.answer("n2", KIND, node.n2)
            await node.until(0.6)
            assert node.held == {address}

    async def test_who_leaves_waits_for_no_answer(self, node):
        node.agents.answer("n2", KIND, HANGS)
        async with node.working():
            await node.until(0.1)
            (asked,) = node.asked
            left_at = clock.now()
        # Nothing is under way any more, or the fixture no_leaks fails this test.
        assert clock.now() < left_at + 0.1
        assert node.asked == [asked]

    async def test_a_peer_that_denies_an_address_is_shown(self, node):
        address = won_by("n1", VIP4)
        node.agents.answer("n2", KIND, node.n2)
        node.n2.holds = node.n2.wanted = frozenset({address})
        node.plan(address)
        name = "purelb_election_permissions_missing"
        missing = partial(node.registry.get_sample_value, name, {"peer": "n2"})
        async with node.working():
            await node.until(1)
            assert missing() == 1
            node.n2.holds = node.n2.wanted = frozenset()
            await node.until(5)
            assert node.held == {address}
            assert missing() is None

    async def test_no_node_is_asked_before_the_watch_shows_the_own_lease(self, node):
        node.agents.answer("n2", KIND, node.n2)
        node.shows = False
        node.plan(won_by("n1", VIP4))
        async with node.working():
            await node.until(1)
            assert node.agents.told == []
            assert node.held == frozenset()

    async def test_who_is_in_no_subnet_of_this_node_is_not_asked(self, node):
        far = (ip_network("10.9.0.0/16"), ip_network("fd99::/64"))
        node.store.leases.put(peer_lease("n2", subnets=far, version="2"))
        async with node.working():
            await node.until(1)
            assert node.agents.told == []

    async def test_who_writes_no_epoch_is_not_asked(self, node):
        node.store.leases.put(peer_lease("n2", epoch="", version="2"))
        node.plan(address := won_by("n1", VIP4))
        async with node.working():
            assert node.agents.told == []
            assert node.held == {address}

    async def test_a_peer_in_another_epoch_is_met_again(self, node):
        node.agents.answer("n2", KIND, node.n2)
        async with node.working():
            node.store.leases.put(peer_lease("n2", epoch="n2.2", version="2"))
            await node.until(0.1)
            assert [question.peer_epoch for question in node.asked] == ["n2.1", "n2.2"]

    async def test_all_are_met_again_in_another_own_epoch(self, node):
        node.agents.answer("n2", KIND, node.n2)
        async with node.working():
            first = node.epoch
            node.renewer.set_subnets(node.store.subnets[:1], at_once=True)
            await node.until(2.1)
            assert [question.epoch for question in node.asked] == [first, node.epoch]
            assert first != node.epoch

    async def test_decisions_are_the_same_while_nothing_changes(self, node):
        node.agents.answer("n2", KIND, node.n2)
        node.plan(won_by("n1", VIP4))
        async with node.working():
            await settle()
            before = node.decisions
            cycles = node.cycles
            node.store.changed.notify()
            await settle()
            assert node.cycles > cycles
            assert node.decisions is before


class TestWaiting:
    @FAMILIES
    async def test_what_the_peer_holds_moves_when_only_it_is_missing(self, node, first):
        address = won_by("n1", first)
        node.n2.holds = frozenset({address})
        node.agents.answer("n2", KIND, node.n2)
        node.plan(address)
        async with node.working():
            await node.until(1)
            assert node.held == {address}
            assert node.n2.holds == frozenset()
            assert node.asked[-1].moves == {address}

    async def test_what_the_peer_keeps_is_asked_for_again(self, node):
        address = won_by("n1", VIP4)
        node.n2.holds = node.n2.wanted = frozenset({address})
        node.agents.answer("n2", KIND, node.n2)
        node.plan(address)
        async with node.working():
            began = node.agents.told[0].at
            await node.until(1)
            moments = [round(at - began, 1) for at in node.agents.asked("n2", KIND)]
            assert moments == [0.0, 0.3, 0.6, 0.9]
            assert node.held == frozenset()

    async def test_less_often_where_another_permission_is_missing_too(self, node):
        address = won_by("n1", VIP4, nodes=("n1", "n2", "n3"))
        node.n2.holds = frozenset({address})
        node.agents.answer("n2", KIND, node.n2)
        node.agents.answer("n3", KIND, HANGS)
        node.store.leases.put(peer_lease("n3", duration=100))
        node.plan(address, members=("n1", "n2", "n3"))
        async with node.working():
            await node.until(4.5)
            asked = [at for at in node.agents.asked("n2", KIND) if at > 0.1]
            assert asked == [2.01, 4.01]
            assert all(not question.moves for question in node.asked)
            assert node.n2.holds == {address}

    async def test_other_wishes_do_not_wait(self, node):
        address = won_by("n1", VIP6)
        node.n2.holds = frozenset({address})
        node.agents.answer("n2", KIND, node.n2)
        async with node.working():
            await node.until(0.5)
            assert len(node.asked) == 1
            node.plan(address)
            await settle()
            assert len(node.asked) == 2
            assert node.held == {address}


class TestRefusals:
    @pytest.mark.parametrize(
        ("refusal", "pause"),
        [(QuestionRefusal.UNKNOWN_EPOCH, 0.3), (QuestionRefusal.CROSSING, 0.05)],
    )
    async def test_it_is_asked_again_after_a_pause(self, node, refusal, pause):
        node.agents.answer("n2", KIND, node.n2)
        node.agents.answer("n2", KIND, refusing(refusal), times=2)
        async with node.working():
            await node.until(1)
            at, *others = node.agents.asked("n2", KIND)
            assert [round(other - at, 2) for other in others] == [pause, 2 * pause]
            assert len({question.nonce for question in node.asked}) == 3

    async def test_whose_epoch_is_over_counts_no_more(self, node):
        node.agents.answer("n2", KIND, refusing(QuestionRefusal.EPOCH_OVER))
        node.plan(address := won_by("n1", VIP4))
        async with node.working():
            await node.until(1)
            assert not node.store.leases.counting.is_live("n2")
            assert node.store.leases.counting.ends() == {"n2": "n2.1"}
            assert len(node.asked) == 1
            assert node.held == {address}


class TestEnds:
    async def test_what_the_peer_says_is_over_counts_no_more(self, node):
        node.store.leases.put(peer_lease("n3", duration=100))
        node.agents.answer("n2", KIND, lambda b: {**node.n2(b), "ended": {"n3": "n3.1", "x": "1"}})
        node.agents.answer("n3", KIND, HANGS)
        async with node.working():
            assert not node.store.leases.counting.is_live("n3")
            assert node.store.leases.counting.is_live("n2")

    async def test_whom_the_peer_promised_to_count_counts_before_its_permission_is_used(self, node):
        """This node believed its end; the peer gives what it is asked for."""
        address = won_by("n1", VIP4)
        node.store.leases.put(peer_lease("n3"))
        node.agents.answer("n3", KIND, HANGS)
        node.agents.answer("n2", KIND, HANGS)
        async with node.working():
            table = node.store.leases
            table.change(table.counting.ended("n3", "n3.1", now=clock.now()))
            node.agents.answer("n2", KIND, lambda b: {**node.n2(b), "promised": {"n3": 5.0}})
            node.plan(address)
            await node.until(1)
            assert table.counting.is_live("n3")

    @pytest.mark.parametrize("ended", [{"n3": "n3.0"}, {}, None, ["n3"], "n3"], ids=str)
    async def test_another_epoch_or_what_cannot_be_read_changes_nothing(self, node, ended):
        node.store.leases.put(peer_lease("n3", duration=100))
        node.agents.answer("n2", KIND, lambda body: {**node.n2(body), "ended": ended})
        node.agents.answer("n3", KIND, HANGS)
        async with node.working():
            await settle()
            assert node.store.leases.counting.is_live("n3")

    @pytest.mark.parametrize("silent", ["n3", "n2"])
    async def test_who_was_met_is_asked_again_while_another_one_is_silent(self, node, silent):
        other = "n2" if silent == "n3" else "n3"
        node.store.leases.put(peer_lease("n3", duration=100))
        peer, ended = QuestionsPeer(other), {}
        node.agents.answer(other, KIND, lambda body: {**peer(body), "ended": ended})
        node.agents.answer(silent, KIND, HANGS)
        async with node.working():
            await node.until(5)
            assert node.store.leases.counting.is_live(silent)
            ended[silent] = f"{silent}.1"
            await node.until(7.1)
            assert not node.store.leases.counting.is_live(silent)
            asked = node.agents.asked(other, KIND)
            assert len(asked) <= 5
            await node.until(20)
            assert node.agents.asked(other, KIND) == asked

    async def test_no_node_is_asked_again_where_all_are_silent(self, node):
        node.store.leases.put(peer_lease("n3", duration=100))
        node.agents.answer("n2", KIND, HANGS)
        node.agents.answer("n3", KIND, HANGS)
        async with node.working():
            await node.until(20)
            assert len(node.agents.asked("n3", KIND)) == 3


class TestSilence:
    async def test_an_answer_that_is_lost_is_asked_for_again(self, node):
        node.agents.answer("n2", KIND, node.n2)
        node.agents.answer("n2", KIND, HANGS, times=1)
        async with node.working():
            await node.until(2)
            assert node.agents.asked("n2", KIND) == [0.01, 0.51]
            assert len(node.n2.questions) == 1

    async def test_after_three_a_question_stands_in_the_own_lease(self, node):
        node.agents.answer("n2", KIND, HANGS)
        async with node.working():
            await node.until(1.9)
            assert node.lease.mail == ""
            await node.until(2.1)
            assert len(node.asked) == 3
            (question,) = read_mail(node.lease.mail).questions
            assert (question.peer, question.epoch) == ("n2", node.epoch)
            assert question.nonce not in {asked.nonce for asked in node.asked}

    async def test_another_one_stands_there_after_a_while(self, node):
        node.agents.answer("n2", KIND, HANGS)
        async with node.working():
            await node.until(6.9)
            first = node.lease.mail
            assert first
            await node.until(7.4)
            assert node.lease.mail == ""
            await node.until(7.6)
            assert node.lease.mail not in ("", first)
            assert len(node.asked) == 3

    async def test_an_answer_in_the_lease_of_the_peer_is_taken(self, node):
        address = won_by("n1", VIP6)
        node.plan(address)
        node.agents.answer("n2", KIND, HANGS)
        async with node.working():
            await node.until(2.1)
            (question,) = read_mail(node.lease.mail).questions
            answer = node.n2.answer(question)
            stale = replace(answer, nonce="another")
            mail = mail_text(Mail((), (("n1", stale),)))
            node.store.leases.put(peer_lease("n2", mail=mail, duration=100, version="2"))
            await settle()
            assert node.held == frozenset()
            mail = mail_text(Mail((), (("n1", answer),)))
            node.store.leases.put(peer_lease("n2", mail=mail, duration=100, version="3"))
            await settle()
            assert node.held == {address}
            assert node.lease.mail == ""

    async def test_who_answered_by_its_lease_is_asked_directly_again_but_once(self, node):
        address = won_by("n1", VIP4)
        node.n2.holds = node.n2.wanted = frozenset({address})
        node.agents.answer("n2", KIND, HANGS)
        node.plan(address)
        async with node.working():
            await node.until(2.1)
            assert len(node.asked) == 3
            (question,) = read_mail(node.lease.mail).questions
            mail = mail_text(Mail((), (("n1", node.n2.answer(question)),)))
            node.store.leases.put(peer_lease("n2", mail=mail, duration=100, version="2"))
            await node.until(2.5)
            assert len(node.asked) == 4
            assert node.lease.mail == ""
            await node.until(3.5)
            assert len(node.asked) == 4
            assert len(read_mail(node.lease.mail).questions) == 1


class TestOver:
    async def test_all_are_told_when_the_right_is_over_and_nothing_is_left(self, node):
        node.agents.answer("n2", KIND, node.n2)
        address = won_by("n1", VIP4)
        node.plan(address)
        async with node.working():
            await settle()
            epoch = node.epoch
            assert node.held == {address}
            node.refuse()
            node.stuck = frozenset({address})
            await node.until(8)
            assert node.renewer.right.deadline(clock.now()) is None
            assert node.store.holder.over.epoch == ""
            node.stuck = frozenset()
            node.store.changed.notify()
            await settle()
            # A renewal in the next one has failed, too.
            assert node.store.holder.over.epoch == node.renewer.right.over
            assert is_earlier(epoch, node.renewer.right.over)
