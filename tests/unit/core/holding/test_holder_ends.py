# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the node `a` says of its right and its promises, and what it hears of those of others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.holding.counted_lease import Check
from purelb.core.holding.messages import RightAnswer
from purelb.core.holding.outage import (
    CanRenew,
    Heard,
    OutageAnswer,
    OutageAssessment,
    OutageQuestion,
    PeerAnswer,
    Round,
    extended_deadline,
)
from purelb.core.holding.permissions import Permissions
from tests.support.core.holders import NOTHING, TIMING, holder, lease
from tests.support.core.snapshots import VIP4

CAN, CANNOT, KNOWS, SILENT = PeerAnswer.CAN, PeerAnswer.CANNOT, PeerAnswer.KNOWS, PeerAnswer.SILENT
# The renewals fail for a second.
ASKED = Round(4.0, 5.0, TIMING)


@pytest.fixture
def node():
    """It has a right until 7 and counts `b` and `c` until 10."""
    return holder("a", "b", "c")


class TestTime:
    def test_what_has_ended_has_and_so_have_its_permissions(self, node):
        node = replace(node, permissions=Permissions("a", "a.1"))
        assert node.at(6.9) is node
        assert node.at(7.0).right.epoch == node.at(7.0).permissions.epoch == ""

    def test_permissions_are_those_of_who_counts(self, node):
        node, (question, *_other) = node.ask({}, nonce=lambda: "one", now=0.0)
        node = replace(node, counting=node.counting.said_over(question.peer, f"{question.peer}.1"))
        assert question.peer not in node.at(0.0).permissions.asked

    def test_those_with_whom_it_agrees_are_near_and_this_node(self, node):
        far = node.counting.observe(lease("c", renewed=2.0, subnets=()), now=0.0)
        node = replace(node, counting=far)
        assert node.members() == {"a", "b"}
        assert node.near_epochs() == {"b": "b.1"}


class TestOwnRight:
    @pytest.mark.parametrize(
        "held", [None, NOTHING, frozenset({VIP4})], ids=["no plan so far", "nothing", "something"]
    )
    def test_who_has_one_says_for_how_long_and_whom_it_promised_to_count(self, node, held):
        node = replace(node, held=held, counting=node.counting.promise("b", until=20.0))
        said = node.say_right("any", now=5.0)
        assert said == RightAnswer(pytest.approx(4.99), promised=(("b", 15.0),))

    @pytest.mark.parametrize(
        ("held", "says"),
        [(None, None), (frozenset({VIP4}), None), (NOTHING, RightAnswer(0.0, is_over=True))],
        ids=["no plan so far", "something", "nothing"],
    )
    def test_who_has_none_says_so_once_it_holds_nothing(self, node, held, says):
        assert replace(node, held=held).say_right("a.1", now=7.0) == says

    def test_not_of_the_epoch_that_it_is_about_to_enter(self, node):
        assert node.say_right("a.2", now=7.0) is None


class TestOwnPromises:
    def test_it_says_for_how_long_it_counts_another_one_because_of_one(self, node):
        node = replace(node, counting=node.counting.promise("b", until=20.0))
        assert node.say_promise("b", now=5.0) == RightAnswer(15.0)
        assert node.say_promise("c", now=5.0) == RightAnswer(0.0)


class TestRightsOfOthers:
    def test_who_has_one_counts_for_so_long(self, node):
        node = node.hear_right("b", "b.1", RightAnswer(15.0), now=5.0)
        assert node.counting.leases["b"].until == 20.0

    @pytest.mark.parametrize("seconds", [0.0, -1.0])
    def test_who_has_none_left_counts_no_longer(self, node, seconds):
        heard = node.hear_right("b", "b.1", RightAnswer(seconds), now=9.0)
        assert heard.counting.leases["b"].until == 10.0

    def test_whose_right_is_over_counts_no_more(self, node):
        node = node.hear_right("b", "b.1", RightAnswer(0.0, is_over=True), now=5.0)
        assert node.counting.ends() == {"b": "b.1"}

    def test_not_because_of_another_epoch(self, node):
        node = node.hear_right("b", "b.0", RightAnswer(0.0, is_over=True), now=5.0)
        assert node.counting.is_live("b")

    def test_whom_it_promised_to_count_counts(self, node):
        node = node.hear_right("b", "b.1", RightAnswer(1.0, promised=(("c", 20.0),)), now=5.0)
        assert node.counting.leases["c"].until == 25.0

    def test_whose_right_is_over_counts_no_more_and_whom_it_promised_to_count_does(self, node):
        node = node.hear_over("b", "b.1", (("c", 20.0),), now=5.0)
        assert not node.counting.is_live("b")
        assert node.counting.leases["c"].until == 25.0


