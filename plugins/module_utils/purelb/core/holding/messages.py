# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Questions about permissions as text, and the signatures of what agents send to each other.

A message goes over HTTP, sealed with the key of the cluster's agents, or stands in a Lease where
two agents do not reach each other. What cannot be read is no message.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Tuple

from ..addresses import parse_address
from ..model import Address
from ..names import MAX_LEASE_TEXT
from ..settings import LONGEST_DURATION
from .permissions import Pair, PermissionAnswer, PermissionQuestion, Promised, QuestionRefusal

Json = Dict[str, Any]
_MAIL = '{{"questions": [{}], "answers": [{}]}}'
# JSON has numbers that are too large to calculate with.
_FOR_EVER = 1e9
# RecursionError: JSON that is nested too deep, which anyone may send.
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


def _mac(key: bytes, context: Tuple[str, ...], text: str) -> str:
    # In JSON, different lists of texts never have the same text.
    return hmac.digest(key, json.dumps([*context, text]).encode(), "sha256").hex()


def _seal(key: bytes, context: Tuple[str, ...], text: str) -> bytes:
    return json.dumps({"mac": _mac(key, context, text), "text": text}).encode()


def _unseal(
    keys: Iterable[bytes], context: Tuple[str, ...], sealed: bytes
) -> Optional[Tuple[Any, bytes]]:
    """Return what was sealed in this context and the key that signed it; None if none did."""
    try:
        envelope = json.loads(sealed)
        text, given = envelope["text"], envelope["mac"].encode()
        for key in keys:
            if hmac.compare_digest(given, _mac(key, context, text).encode()):
                return json.loads(text), key
    except _UNREADABLE:
        pass
    return None


@dataclass(frozen=True)
class PeerMessage:
    """What one agent asks or reports to another, and the key that it was signed with.

    The reply is signed with the same key: the asker has it, even if it has read other keys by now.
    """

    kind: str
    nonce: str
    body: Json
    key: bytes = field(repr=False)


def build_message(key: bytes, *, peer: str, kind: str, nonce: str, body: Json) -> bytes:
    """Return a message to a peer; use each nonce once."""
    return _seal(key, ("message", peer), json.dumps({"kind": kind, "nonce": nonce, "body": body}))


def read_message(keys: Iterable[bytes], sealed: bytes, *, peer: str) -> Optional[PeerMessage]:
    """Return a message to this peer; None if it is none, or signed with none of the keys."""
    found = _unseal(keys, ("message", peer), sealed)
    try:
        content, key = found or ({}, b"")
        message = PeerMessage(str(content["kind"]), str(content["nonce"]), content["body"], key)
    except _UNREADABLE:
        return None
    return message if isinstance(message.body, dict) else None


def build_response(message: PeerMessage, *, peer: str, body: Json) -> bytes:
    """Return the response of this peer to a message."""
    return _seal(message.key, ("response", peer, message.nonce), json.dumps(body))


def read_response(key: bytes, sealed: bytes, *, peer: str, nonce: str) -> Any:
    """Return the body of this peer's response to the message with this nonce; None: it is none."""
    found = _unseal((key,), ("response", peer, nonce), sealed)
    return found and found[0]


def _texts(addresses: FrozenSet[Address]) -> List[str]:
    return sorted(map(str, addresses))


def _addresses(texts: Any) -> FrozenSet[Address]:
    return frozenset(parse_address(text) for text in texts)


def _pair_body(pair: Optional[Pair]) -> Optional[Json]:
    if pair is None:
        return None
    return {"epoch": pair.epoch, "lent": _texts(pair.lent), "borrowed": _texts(pair.borrowed)}


def _pair_of(body: Any) -> Optional[Pair]:
    if body is None:
        return None
    return Pair(str(body["epoch"]), _addresses(body["lent"]), _addresses(body["borrowed"]))


def _seconds(said: Any) -> float:
    """Return for how long something said lasts: no longer than a Lease, and never for ever."""
    try:
        seconds = float(said)
    except OverflowError:
        return 0.0
    return min(seconds, LONGEST_DURATION) if abs(seconds) < _FOR_EVER else 0.0


def _promised_of(body: Any) -> Promised:
    return tuple((str(node), _seconds(left)) for node, left in body.get("promised", {}).items())


def question_body(question: PermissionQuestion) -> Json:
    """Return a question as JSON."""
    return {
        "asker": question.asker,
        "epoch": question.epoch,
        "peer": question.peer,
        "peerEpoch": question.peer_epoch,
        "nonce": question.nonce,
        "wants": _texts(question.wants),
        "moves": _texts(question.moves),
        "holds": _texts(question.holds),
        "has": _pair_body(question.has),
        "promised": dict(question.promised),
    }


