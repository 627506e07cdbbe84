# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the node `a` asks about permissions, and what it answers; `b` is its peer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.holding.messages import Mail, mail_text, read_mail
from purelb.core.holding.permissions import (
    Pair,
    PermissionAnswer,
    PermissionQuestion,
    QuestionRefusal,
)
from tests.support.core.holders import (
    NOTHING,
    answered,
    ask,
    holder,
    lease,
    nonces,
    renewed,
)
from tests.support.core.ranks import won_by
from tests.support.core.snapshots import VIP4, VIP6

BOTH = pytest.mark.parametrize("first", [VIP4, VIP6], ids=["v4", "v6"])


def of_b(**more):
    """A question of `b` to `a`."""
    return replace(PermissionQuestion("b", "b.1", "a", "a.1", "one"), **more)


def says(**more):
    return PermissionAnswer("nonce 0", **more)


def asks(node, missing=(), *, now=0.0):
    return node.ask(dict(missing), nonce=nonces(), now=now)


class TestAsking:
    def test_who_was_not_met_is_asked_for_nothing(self):
        node, (question,) = asks(holder("a", "b"))
        assert (question.peer, question.peer_epoch, question.wants) == ("b", "b.1", NOTHING)
        assert asks(node)[1] == ()

    def test_no_node_is_asked_before_the_own_lease_is_shown(self):
        node = holder("a", "b")
        node = replace(node, right=replace(node.right, is_shown=False))
        assert asks(node) == (node, ())

    @BOTH
    def test_what_is_missing_is_given_by_who_does_not_have_it(self, first):
        address = won_by("b", first, nodes=("a", "b"))
        one, other = ask(holder("a", "b"), holder("b", "a"), {address: ["b"]})
        assert one.permissions.lacking(address, ["b"]) == NOTHING
        assert other.permissions.lacking(address, ["a"]) == {"a"}

    def test_an_answer_is_used_when_all_that_its_sender_promised_to_count_count(self):
        one = holder("a", "b", "c")
        one = replace(one, counting=one.counting.ended("c", "c.1", now=0.0))
        one, (question,) = asks(one)
        one = one.hear(question, says(promised=(("c", 20.0),)), now=0.0)
        assert one.counting.is_live("c")

    def test_what_has_ended_for_the_peer_has_here(self):
        one, questions = asks(holder("a", "b", "c"))
        assert len(questions) == 2
        one = one.hear(questions[0], says(ended=(("c", "c.1"), ("x", "x.1"))), now=0.0)
        assert not one.counting.is_live("c")
        assert "c" not in one.permissions.asked

    def test_a_late_answer_says_what_has_ended_and_nothing_else(self):
        one, questions = asks(holder("a", "b", "c"))
        late = replace(questions[0], nonce="earlier")
        after = one.hear(late, PermissionAnswer("earlier", ended=(("c", "c.1"),)), now=0.0)
        assert not after.counting.is_live("c")
        assert after.permissions.asked.keys() == {"b"}
        assert after.talks == one.talks

    @pytest.mark.parametrize(
        ("refusal", "pause"),
        [(QuestionRefusal.UNKNOWN_EPOCH, 0.3), (QuestionRefusal.CROSSING, 0.05)],
    )
    def test_a_refusal_is_asked_again_after_a_pause(self, refusal, pause):
        one, (question,) = asks(holder("a", "b"))
        one = one.hear(question, says(refusal=refusal), now=1.0)
        assert one.talks.next_at(1.0) == 1.0 + pause
        assert asks(one, now=1.0 + 0.9 * pause)[1] == ()
        assert len(asks(one, now=1.0 + pause)[1]) == 1

    def test_whose_epoch_is_over_counts_no_more(self):
        one, (question,) = asks(holder("a", "b"))
        one = one.hear(question, says(refusal=QuestionRefusal.EPOCH_OVER), now=0.0)
        assert one.counting.ends() == {"b": "b.1"}

    @pytest.mark.parametrize(("others", "pause"), [((), 0.3), (("c",), 2.0)])
    def test_what_the_peer_keeps_is_asked_for_again(self, others, pause):
        address = won_by("a", VIP4, nodes=("a", "b", *others))
        missing = {address: ["b", *others]}
        one, questions = asks(holder("a", "b", *others), missing)
        (to_b,) = (question for question in questions if question.peer == "b")
        kept = Pair("a.1", borrowed=frozenset({address}))
        one = one.hear(to_b, PermissionAnswer(to_b.nonce, kept), now=0.0)
        assert asks(one, missing, now=pause - 0.01)[1] == ()
        assert len(asks(one, {**missing, VIP6: ["b"]}, now=0.0)[1]) == 1
        (again,) = asks(one, missing, now=pause)[1]
        assert (again.peer, again.wants) == ("b", {address})


