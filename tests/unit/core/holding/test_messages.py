# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Messages between agents: their signatures, and questions and answers as text."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from ipaddress import ip_address

import pytest

from purelb.core.holding.messages import (
    Mail,
    RightAnswer,
    answer_body,
    build_message,
    build_response,
    mail_text,
    question_body,
    read_answer,
    read_mail,
    read_message,
    read_promised,
    read_question,
    read_response,
    read_right_answer,
    right_answer_body,
)
from purelb.core.holding.permissions import (
    Pair,
    PermissionAnswer,
    PermissionQuestion,
    QuestionRefusal,
)
from purelb.core.names import MAX_LEASE_TEXT

KEY, OTHER_KEY = b"sixteen bytes or more", b"another sixteen bytes"
V4, V6 = ip_address("192.0.2.1"), ip_address("2001:db8::1")
BODY = {"text": "ä", "number": 1.5}
PAIR = Pair("b.1", lent=frozenset({V4, V6}), borrowed=frozenset({V4 + 1, V6 + 1}))
QUESTION = PermissionQuestion("a", "a.1", "b", "b.1", "nonce")
ANSWER = PermissionAnswer("nonce", PAIR)
GARBAGE = [b"", b"\xff", b"{", b"[]", b"null", b'"text"', b'{"mac": 1, "text": "{}"}', b"{}"]


def message(key=KEY, *, peer="b", nonce="nonce", body=BODY):
    return build_message(key, peer=peer, kind="kind", nonce=nonce, body=body)


def response(*, nonce="nonce", peer="b", body=BODY):
    asked = read_message([KEY], message(nonce=nonce), peer="b")
    return build_response(asked, peer=peer, body=body)


def changed(sealed, **parts):
    """An envelope of which one part has another content."""
    return json.dumps({**json.loads(sealed), **parts}).encode()


class TestMessage:
    def test_it_is_read_as_it_was_built(self):
        read = read_message([KEY], message(), peer="b")
        assert (read.kind, read.nonce, read.body, read.key) == ("kind", "nonce", BODY, KEY)

    @pytest.mark.parametrize("keys", [(OTHER_KEY, KEY), (KEY, OTHER_KEY)])
    def test_each_key_is_accepted_and_named(self, keys):
        for key in keys:
            assert read_message(keys, message(key), peer="b").key == key

    def test_one_signed_with_another_key_is_none(self):
        assert read_message([OTHER_KEY], message(), peer="b") is None
        assert read_message([], message(), peer="b") is None

    def test_one_to_another_peer_is_none(self):
        assert read_message([KEY], message(), peer="c") is None

    def test_one_that_was_changed_is_none(self):
        text = json.dumps({"kind": "kind", "nonce": "other", "body": BODY})
        assert read_message([KEY], changed(message(), text=text), peer="b") is None
        assert read_message([KEY], changed(message(), mac="0" * 64), peer="b") is None

    @pytest.mark.parametrize("sealed", GARBAGE)
    def test_what_is_no_message_is_none(self, sealed):
        assert read_message([KEY], sealed, peer="b") is None

    @pytest.mark.parametrize("body", [None, [], "text", 1], ids=str)
    def test_one_whose_body_is_no_object_is_none(self, body):
        assert read_message([KEY], message(body=body), peer="b") is None

    def test_a_response_is_no_message(self):
        assert read_message([KEY], response(), peer="b") is None

    @pytest.mark.parametrize("missing", ["kind", "nonce", "body"])
    def test_one_without_a_part_is_none_although_it_is_signed(self, missing, monkeypatch):
        dumps = json.dumps

        def without(value, **more):
            if isinstance(value, dict):
                value = {name: part for name, part in value.items() if name != missing}
            return dumps(value, **more)

        monkeypatch.setattr(json, "dumps", without)
        sealed = message()
        monkeypatch.undo()
        assert json.loads(sealed)["mac"]
        assert read_message([KEY], sealed, peer="b") is None

    def test_the_key_is_not_in_its_text(self):
        assert KEY.decode() not in repr(read_message([KEY], message(), peer="b"))
        assert KEY not in message()


