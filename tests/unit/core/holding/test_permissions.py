# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.election.election import rank
from purelb.core.holding.permissions import (
    BY_LEASE_AFTER,
    Pair,
    PermissionAnswer,
    Permissions,
    QuestionRefusal,
)

NOTHING = frozenset()


def ranked_first(node, other, version):
    """Return an address for which a node ranks before another."""
    text = {4: "192.0.2.{}", 6: "2001:db8::{}"}[version]
    numbers = (ip_address(text.format(n)) for n in range(1, 100))
    return next(a for a in numbers if rank((node, other), a)[0] == node)


@pytest.fixture(params=[4, 6], ids=["v4", "v6"])
def ours(request):
    """An address that ranks `a` before `b`."""
    return ranked_first("a", "b", request.param)


@pytest.fixture(params=[4, 6], ids=["v4", "v6"])
def theirs(request):
    """An address that ranks `b` before `a`."""
    return ranked_first("b", "a", request.param)


class Talk:
    """The nodes `a` and `b`, and what each holds and wants."""

    def __init__(self):
        self.of = {"a": Permissions("a", "a1"), "b": Permissions("b", "b1")}
        self.holds = {"a": set(), "b": set()}
        self.wanted = {"a": set(), "b": set()}
        self.asked = 0

    def question(self, asker, *, wants=(), moves=(), epoch=None):
        peer = "b" if asker == "a" else "a"
        self.asked += 1
        self.of[asker], question = self.of[asker].ask(
            peer, epoch or self.of[peer].epoch, nonce=str(self.asked),
            holds=frozenset(self.holds[asker]), wants=frozenset(wants), moves=frozenset(moves),
        )  # fmt: skip
        return question

    def answer(self, question, *, epochs=None):
        peer = question.peer
        self.of[peer], answer = self.of[peer].answer(
            question, epochs=epochs or {question.asker: question.epoch},
            holds=frozenset(self.holds[peer]), wanted=self.wanted[peer],
        )  # fmt: skip
        self.let_go(peer)
        return answer

    def hear(self, question, answer, **how):
        self.of[question.asker] = self.of[question.asker].heard(question.peer, answer, **how)
        self.let_go(question.asker)

    def let_go(self, node):
        self.holds[node] = {a for a in self.holds[node] if not self.of[node].is_denied(a, "ab")}

    def ask(self, asker, **what):
        question = self.question(asker, **what)
        answer = self.answer(question)
        self.hear(question, answer)
        return answer

    def may_put(self, node, address):
        return not self.of[node].lacking(address, {"a", "b"} - {node})


@pytest.fixture
def talk():
    return Talk()


