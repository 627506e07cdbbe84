# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Whether the API is down for all nodes: questions to peers, their answers, and the consequence.

A node that cannot renew its Lease asks its peers whether they can. The answers only ever extend the
time for which it may hold addresses. Silence, a bad signature or a lack of peers leave the deadline
that the Lease gave. Nothing here sends anything, reads a clock or generates a nonce.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Dict, Iterable, Mapping, Optional

from ..settings import LeaseTiming
from .right import HoldDeadline

# A renewal sent at most this long before the question counts as one sent after it.
FRESHNESS = 0.5
# How long a peer's CAN is passed on: who hears of it withdraws before the promises that it has end.
KNOWN_FOR = 3.5
# How long a request of a peer to the API may take before it answers CANNOT.
PATIENCE = 0.5

_ASKER, _PEER, _NONCE, _MAC = "PureLB-Asker", "PureLB-Peer", "PureLB-Nonce", "PureLB-Mac"


class PeerAnswer(str, Enum):
    """A peer's answer: whether it can renew its own Lease.

    KNOWS: it cannot, but one of its peers answered CAN. A KNOWS never results from another KNOWS,
    or two nodes would confirm each other for ever.
    """

    CAN = "can"
    CANNOT = "cannot"
    KNOWS = "knows"
    SILENT = "silent"


class OutageAssessment(str, Enum):
    """Conclusion of a node that cannot renew; only HOLD extends its hold deadline."""

    ALONE_CUT_OFF = "cutOff"
    HOLD = "apiDownForAll"
    ISOLATED = "isolated"


_SPOKEN = (PeerAnswer.CAN, PeerAnswer.CANNOT, PeerAnswer.KNOWS)
_ANY_CAN = (PeerAnswer.CAN, PeerAnswer.KNOWS)


def assess_outage(
    members: Iterable[str], node: str, answers: Mapping[str, PeerAnswer], *, told: bool = False
) -> OutageAssessment:
    """Conclude from the peers' answers whether no node can renew, or only this one cannot.

    The members are all nodes with a Lease that share a subnet with this node, as far as it knows.
    More than half of them, this node included, must be unable to renew, so two groups that cannot
    reach each other never both hold. `told`: another node, perhaps one that has just joined, said
    unasked that it can.
    """
    peers = set(members) - {node}
    said = [answers.get(peer, PeerAnswer.SILENT) for peer in peers]
    if told or any(answer in _ANY_CAN for answer in said):
        return OutageAssessment.ALONE_CUT_OFF
    agreeing = said.count(PeerAnswer.CANNOT) + 1
    if agreeing * 2 > len(peers) + 1:
        return OutageAssessment.HOLD
    return OutageAssessment.ISOLATED


def extended_deadline(asked_at: float, timing: LeaseTiming) -> HoldDeadline:
    """Return the deadline of a node that holds after a question sent at `asked_at`.

    The node holds until the renew deadline of a renewal sent at `asked_at`, and announces for half
    of that time, which is long enough to miss a question or two. Why this is safe: a peer that
    answers CANNOT promises not to treat the asker's Lease as expired for a full duration after its
    answer, which comes after `asked_at`; and once it sees the API again, it gives every Lease a
    full duration. So no node that answered takes over before `asked_at + duration`, and this
    deadline comes earlier. Silent nodes promise nothing: one that can renew, and that neither this
    node nor any of its peers can reach, takes over when the Lease expires.
    """
    return HoldDeadline(
        announce_until=asked_at + timing.renew_deadline / 2,
        hold_until=asked_at + timing.renew_deadline,
    )


def own_answer(*, could_renew: bool, heard: Iterable[float], now: float) -> PeerAnswer:
    """Return the answer of a node that could renew, or could not.

    `heard`: when peers other than the asker last answered CAN to this node, on its own clock.
    """
    if could_renew:
        return PeerAnswer.CAN
    if any(now - moment <= KNOWN_FOR for moment in heard):
        return PeerAnswer.KNOWS
    return PeerAnswer.CANNOT


def _mac(key: bytes, *fields: str) -> str:
    # In JSON, different lists of fields never have the same text. The first field keeps a question
    # from being accepted as a reply.
    return hmac.digest(key, json.dumps(fields).encode(), "sha256").hex()


@dataclass(frozen=True)
class Question:
    """A question with a valid signature, and the key that it was signed with.

    The reply is signed with the same key: the asker has it, even if it has read other keys by now.
    """

    asker: str
    nonce: str
    key: bytes = field(repr=False)


def build_question(key: bytes, *, asker: str, peer: str, nonce: str) -> Dict[str, str]:
    """Return the HTTP headers that ask a peer whether it can renew; use each nonce once."""
    mac = _mac(key, "question", asker, peer, nonce)
    return {_ASKER: asker, _PEER: peer, _NONCE: nonce, _MAC: mac}


def check_question(
    keys: Iterable[bytes], headers: Mapping[str, str], *, peer: str
) -> Optional[Question]:
    """Parse a question to this peer; None if it is missing or signed with none of the keys."""
    asker, nonce = headers.get(_ASKER, ""), headers.get(_NONCE, "")
    # A header may carry any bytes, and compare_digest refuses text that is not ASCII.
    given = headers.get(_MAC, "").encode(errors="replace")
    for key in keys:
        expected = _mac(key, "question", asker, peer, nonce)
        if hmac.compare_digest(given, expected.encode()):
            return Question(asker, nonce, key)
    return None


def build_reply(key: bytes, *, peer: str, nonce: str, answer: PeerAnswer) -> bytes:
    """Return the answer as JSON; the signature covers the peer and the question's nonce."""
    mac = _mac(key, "reply", peer, nonce, answer.value)
    return json.dumps({"answer": answer.value, "mac": mac}).encode()


def read_reply(key: bytes, *, peer: str, nonce: str, text: bytes) -> PeerAnswer:
    """Return this peer's answer to this question; SILENT unless the text matches exactly.

    A question has only three valid replies, so the text is compared with these and never parsed.
    """
    for answer in _SPOKEN:
        if hmac.compare_digest(build_reply(key, peer=peer, nonce=nonce, answer=answer), text):
            return answer
    return PeerAnswer.SILENT
