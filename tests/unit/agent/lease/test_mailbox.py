# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Questions and answers that stand in the Leases of `a` and `b`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.holding.messages import Mail, mail_text, read_mail
from purelb.core.holding.permissions import Pair, PermissionAnswer, PermissionQuestion
from purelb_agent.lease.mailbox import Mailbox
from tests.support.core.snapshots import VIP4, VIP6

QUESTION = PermissionQuestion("a", "a.1", "b", "b.1", "one", wants=frozenset({VIP4, VIP6}))
ANSWER = PermissionAnswer("one", Pair("a.1", lent=frozenset({VIP4, VIP6})))


PEERS = frozenset({"a", "c"})


def asks(*questions):
    return mail_text(Mail(questions))


def answers(*pairs):
    return mail_text(Mail((), pairs))


@pytest.fixture
def box():
    """The mailbox of `b`."""
    return Mailbox("b")


class TestQuestions:
    def test_one_is_taken_once(self, box):
        assert box.read("a", asks(QUESTION)) == (None, QUESTION)
        assert box.read("a", asks(QUESTION)) == (None, None)

    def test_the_next_one_is_new(self, box):
        box.read("a", asks(QUESTION))
        following = replace(QUESTION, nonce="two")
        assert box.read("a", asks(following)) == (None, following)

    def test_one_to_another_node_is_left_alone(self, box):
        other = replace(QUESTION, peer="c")
        assert box.read("a", asks(other)) == (None, None)
        assert box.read("a", asks(other, QUESTION)) == (None, QUESTION)

    def test_one_in_the_name_of_another_node_is_none(self, box):
        assert box.read("c", asks(QUESTION)) == (None, None)
        assert box.read("a", asks(QUESTION)) == (None, QUESTION)

    @pytest.mark.parametrize("text", ["", "{", "[]"])
    def test_what_cannot_be_read_is_none(self, box, text):
        assert box.read("a", text) == (None, None)


class TestAnswers:
    def test_one_stands_in_the_own_lease_while_the_question_does(self, box):
        box.read("a", asks(QUESTION))
        box.answer("a", ANSWER)
        box.read("a", asks(QUESTION))
        assert read_mail(box.text((), PEERS)) == Mail((), (("a", ANSWER),))
        box.read("a", "")
        assert box.text((), PEERS) == ""

    def test_one_to_this_node_is_read_as_often_as_it_stands_there(self, box):
        text = answers(("c", replace(ANSWER, nonce="two")), ("b", ANSWER))
        assert box.read("a", text) == (ANSWER, None)
        assert box.read("a", text) == (ANSWER, None)

    def test_one_to_others_is_left_alone(self, box):
        assert box.read("a", answers(("c", ANSWER))) == (None, None)


class TestText:
    def test_it_has_the_questions_and_the_answers_by_who_asked(self, box):
        for asker in ("c", "a"):
            box.read(asker, asks(replace(QUESTION, asker=asker)))
            box.answer(asker, ANSWER)
        own = replace(QUESTION, asker="b", peer="d")
        assert read_mail(box.text([own], PEERS)) == Mail((own,), (("a", ANSWER), ("c", ANSWER)))

    def test_it_has_no_answer_to_who_counts_no_more(self, box):
        box.read("a", asks(QUESTION))
        box.answer("a", ANSWER)
        assert box.text((), PEERS - {"a"}) == ""

    def test_it_is_empty_without_any(self, box):
        assert box.text((), PEERS) == ""

    def test_each_lease_is_read_for_itself(self, box):
        other = replace(QUESTION, asker="c")
        assert box.read("a", asks(QUESTION)) == (None, QUESTION)
        assert box.read("c", asks(other)) == (None, other)
        assert box.read("a", asks(QUESTION)) == (None, None)