class TestMeeting:
    def test_no_node_has_a_permission_before(self, talk, ours):
        assert talk.of["a"].lacking(ours, ["b"]) == {"b"}
        assert not talk.may_put("b", ours)

    def test_a_permission_is_with_the_one_that_ranks_first(self, talk, ours, theirs):
        talk.ask("a")
        assert [talk.may_put(node, ours) for node in "ab"] == [True, False]
        assert [talk.may_put(node, theirs) for node in "ab"] == [False, True]

    @pytest.mark.parametrize("asker", ["a", "b"])
    @pytest.mark.parametrize("holder", ["a", "b"])
    def test_what_one_holds_it_keeps(self, talk, ours, theirs, asker, holder):
        talk.holds[holder] = {ours, theirs}
        talk.ask(asker)
        other = "b" if holder == "a" else "a"
        assert talk.holds[holder] == {ours, theirs}
        assert not talk.may_put(other, ours)
        assert not talk.may_put(other, theirs)

    @pytest.mark.parametrize("asker", ["a", "b"])
    def test_of_what_both_hold_the_one_that_ranks_second_withdraws(self, talk, ours, theirs, asker):
        talk.holds = {"a": {ours, theirs}, "b": {ours, theirs}}
        talk.ask(asker)
        assert talk.holds == {"a": {ours}, "b": {theirs}}

    def test_a_second_meeting_in_the_same_epochs_changes_nothing(self, talk, ours):
        talk.answer(talk.question("a"))  # whose answer is lost
        talk.holds["a"] = {ours}
        talk.ask("a")
        assert talk.holds["a"] == {ours}
        assert not talk.may_put("b", ours)

    def test_who_has_met_says_what_it_has_to_one_that_has_not_heard_it(self, talk, theirs):
        """`a` answered while it held an address, and holds it again later."""
        talk.holds["a"] = {theirs}
        talk.answer(talk.question("b"))  # whose answer is lost
        talk.of["b"] = talk.of["b"].gave_up("a", "1")
        talk.holds["a"] = set()
        talk.ask("a")
        assert [talk.may_put(node, theirs) for node in "ab"] == [True, False]

    def test_another_epoch_of_this_node_voids_all(self, talk, ours):
        talk.ask("a")
        talk.of["a"] = talk.of["a"].entered("a1")
        assert talk.may_put("a", ours)
        talk.of["a"] = talk.of["a"].entered("a2")
        assert not talk.may_put("a", ours)

    def test_another_epoch_of_the_peer_voids_what_was_with_it(self, talk, ours):
        talk.ask("a")
        talk.of["a"] = talk.of["a"].among({"b": "b1"})
        assert talk.may_put("a", ours)
        talk.of["a"] = talk.of["a"].among({"b": "b2"})
        assert not talk.may_put("a", ours)

    def test_who_does_not_cover_an_address_denies_nothing(self, talk, theirs):
        talk.ask("a")
        assert talk.of["a"].is_denied(theirs, ["b"])
        assert not talk.of["a"].is_denied(theirs, [])

    def test_who_does_not_count_any_more_denies_nothing(self, talk, theirs):
        talk.ask("a")
        talk.of["a"] = talk.of["a"].among({})
        assert not talk.of["a"].is_denied(theirs, ["b"])


class TestLies:
    """What a peer says takes only addresses for which it ranks first; see tests/support/rule."""

    def test_who_says_it_has_an_address_that_is_held_meets_again(self, talk, ours):
        talk.holds["a"] = talk.wanted["a"] = {ours}
        has = Pair("a1", borrowed=frozenset({ours}))
        talk.of["b"] = replace(talk.of["b"], pairs={"a": has})
        answer = talk.ask("b")
        assert answer.refusal is QuestionRefusal.NOT_MET
        assert talk.holds["a"] == {ours}
        talk.ask("b")
        assert talk.holds["a"] == {ours}
        assert not talk.may_put("b", ours)

    def test_an_answer_at_a_meeting_takes_nothing_that_ranks_the_asker_first(self, talk, ours):
        talk.holds["a"] = {ours}
        question = talk.question("a")
        talk.hear(
            question, PermissionAnswer(question.nonce, Pair("a1", borrowed=frozenset({ours})))
        )
        assert talk.holds["a"] == {ours}

    def test_an_answer_of_one_that_was_met_takes_nothing(self, talk, ours, theirs):
        talk.ask("a", wants={theirs})
        talk.holds["a"] = {ours, theirs}
        question = talk.question("a")
        talk.hear(
            question, PermissionAnswer(question.nonce, Pair("a1", borrowed=frozenset({ours})))
        )
        assert talk.holds["a"] == {ours, theirs}

    def test_who_took_what_another_one_had_meets_that_one_again(self, talk, ours):
        """`a` believed for a while that the Lease of `b` had ended, and `b` did not see that."""
        talk.ask("b", wants={ours})
        talk.holds["b"] = {ours}
        talk.of["a"] = talk.of["a"].among({})
        talk.holds["a"] = talk.wanted["a"] = {ours}
        for _twice in range(2):
            talk.ask("b")
        assert (talk.holds["a"], talk.holds["b"]) == ({ours}, set())

    def test_or_asks_it_and_keeps_what_ranks_it_first(self, talk, ours, theirs):
        talk.ask("b", wants={ours})
        talk.holds["b"] = {ours, theirs}
        talk.of["a"] = talk.of["a"].among({})
        talk.holds["a"] = talk.wanted["a"] = {ours, theirs}
        talk.ask("a")
        assert (talk.holds["a"], talk.holds["b"]) == ({ours}, {theirs})