class TestReads:
    def read(self, node, found=None, *, at=10.0, can_ask=True):
        return node.read("b", found, can_ask=can_ask, asked_at=at, now=at)

    def test_a_renewal_that_it_shows_counts(self, node):
        node = self.read(node, lease("b", renewed=2.0))
        assert node.counting.leases["b"].until == 20.0

    @pytest.mark.parametrize("found", [None, lease("b")], ids=["gone", "the same"])
    def test_one_that_shows_none_leaves_the_end_possible(self, node, found):
        node = self.read(node, found)
        assert node.counting.leases["b"].found.read_at == 10.0

    def test_what_is_found_is_noted(self, node):
        node = node.found("b", Check.ASK_NODE, asked_at=9.6, now=9.7)
        assert node.counting.leases["b"].found.silent_at == 9.6

    def test_a_lease_that_is_known_no_more_is_left_alone(self, node):
        after = node.read("x", lease("x"), can_ask=True, asked_at=10.0, now=10.0)
        assert "x" not in after.counting.leases

    def test_where_reads_failed_who_cannot_be_asked_counts_for_a_while(self, node):
        node = replace(node, unread_at=9.0)
        assert self.read(node, at=11.9, can_ask=False) is node
        assert self.read(node, at=12.0, can_ask=False) is not node
        assert self.read(node, at=10.0) is not node


def question(asker="b", *, fails_for=2.0):
    return OutageQuestion(asker, fails_for, TIMING.duration)


class TestAnswersInAnOutage:
    def answer(self, node, asked=None, *, age=None, is_listed=True, now=5.0):
        return node.answer_outage(asked or question(), age=age, is_listed=is_listed, now=now)

    def test_who_can_says_since_when_and_promises_nothing(self, node):
        node, answer = self.answer(node, age=1.5)
        assert answer == OutageAnswer(CAN, 1.5)
        assert node.counting.promises == {}

    def test_who_cannot_promises_to_count_the_asker_for_a_full_duration(self, node):
        node, answer = self.answer(node)
        assert answer.answer is CANNOT
        assert node.counting.promises == {"b": 15.0}
        assert node.counting.leases["b"].until == 15.0

    @pytest.mark.parametrize(
        ("duration", "promised"), [(3.0, 3.0), (30.0, 30.0), (1e6, 60.0)], ids=str
    )
    def test_for_as_long_as_the_askers_lease_lasts(self, node, duration, promised):
        node, answer = self.answer(node, OutageQuestion("b", 1.0, duration))
        assert (answer.promised, node.counting.promises) == (promised, {"b": 5.0 + promised})

    def test_a_later_promise_takes_nothing_back(self, node):
        node, _answer = self.answer(node, OutageQuestion("b", 1.0, 10.0))
        node, answer = self.answer(node, OutageQuestion("b", 1.0, 3.0))
        assert (answer.promised, node.counting.promises) == (3.0, {"b": 15.0})

    def test_whose_lease_has_ended_is_not_promised_anything_but_heard(self, node):
        counting = node.counting.ended("b", "b.1", now=5.0)
        node, answer = self.answer(replace(node, counting=counting))
        assert (answer.answer, node.counting.promises) == (KNOWS, {})
        assert node.counting.is_live("b")

    @pytest.mark.parametrize(("is_listed", "says"), [(True, KNOWS), (False, CANNOT)])
    def test_a_stranger_only_before_the_leases_are_listed(self, node, is_listed, says):
        _node, answer = self.answer(node, question("x"), is_listed=is_listed)
        assert answer.answer is says

    def heard(self, node, *, age=0.0, by=CAN, since=1.0):
        said = {"c": OutageAnswer(by, age)}
        return node.hear_outage(node.members(), Round(since, 4.0, TIMING), said, now=4.5)[0]

    def test_it_passes_on_what_it_heard_but_not_to_the_one_that_said_it(self, node):
        node = self.heard(node)
        assert self.answer(node)[1].answer is KNOWS
        assert self.answer(node, question("c"))[1].answer is CANNOT

    def test_not_what_that_one_did_before_the_renewals_of_the_asker_failed(self, node):
        node = self.heard(node, age=1.5)
        assert self.answer(node, question(fails_for=2.0))[1].answer is CANNOT
        assert self.answer(node, question(fails_for=3.0))[1].answer is KNOWS

    def test_not_what_was_passed_on_to_it(self, node):
        assert self.answer(self.heard(node, by=KNOWS))[1].answer is CANNOT

    def test_not_for_long(self, node):
        node = self.heard(node)
        assert self.answer(node, question(fails_for=8.0), now=8.0)[1].answer is KNOWS
        assert self.answer(node, question(fails_for=9.0), now=8.1)[1].answer is CANNOT

    def test_not_once_that_one_cannot_any_more(self, node):
        node = self.heard(self.heard(node), by=CANNOT)
        assert self.answer(node)[1].answer is CANNOT

    def test_but_while_it_is_silent(self, node):
        node = self.heard(self.heard(node), by=SILENT)
        assert self.answer(node)[1].answer is KNOWS