class TestResponse:
    def test_it_is_read_as_it_was_built(self):
        assert read_response(KEY, response(), peer="b", nonce="nonce") == BODY

    def test_it_is_signed_with_the_key_of_the_message(self):
        asked = read_message([KEY, OTHER_KEY], message(OTHER_KEY), peer="b")
        sealed = build_response(asked, peer="b", body=BODY)
        assert read_response(OTHER_KEY, sealed, peer="b", nonce="nonce") == BODY
        assert read_response(KEY, sealed, peer="b", nonce="nonce") is None

    def test_one_of_another_peer_is_none(self):
        assert read_response(KEY, response(peer="c"), peer="b", nonce="nonce") is None

    def test_one_to_another_message_is_none(self):
        assert read_response(KEY, response(nonce="other"), peer="b", nonce="nonce") is None

    def test_a_message_is_no_response(self):
        assert read_response(KEY, message(), peer="b", nonce="nonce") is None

    @pytest.mark.parametrize("sealed", GARBAGE)
    def test_what_is_no_response_is_none(self, sealed):
        assert read_response(KEY, sealed, peer="b", nonce="nonce") is None

    def test_parts_cannot_be_moved_between_its_peer_and_its_nonce(self):
        sealed = response(peer="b", nonce="cd")
        assert read_response(KEY, sealed, peer="bc", nonce="d") is None


def through_text(body):
    return json.loads(json.dumps(body))


class TestQuestion:
    @pytest.mark.parametrize(
        "part",
        [
            {"asker": "x"},
            {"epoch": "x.1"},
            {"peer": "x"},
            {"peer_epoch": "x.1"},
            {"nonce": "x"},
            {"wants": frozenset({V4, V6})},
            {"moves": frozenset({V4, V6})},
            {"holds": frozenset({V4, V6})},
            {"has": PAIR},
            {"has": Pair("")},
        ],
        ids=" ".join,
    )
    def test_each_field_is_read_as_it_was_written(self, part):
        question = replace(QUESTION, **part)
        assert question != QUESTION
        assert read_question(through_text(question_body(question))) == question

    def test_all_fields_are_in_it(self):
        assert len(question_body(QUESTION)) == len(fields(PermissionQuestion))

    def test_agents_of_an_earlier_version_promise_nothing(self):
        body = question_body(QUESTION)
        del body["promised"]
        assert read_question(body) == replace(QUESTION, promised=())

    @pytest.mark.parametrize("missing", sorted(question_body(QUESTION).keys() - {"promised"}))
    def test_one_without_a_field_is_none(self, missing):
        body = question_body(QUESTION)
        del body[missing]
        assert read_question(body) is None

    @pytest.mark.parametrize(
        "part",
        [{"wants": ["x"]}, {"wants": None}, {"holds": [1.5]}, {"has": {}}, {"has": [1]}],
        ids=str,
    )
    def test_one_with_a_field_that_cannot_be_read_is_none(self, part):
        assert read_question({**question_body(QUESTION), **part}) is None

    @pytest.mark.parametrize("body", [None, [], "text", 1, {}], ids=str)
    def test_what_is_no_question_is_none(self, body):
        assert read_question(body) is None


class TestAnswer:
    @pytest.mark.parametrize(
        "answer",
        [
            ANSWER,
            PermissionAnswer("other"),
            *(PermissionAnswer("nonce", refusal=refusal) for refusal in QuestionRefusal),
        ],
        ids=["known", "empty", *QuestionRefusal],
    )
    def test_it_is_read_as_it_was_written(self, answer):
        assert read_answer(through_text(answer_body(answer))) == answer

    def test_what_else_is_in_it_does_not_matter(self):
        assert read_answer({**answer_body(ANSWER), "ended": {}}) == ANSWER

    @pytest.mark.parametrize("part", [{"refusal": "x"}, {"has": "x"}, {"has": {"epoch": "b.1"}}])
    def test_one_that_cannot_be_read_is_none(self, part):
        assert read_answer({**answer_body(ANSWER), **part}) is None

    @pytest.mark.parametrize("body", [None, [], "text", {}], ids=str)
    def test_what_is_no_answer_is_none(self, body):
        assert read_answer(body) is None