class TestAsking:
    def test_who_does_not_hold_an_address_gives_it(self, talk, theirs):
        talk.ask("a")
        talk.ask("a", wants={theirs})
        assert [talk.may_put(node, theirs) for node in "ab"] == [True, False]

    def test_who_has_lent_it_gets_it_back(self, talk, theirs):
        talk.ask("a", wants={theirs})
        talk.ask("b", wants={theirs})
        assert [talk.may_put(node, theirs) for node in "ab"] == [False, True]

    def test_who_holds_it_keeps_it_while_the_asker_lacks_another(self, talk, theirs):
        talk.holds["b"] = {theirs}
        talk.ask("a", wants={theirs})
        assert talk.holds["b"] == {theirs}
        assert not talk.may_put("a", theirs)

    def test_who_holds_it_withdraws_if_only_its_own_is_missing(self, talk, theirs):
        talk.holds["b"] = {theirs}
        talk.ask("a", wants={theirs}, moves={theirs})
        assert talk.holds["b"] == set()
        assert talk.may_put("a", theirs)

    def test_who_cannot_withdraw_it_keeps_it_and_gives_the_rest(self, talk, ours, theirs):
        both = {ours, theirs}
        talk.holds["b"] = both
        question = talk.question("a", wants=both, moves=both)
        talk.answer(question)
        for kept, puts in ({theirs}, [ours]), (both, []), (NOTHING, [ours, theirs]):
            of_b = talk.of["b"].keeping(question, held=frozenset(kept))
            of_a = talk.of["a"].heard("b", PermissionAnswer(question.nonce, of_b.pairs["a"]))
            assert [a for a in (ours, theirs) if not of_a.lacking(a, ["b"])] == puts
            assert [a for a in (ours, theirs) if of_b.lacking(a, ["a"])] == puts

    def test_what_was_given_before_is_not_taken_back(self, talk, theirs):
        talk.ask("a", wants={theirs}, moves={theirs})
        question = talk.question("a")
        talk.answer(question)
        assert talk.of["b"].keeping(question, held=frozenset({theirs})) == talk.of["b"]

    def test_who_wants_it_by_its_own_plan_keeps_it(self, talk, theirs):
        talk.holds["b"] = talk.wanted["b"] = {theirs}
        talk.ask("a", wants={theirs}, moves={theirs})
        assert talk.holds["b"] == {theirs}

    @pytest.mark.parametrize("asker", ["a", "b"])
    def test_of_two_questions_that_cross_one_counts(self, talk, ours, asker):
        """In any order of arrival: the one whose asker sorts first."""
        of = {node: talk.question(node) for node in "ab"}
        first, second = of[asker], of["b" if asker == "a" else "a"]
        answers = [(question, talk.answer(question)) for question in (first, second)]
        for question, answer in answers:
            talk.hear(question, answer)
        assert [q.asker for q, answer in answers if answer.refusal is None] == ["a"]
        assert [talk.may_put(node, ours) for node in "ab"] == [True, False]

    def test_a_question_in_an_unknown_epoch_is_refused(self, talk):
        assert talk.answer(talk.question("a", epoch="b0")).refusal is QuestionRefusal.UNKNOWN_EPOCH
        answer = talk.answer(talk.question("a"), epochs={"a": "a2"})
        assert answer.refusal is QuestionRefusal.UNKNOWN_EPOCH

    @pytest.mark.parametrize("refusal", QuestionRefusal)
    def test_a_refusal_takes_nothing_but_that_the_two_have_met(self, talk, ours, refusal):
        talk.ask("a")
        question = talk.question("a")
        talk.hear(question, PermissionAnswer(question.nonce, refusal=refusal))
        assert talk.may_put("a", ours) == (refusal is not QuestionRefusal.NOT_MET)

    def test_a_refusal_leaves_all_as_it_is(self, talk, ours):
        question = talk.question("a", epoch="b0")
        talk.hear(question, talk.answer(question))
        assert not talk.may_put("a", ours)
        assert not talk.of["a"].asked

    def test_only_the_answer_to_the_last_question_counts(self, talk, ours):
        old = talk.question("a")
        late = talk.answer(old)
        talk.question("a")
        talk.hear(old, late)
        assert not talk.may_put("a", ours)

    def test_an_answer_from_before_the_peer_asked_is_void(self, talk, ours):
        """`a` lent an address to `b`, and has it again when `b` hears of that."""
        talk.ask("a")
        question = talk.question("b", wants=[ours])
        answer = talk.answer(question)
        talk.ask("a", wants=[ours])
        talk.hear(question, answer)
        assert [talk.may_put(node, ours) for node in "ab"] == [True, False]

    def test_an_answer_that_no_one_waits_for_is_void(self, talk, ours):
        question = talk.question("a")
        answer = talk.answer(question)
        talk.of["a"] = talk.of["a"].gave_up("b", question.nonce)
        talk.hear(question, answer)
        assert not talk.may_put("a", ours)

    def test_giving_up_an_old_question_leaves_the_present_one(self, talk):
        old = talk.question("a")
        talk.question("a")
        assert talk.of["a"].gave_up("b", old.nonce) is talk.of["a"]