class TestOwnOutage:
    def hear(self, node, now=5.2, **said):
        answers = {peer: OutageAnswer(answer, promised=10.0) for peer, answer in said.items()}
        return node.hear_outage(node.members(), ASKED, answers, now=now)

    def test_if_none_can_it_holds_for_longer(self, node):
        node, found = self.hear(node, b=CANNOT, c=SILENT)
        assert found is OutageAssessment.HOLD
        assert node.right.agreed == extended_deadline(ASKED, {})
        assert not node.right.is_cut_off

    def test_it_holds_for_no_longer_than_all_promised(self, node):
        said = {"b": OutageAnswer(CANNOT, promised=10.0), "c": OutageAnswer(CANNOT, promised=4.0)}
        node, found = node.hear_outage(node.members(), ASKED, said, now=5.2)
        assert found is OutageAssessment.HOLD
        assert node.right.agreed == extended_deadline(ASKED, said)

    def test_if_one_can_only_this_one_is_cut_off(self, node):
        node, found = self.hear(node, b=CAN, c=CANNOT)
        assert found is OutageAssessment.ALONE_CUT_OFF
        assert (node.right.agreed, node.right.is_cut_off) == (None, True)
        assert not self.hear(node, b=CANNOT, c=CANNOT)[0].right.is_cut_off

    def test_if_too_few_answer_neither(self, node):
        node, found = self.hear(node, b=SILENT, c=SILENT)
        assert found is OutageAssessment.ISOLATED
        assert (node.right.agreed, node.right.is_cut_off) == (None, False)

    def test_who_says_unasked_that_it_can_is_believed_but_not_passed_on(self, node):
        node = node.hear_can(CanRenew("x", age=0.2), now=5.0)
        assert node.who_can.told == {"x": Heard(5.0, 4.3)}
        assert self.hear(node, b=CANNOT, c=CANNOT)[1] is OutageAssessment.ALONE_CUT_OFF
        _node, answer = node.answer_outage(question(), age=None, is_listed=True, now=5.0)
        assert answer.answer is CANNOT

    @pytest.mark.parametrize(("answer", "told"), [(CANNOT, False), (CAN, True), (SILENT, True)])
    def test_until_it_answers_that_it_cannot(self, node, answer, told):
        node = node.hear_can(CanRenew("b", age=0.0), now=5.0)
        node, _found = self.hear(node, b=answer, c=CANNOT)
        assert bool(node.who_can.told) == told

    def test_not_if_that_renewal_came_before_the_own_ones_failed(self, node):
        node = node.hear_can(CanRenew("x", age=0.6), now=5.0)
        assert self.hear(node, b=CANNOT, c=CANNOT)[1] is OutageAssessment.HOLD

    def test_not_for_long(self, node):
        node = node.hear_can(CanRenew("x", age=0.0), now=5.0)
        assert self.hear(node, b=CANNOT, c=CANNOT, now=8.6)[1] is OutageAssessment.HOLD
        node = node.hear_can(CanRenew("y", age=0.0), now=15.0)
        assert node.who_can.told.keys() == {"y"}

    def test_a_message_that_says_nothing_of_that_changes_nothing(self, node):
        assert node.hear_can(None, now=5.0) is node