class TestMail:
    @pytest.mark.parametrize(
        "mail",
        [
            Mail((replace(QUESTION, wants=frozenset({V4, V6}), has=PAIR),)),
            Mail((), (("c", ANSWER),)),
            Mail((QUESTION, replace(QUESTION, peer="c")), (("b", ANSWER), ("c", ANSWER))),
        ],
        ids=["question", "answer", "all"],
    )
    def test_it_is_read_as_it_was_written(self, mail):
        assert read_mail(mail_text(mail)) == mail

    def test_none_is_no_text(self):
        assert mail_text(Mail()) == ""
        assert read_mail("") == Mail()

    def test_what_does_not_fit_into_a_lease_is_left_out(self):
        many = frozenset(ip_address("2001:db8::") + n for n in range(5000))
        large = replace(QUESTION, peer="large", wants=many)
        small = [replace(QUESTION, peer=f"n{number}") for number in range(1000)]
        answers = (("n1", ANSWER),)
        text = mail_text(Mail((*small[:2], large, *small[2:]), answers))
        assert len(text) <= MAX_LEASE_TEXT < len(text) + 1000
        mail = read_mail(text)
        assert mail.questions == tuple(small[: len(mail.questions)])
        assert mail.answers == answers
        assert mail_text(Mail((replace(large, holds=many),))) == ""

    @pytest.mark.parametrize("text", ["{", "[]", "{}", '{"questions": [{}], "answers": []}', "1"])
    def test_what_cannot_be_read_is_left_out(self, text):
        assert read_mail(text) == Mail()


class TestPromised:
    def test_it_is_read_as_it_was_written(self):
        body = answer_body(PermissionAnswer("1", promised=(("n2", 1.5),)))
        assert read_promised(body) == (("n2", 1.5),)

    @pytest.mark.parametrize(
        "body",
        [{}, {"promised": []}, {"promised": {"n2": "x"}}, {"promised": {"n2": None}}, None, "text"],
        ids=str,
    )
    def test_what_cannot_be_read_is_nothing(self, body):
        assert read_promised(body) == ()

    @pytest.mark.parametrize(
        ("said", "seconds"),
        [(59.0, 59.0), (61, 60.0), (float("inf"), 0.0), (float("nan"), 0.0), (10**400, 0.0)],
        ids=["longest", "longer", "for ever", "no number", "a large number"],
    )
    def test_it_lasts_no_longer_than_a_lease(self, said, seconds):
        assert read_promised({"promised": {"n2": said}}) == (("n2", seconds),)
        assert read_right_answer({"seconds": said}).seconds == seconds


class TestEnds:
    def test_an_answer_says_whose_epochs_are_over(self):
        answer = replace(ANSWER, ended=(("c", "c.1"), ("d", "d.1")))
        assert read_answer(answer_body(answer)) == answer
        assert "ended" not in answer_body(ANSWER)

    @pytest.mark.parametrize("ended", [["c"], "c", 5], ids=str)
    def test_one_that_cannot_be_read_is_none(self, ended):
        assert read_answer({**answer_body(ANSWER), "ended": ended}) is None


class TestRights:
    @pytest.mark.parametrize(
        "answer",
        [RightAnswer(4.5, promised=(("c", 1.5),)), RightAnswer(0.0, is_over=True)],
        ids=["some", "none"],
    )
    def test_what_a_node_says_of_its_right_is_read_as_it_was_said(self, answer):
        assert read_right_answer(right_answer_body(answer)) == answer

    @pytest.mark.parametrize("body", [{}, {"seconds": "x"}, {"over": "yes", "promised": "x"}])
    def test_what_cannot_be_read_says_nothing(self, body):
        assert read_right_answer(body) == RightAnswer(0.0)