class TestWhomToAsk:
    def test_who_has_not_been_met_is_asked_though_nothing_is_wanted(self, talk):
        assert talk.of["a"].to_ask({}, {"b": "b1"}) == {"b": (NOTHING, NOTHING)}

    def test_who_has_been_met_is_asked_for_what_is_missing(self, talk, ours, theirs):
        talk.ask("a")
        assert talk.of["a"].to_ask({ours: ["b"]}, {"b": "b1"}) == {}
        asked = talk.of["a"].to_ask({theirs: ["b"]}, {"b": "b1"})
        assert asked == {"b": ({theirs}, {theirs})}

    def test_no_node_has_to_withdraw_while_two_permissions_are_missing(self, talk, theirs):
        asked = talk.of["a"].to_ask({theirs: ["b", "c"]}, {"b": "b1", "c": "c1"})
        assert asked == {"b": ({theirs}, NOTHING), "c": ({theirs}, NOTHING)}

    def test_no_node_is_asked_twice_at_a_time(self, talk):
        talk.question("a")
        assert talk.of["a"].to_ask({}, {"b": "b1"}) == {}


class TestSilence:
    def silent(self, talk, times):
        for _ in range(times):
            question = talk.question("a")
            talk.of["a"] = talk.of["a"].gave_up("b", question.nonce)

    def test_who_is_silent_is_asked_by_the_lease(self, talk):
        self.silent(talk, BY_LEASE_AFTER - 1)
        assert not talk.of["a"].asks_by_lease("b")
        self.silent(talk, 1)
        assert talk.of["a"].asks_by_lease("b")

    def test_who_answered_by_its_lease_is_asked_directly_once_more(self, talk):
        self.silent(talk, BY_LEASE_AFTER)
        question = talk.question("a")
        talk.hear(question, talk.answer(question), by_lease=True)
        assert not talk.of["a"].asks_by_lease("b")
        self.silent(talk, 1)
        assert talk.of["a"].asks_by_lease("b")

    def test_who_answers_is_not_silent(self, talk):
        self.silent(talk, BY_LEASE_AFTER - 1)
        talk.ask("a")
        self.silent(talk, BY_LEASE_AFTER - 1)
        assert not talk.of["a"].asks_by_lease("b")