class TestAnswering:
    @BOTH
    def test_what_is_not_wanted_is_given_at_once(self, first):
        address = won_by("a", first, nodes=("a", "b"))
        node, (answer,) = answered(holder("a", "b"), of_b(wants=frozenset({address})))
        assert answer.has.lent == {address}
        assert node.talks.waiting == node.talks.answered == ()

    def test_what_was_not_removed_is_taken_back(self):
        address = won_by("b", VIP4, nodes=("a", "b"))
        node = holder("a", "b", held={address})
        it = frozenset({address})
        node = node.asked(of_b(wants=it, moves=it), now=0.0).answer(
            held=it, wanted=NOTHING, now=0.0
        )
        assert node.permissions.is_denied(address, ["b"])
        node, ((_asked, answer),) = node.reply(held=it, now=0.0)
        assert answer.has.borrowed == it
        assert not node.permissions.is_denied(address, ["b"])

    @pytest.mark.parametrize(
        ("question", "wanted"),
        [
            (of_b(epoch="b.2"), NOTHING),
            (of_b(peer_epoch="a.2"), NOTHING),
            (of_b(wants=frozenset({VIP4})), {VIP4}),
        ],
        ids=["its epoch", "the own epoch", "wanted here"],
    )
    def test_one_about_what_was_not_seen_waits(self, question, wanted):
        node, answers = answered(holder("a", "b"), question, wanted=wanted, now=5.0)
        assert answers == []
        assert node.talks.next_at(5.0) == 5.25
        node = node.answer(held=NOTHING, wanted=frozenset(wanted), now=5.25)
        assert len(node.talks.answered) == 1
        assert node.talks.listed_at == 5.25

    def test_lists_are_a_while_apart(self):
        node = holder("a", "b")
        listed = set()
        for tenth in range(40):
            node = node.asked(of_b(epoch="b.2"), now=tenth / 10)
            node = node.answer(held=NOTHING, wanted=NOTHING, now=tenth / 10)
            node, _replies = node.reply(held=NOTHING, now=tenth / 10)
            listed.add(node.talks.listed_at)
        first, second = sorted(listed)[1:]
        assert second - first == pytest.approx(2.0)

    def test_one_that_no_cycle_answers_in_time_is_forgotten(self):
        node = holder("a", "b").asked(of_b(), now=0.0)
        assert node.answer(held=NOTHING, wanted=NOTHING, now=0.46).talks.answered == ()

    def test_it_says_whom_this_node_promised_to_count_and_what_has_ended(self):
        node = holder("a", "b", "c", "d")
        counting = node.counting.promise("c", until=7.0).said_over("d", "d.1")
        node, (answer,) = answered(replace(node, counting=counting), of_b())
        assert answer.promised == (("c", 7.0),)
        assert answer.ended == (("d", "d.1"),)

    def test_one_shows_that_its_asker_lives_and_whom_that_promised_to_count(self):
        node = holder("a", "b", "c")
        counting = node.counting.ended("b", "b.1", now=0.0).ended("c", "c.1", now=0.0)
        node = replace(node, counting=counting).asked(of_b(promised=(("c", 20.0),)), now=0.0)
        assert node.counting.is_live("b")
        assert node.counting.is_live("c")

    def test_of_two_that_cross_the_one_of_the_first_node_goes_first(self):
        node, _questions = asks(holder("a", "b"))
        _node, (answer,) = answered(node, of_b())
        assert answer.refusal is QuestionRefusal.CROSSING

    @pytest.mark.parametrize("held", [NOTHING, {VIP4}], ids=["nothing", "something"])
    def test_whose_right_is_over_says_so_if_it_holds_nothing(self, held):
        node = holder("a", "b").at(8.0)
        node, answers = answered(node, of_b(), held=frozenset(held), now=8.0)
        node = node.answer(held=frozenset(held), wanted=NOTHING, now=8.25)
        answers += [answer for _asked, answer in node.talks.answered]
        refusal = QuestionRefusal.UNKNOWN_EPOCH if held else QuestionRefusal.EPOCH_OVER
        assert [answer.refusal for answer in answers] == [refusal]