def _question_of(body: Any) -> PermissionQuestion:
    return PermissionQuestion(
        asker=str(body["asker"]),
        epoch=str(body["epoch"]),
        peer=str(body["peer"]),
        peer_epoch=str(body["peerEpoch"]),
        nonce=str(body["nonce"]),
        wants=_addresses(body["wants"]),
        moves=_addresses(body["moves"]),
        holds=_addresses(body["holds"]),
        has=_pair_of(body["has"]),
        promised=_promised_of(body),
    )


def answer_body(answer: PermissionAnswer) -> Json:
    """Return an answer as JSON."""
    refusal = answer.refusal.value if answer.refusal else None
    return {
        "nonce": answer.nonce,
        "has": _pair_body(answer.has),
        "refusal": refusal,
        "promised": dict(answer.promised),
        **({"ended": dict(answer.ended)} if answer.ended else {}),
    }


def _answer_of(body: Any) -> PermissionAnswer:
    ended = body.get("ended") or {}
    return PermissionAnswer(
        str(body["nonce"]),
        _pair_of(body["has"]),
        QuestionRefusal(body["refusal"]) if body["refusal"] else None,
        _promised_of(body),
        tuple((str(node), str(epoch)) for node, epoch in ended.items()),
    )


def read_question(body: Any) -> Optional[PermissionQuestion]:
    """Return the question in JSON; None if there is none."""
    try:
        return _question_of(body)
    except _UNREADABLE:
        return None


def read_answer(body: Any) -> Optional[PermissionAnswer]:
    """Return the answer in JSON; None if there is none."""
    try:
        return _answer_of(body)
    except _UNREADABLE:
        return None


class RightAnswer(NamedTuple):
    """What a node says of its right: for how many seconds more it may hold addresses.

    `is_over`: it may hold none in the epoch that it was asked about, and never will.
    """

    seconds: float
    is_over: bool = False
    promised: Promised = ()


def right_answer_body(answer: RightAnswer) -> Json:
    """Return what a node says of its right as JSON."""
    over = {"over": True} if answer.is_over else {}
    return {"seconds": answer.seconds, **over, "promised": dict(answer.promised)}


def read_right_answer(body: Json) -> RightAnswer:
    """Return what JSON says of a right; of what cannot be read nothing."""
    seconds = body.get("seconds")
    seconds = _seconds(seconds) if isinstance(seconds, (float, int)) else 0.0
    return RightAnswer(seconds, body.get("over") is True, read_promised(body))


def read_promised(body: Any) -> Promised:
    """Return whom the sender of a message promised to count; nothing if that cannot be read."""
    try:
        return _promised_of(body)
    except _UNREADABLE:
        return ()


class Mail(NamedTuple):
    """What an agent says in its Lease to those that it does not reach; answers by who asked."""

    questions: Tuple[PermissionQuestion, ...] = ()
    answers: Tuple[Tuple[str, PermissionAnswer], ...] = ()


def mail_text(mail: Mail) -> str:
    """Return mail as it stands in a Lease, as much as fits there; empty if there is none."""
    if not (mail.questions or mail.answers):
        return ""
    room = MAX_LEASE_TEXT - len(_MAIL.format("", ""))
    # Answers first: others wait for them, and a question is asked again.
    answers = _fitting(({"asker": to, **answer_body(said)} for to, said in mail.answers), room)
    questions = _fitting(map(question_body, mail.questions), room - len(answers))
    return _MAIL.format(questions, answers) if questions or answers else ""


def _fitting(bodies: Iterable[Json], room: int) -> str:
    """Return those as JSON that fit into so many characters, separated by commas."""
    fitting: List[str] = []
    for text in map(json.dumps, bodies):
        if len(text) < room:
            room -= len(text) + 1
            fitting.append(text)
    return ",".join(fitting)


# Of those that do not reach each other, in each cycle.
@lru_cache(maxsize=64)
def read_mail(text: str) -> Mail:
    """Return the mail in a Lease; what cannot be read is left out."""
    try:
        body = json.loads(text) if text else {"questions": (), "answers": ()}
        questions = tuple(map(_question_of, body["questions"]))
        answers = tuple((str(answer["asker"]), _answer_of(answer)) for answer in body["answers"])
    except _UNREADABLE:
        return Mail()
    return Mail(questions, answers)
