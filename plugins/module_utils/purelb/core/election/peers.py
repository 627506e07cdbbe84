# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Whether the API is down for everybody: what a node asks its peers, what they say, what follows.

A node that cannot renew its Lease asks its peers whether they can. What they say only ever extends
its right to its addresses, and never shortens it: silence, a wrong signature and a node that is
alone leave the right as the Lease gave it. Nothing here sends, reads a clock or draws a nonce.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from enum import Enum
from typing import Dict, Iterable, Mapping, Optional

from ..settings import LeaseTiming
from .leases import HoldDeadline

# A renewal sent so shortly before the question says as much as one sent after it.
FRESHNESS = 0.5
# How long what a peer said is passed on: two questions' time. Those who hear it may be near the end
# of their right, while everybody knows better by now.
KNOWN_FOR = 1.0
# How long a peer waits for its own attempt before it says that it cannot.
PATIENCE = 0.5

_ASKER, _PEER, _NONCE, _MAC = "PureLB-Asker", "PureLB-Peer", "PureLB-Nonce", "PureLB-Mac"


class PeerAnswer(str, Enum):
    """What a peer says: whether it can renew its own Lease.

    KNOWS: it cannot, but a peer of its own said CAN to it. No KNOWS follows from another one, or
    two nodes would confirm each other for ever.
    """

    CAN = "can"
    CANNOT = "cannot"
    KNOWS = "knows"
    SILENT = "silent"


class OutageAssessment(str, Enum):
    """What a node that cannot renew makes of the answers; only HOLD extends its right."""

    ALONE_CUT_OFF = "cutOff"
    HOLD = "apiDownForAll"
    ISOLATED = "isolated"


_SPOKEN = (PeerAnswer.CAN, PeerAnswer.CANNOT, PeerAnswer.KNOWS)
_SOMEBODY_CAN = (PeerAnswer.CAN, PeerAnswer.KNOWS)


def assess_outage(
    members: Iterable[str], node: str, answers: Mapping[str, PeerAnswer]
) -> OutageAssessment:
    """Judge by what the peers said whether nobody can renew, or only this node cannot.

    The members are all nodes of the frozen snapshot. More than half of them, this node included,
    must say that they cannot: two groups that do not reach each other never both hold.
    """
    peers = set(members) - {node}
    said = [answers.get(peer, PeerAnswer.SILENT) for peer in peers]
    if any(answer in _SOMEBODY_CAN for answer in said):
        return OutageAssessment.ALONE_CUT_OFF
    agreeing = said.count(PeerAnswer.CANNOT) + 1
    if agreeing * 2 > len(peers) + 1:
        return OutageAssessment.HOLD
    return OutageAssessment.ISOLATED


def hold_right(asked_at: float, timing: LeaseTiming) -> HoldDeadline:
    """The right of a node that holds, by a question that it sent at `asked_at`.

    It ends when the right of a renewal sent then would have been given up, and is given up in half
    that time: long enough to miss a question or two. Why it is safe: who answers CANNOT promises
    not to take the asker's Lease as ended for a full duration from its answer on, which comes after
    `asked_at`; and once it sees the API again, it gives every Lease a full duration. So none of the
    nodes that answered takes over before `asked_at + duration`, and this right ends before that.
    Nodes that were silent promise nothing: one that can renew, and that neither this node nor a
    peer of it reaches, takes over when the Lease ends.
    """
    return HoldDeadline(
        announce_until=asked_at + timing.renew_deadline / 2,
        ends_at=asked_at + timing.renew_deadline,
    )


@dataclass(frozen=True)
class Attempts:
    """A node's own renewals on its own clock, by which it judges itself when it is asked.

    `good_sent_at`: when the last good one was sent. `failed_at`: when the last bad one was known to
    be bad. `began_at`: when the one that is under way began; None while there is none.
    """

    good_sent_at: float = float("-inf")
    failed_at: float = float("-inf")
    began_at: Optional[float] = None

    def could_renew(self, *, asked_at: float, now: float) -> Optional[bool]:
        """Whether this node could renew; None: not known yet, and time to make an attempt.

        An attempt begun too long before the question proves nothing by succeeding later: nobody
        waits for it.
        """
        recent = asked_at - FRESHNESS
        if self.good_sent_at >= recent and self.failed_at < self.good_sent_at:
            return True
        if self.failed_at >= recent or now >= asked_at + PATIENCE:
            return False
        if self.began_at is not None and self.began_at < recent:
            return False
        return None


def what_to_answer(
    *, could_renew: Optional[bool], heard: Iterable[float], now: float
) -> PeerAnswer:
    """The answer of a node that could renew, could not, or is still trying (None).

    `heard`: when peers other than the asker last told this node directly that they can, on its own
    clock. It passes that on only until it has asked again.
    """
    if could_renew:
        return PeerAnswer.CAN
    if any(now - moment <= KNOWN_FOR for moment in heard):
        return PeerAnswer.KNOWS
    return PeerAnswer.CANNOT


def _mac(key: bytes, *fields: str) -> str:
    # As JSON, no two lists of fields have the same text. The first field keeps a question from
    # being taken for a reply.
    return hmac.new(key, json.dumps(fields).encode(), "sha256").hexdigest()


@dataclass(frozen=True)
class Question:
    """A question whose signature is good."""

    asker: str
    nonce: str


def build_question(key: bytes, *, asker: str, peer: str, nonce: str) -> Dict[str, str]:
    """HTTP headers that ask a peer whether it can renew; a nonce is used once."""
    mac = _mac(key, "question", asker, peer, nonce)
    return {_ASKER: asker, _PEER: peer, _NONCE: nonce, _MAC: mac}


def check_question(key: bytes, headers: Mapping[str, str], *, peer: str) -> Optional[Question]:
    """Read a question to this peer; None if it is none, or not signed with the key."""
    question = Question(headers.get(_ASKER, ""), headers.get(_NONCE, ""))
    expected = _mac(key, "question", question.asker, peer, question.nonce)
    # A header may carry any bytes, and compare_digest refuses text that is not ASCII.
    given = headers.get(_MAC, "").encode(errors="replace")
    return question if hmac.compare_digest(given, expected.encode()) else None


def build_reply(key: bytes, *, peer: str, nonce: str, answer: PeerAnswer) -> bytes:
    """JSON that says the answer; the signature covers who says it and to which question."""
    mac = _mac(key, "reply", peer, nonce, answer.value)
    return json.dumps({"answer": answer.value, "mac": mac}).encode()


def read_reply(key: bytes, *, peer: str, nonce: str, text: bytes) -> PeerAnswer:
    """Read what this peer says to this question; SILENT unless it is that to the last bit.

    There are only three good replies to a question, so nothing that others wrote is parsed.
    """
    for answer in _SPOKEN:
        if hmac.compare_digest(build_reply(key, peer=peer, nonce=nonce, answer=answer), text):
            return answer
    return PeerAnswer.SILENT