def mailed(node, mail, *, now=0.0, renewed=2.0, **more):
    """The node after it has seen this in the Lease of `b`."""
    counting = node.counting.observe(
        lease("b", renewed=renewed, mail=mail_text(mail), **more), now=now
    )
    return replace(node, counting=counting).with_mail(now=now)


def silent(node, missing=()):
    """The node after three questions that `b` did not answer, and when it may ask again."""
    for _try in range(3):
        node, (question,) = asks(node, missing)
        node = node.hear(question, None, now=0.0)
    return node


class TestMail:
    def test_after_three_questions_one_stands_in_the_own_lease(self):
        node = silent(holder("a", "b"))
        assert asks(node, now=0.4) == (node, ())
        node, direct = asks(node, now=0.5)
        assert direct == ()
        (question,) = read_mail(node.mail()).questions
        assert question.peer == "b"

    def test_for_a_while_then_another_one(self):
        node, _none = asks(silent(holder("a", "b")), now=0.5)
        assert node.talks.next_at(0.5) == 5.5
        counting = node.counting.observe(lease("b", renewed=2.0), now=5.0)
        right = renewed(node.right, now=5.0)
        node = replace(node, counting=counting, right=right)
        node = node.answer(held=NOTHING, wanted=NOTHING, now=5.5)
        assert node.mail() == ""
        assert asks(node, now=5.9)[0].mail() == ""
        assert asks(node, now=6.0)[0].mail() != ""

    def test_the_answer_in_the_lease_of_the_peer_is_taken(self):
        node, _none = asks(silent(holder("a", "b")), now=0.5)
        (question,) = read_mail(node.mail()).questions
        _other, (answer,) = answered(holder("b", "a"), question, by_lease=True)
        stale = replace(answer, nonce="another")
        for other in (("a", stale), ("c", answer)):
            assert mailed(node, Mail((), (other,))).permissions.pairs == {}
        after = mailed(node, Mail((), (("c", answer), ("a", answer))), now=0.6)
        assert after.permissions.pairs.keys() == {"b"}
        assert after.mail() == ""
        # It is asked directly again, but once.
        assert after.talks.posted == {}
        assert not after.permissions.asks_by_lease("b")

    @pytest.mark.parametrize(("by_lease", "counts"), [(True, ["b", "c"]), (False, ["b"])])
    def test_what_ended_is_heard_directly_only(self, by_lease, counts):
        """A Lease can be written with a stolen token; what nodes say to each other is signed."""
        node, (question, _other) = holder("a", "b", "c").ask({}, nonce=lambda: "1", now=0.5)
        answer = PermissionAnswer(question.nonce, ended=(("c", "c.1"),))
        after = node.hear(question, answer, by_lease=by_lease, now=0.6)
        assert sorted(after.counting.epochs()) == counts

    @BOTH
    def test_a_question_there_is_answered_in_the_own_lease(self, first):
        address = won_by("a", first, nodes=("a", "b"))
        question = of_b(wants=frozenset({address}))
        node = mailed(holder("a", "b"), Mail((question,)))
        node = node.answer(held=NOTHING, wanted=NOTHING, now=0.0)
        node, ((_asked, answer),) = node.reply(held=NOTHING, now=0.0)
        assert answer.has.lent == {address}
        assert read_mail(node.mail()).answers == (("b", answer),)
        again = node.with_mail(now=1.0)
        assert again.talks.waiting == ()
        assert again.mail() == node.mail()

    def test_the_answer_stands_there_as_long_as_the_question(self):
        node = mailed(holder("a", "b"), Mail((of_b(),)))
        node = node.answer(held=NOTHING, wanted=NOTHING, now=0.0)
        node, _replies = node.reply(held=NOTHING, now=0.0)
        assert mailed(node, Mail(), renewed=3.0).mail() == ""

    def test_no_answer_stands_there_to_who_counts_no_more(self):
        node = mailed(holder("a", "b"), Mail((of_b(),)))
        node = node.answer(held=NOTHING, wanted=NOTHING, now=0.0)
        node, _replies = node.reply(held=NOTHING, now=0.0)
        assert replace(node, counting=node.counting.said_over("b", "b.1")).mail() == ""

    @pytest.mark.parametrize(
        "question", [of_b(peer="c"), of_b(asker="c")], ids=["to another", "of another"]
    )
    def test_a_question_to_or_of_another_node_is_none(self, question):
        assert mailed(holder("a", "b"), Mail((question,))).talks.waiting == ()

    def test_the_next_one_is_new(self):
        node = mailed(holder("a", "b"), Mail((of_b(),)))
        node = mailed(node, Mail((of_b(nonce="two"),)), renewed=3.0)
        assert [asked.question.nonce for asked in node.talks.waiting] == ["one", "two"]

    @pytest.mark.parametrize("more", [{"epoch": ""}, {"subnets": ()}], ids=["no epoch", "far"])
    def test_of_who_has_no_epoch_none_is_read(self, more):
        node = mailed(holder("a", "b"), Mail((of_b(),)), **more)
        assert len(node.talks.waiting) == (0 if "epoch" in more else 1)

    def test_who_was_met_is_asked_again_while_another_one_is_silent(self):
        node, other = holder("a", "b", "c"), holder("c", "a")
        node, questions = asks(node)
        (to_b,) = (q for q in questions if q.peer == "b")
        (to_c,) = (q for q in questions if q.peer == "c")
        _other, (answer,) = answered(other, to_c)
        node = node.hear(to_c, answer, now=0.0)
        for _try in range(2):
            node = node.hear(to_b, None, now=0.0)
            node, (to_b,) = asks(node)
        node = node.hear(to_b, None, now=0.0)
        node, (again,) = asks(node, now=2.0)
        assert (again.peer, again.wants) == ("c", NOTHING)
        assert read_mail(node.mail()).questions[0].peer == "b"


class TestOver:
    def test_all_near_nodes_are_to_hear_when_the_right_is_over_and_nothing_is_left(self):
        node = holder("a", "b", "c", "d", "e")
        counting = node.counting.said_over("c", "c.1")
        counting = counting.observe(lease("d", renewed=2.0, subnets=()), now=0.0)
        counting = counting.observe(lease("e", renewed=2.0, epoch=""), now=0.0)
        node = replace(node, counting=counting).at(8.0)
        assert node.reply(held=frozenset({VIP4}), now=8.0)[0].over.epoch == ""
        node, _replies = node.reply(held=NOTHING, now=8.0)
        assert node.over == ("a.1", {"b", "c"}, 18.0)
        assert node.reply(held=NOTHING, now=9.0)[0].over is node.over

    def test_until_they_have_heard_it_or_a_lease_would_have_ended(self):
        node, _replies = holder("a", "b", "c").at(8.0).reply(held=NOTHING, now=8.0)
        assert node.told("a.0", {"b", "c"}, now=9.0) is node
        node = node.told("a.1", {"b"}, now=9.0)
        assert node.over.untold == {"c"}
        assert node.told("a.1", (), now=18.0).over.untold == NOTHING

    def test_who_has_a_right_says_nothing(self):
        node, _replies = holder("a", "b").reply(held=NOTHING, now=1.0)
        assert node.over.epoch == ""
