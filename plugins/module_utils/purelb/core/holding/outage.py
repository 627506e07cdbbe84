# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Whether the API is down for all nodes: questions to peers, their answers, and the consequence.

A node that cannot renew its Lease asks its peers whether they can. The answers only ever extend the
time for which it may hold addresses. Silence, a bad signature or a lack of peers leave the deadline
that the Lease gave. Nothing here sends anything, reads a clock or generates a nonce.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Iterable, Mapping, NamedTuple, Optional

from ..settings import LeaseTiming
from .deadline import HoldDeadline
from .messages import Json
from .right import Right

# A renewal sent at most this long before the question counts as one sent after it.
FRESHNESS = 0.5
# How long a peer's CAN is passed on, in seconds at most, and as a part of a Lease's duration: both
# who asks and who passes it on ask again before. Who hears of it withdraws before the promises that
# it has end.
_KNOWN_FOR, _KNOWN_PART = 3.5, 0.35
# How long a request of a peer to the API may take before it answers CANNOT.
PATIENCE = 0.5
# For so many seconds another node is promised to be counted at most, or as long as the own Lease.
LONGEST_PROMISE = 60.0
# How long a message to one peer may take.
MESSAGE_SECONDS = 0.5
# The kind of the message that asks whether a peer can renew.
OUTAGE = "outage"


class PeerAnswer(str, Enum):
    """A peer's answer: whether it can renew its own Lease, while the asker cannot.

    CAN: it has, by a request that it sent after the first one of the asker that failed. KNOWS: it
    cannot, but one of its peers answered CAN. A KNOWS never results from another KNOWS, or two
    nodes would confirm each other for ever.
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
# JSON has numbers that are too large to calculate with.
_FOR_EVER = 1e9
_MOST = 1e6
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


class Round(NamedTuple):
    """What a node asks all its peers at `asked_at`, as its renewals fail since `since`.

    `timing`: what its Lease is to be counted by.
    """

    since: float
    asked_at: float
    timing: LeaseTiming

    def question(self, asker: str) -> OutageQuestion:
        """Return what each peer is asked."""
        return OutageQuestion(asker, self.asked_at - self.since, self.timing.duration)


def next_round(right: Right, timing: LeaseTiming, *, now: float) -> Round:
    """Return what to ask now, where the next renewal would have this timing.

    Where writes have become slow, that of the last one is too short for them. A shorter one is for
    renewals.
    """
    since = now if right.failing_since is None else right.failing_since
    return Round(since, now, max(right.timing, timing, key=lambda timing: timing.duration))


def extended_deadline(asked: Round, said: Mapping[str, OutageAnswer]) -> HoldDeadline:
    """Return the deadline of a node that holds after a round of questions.

    The node holds until the renew deadline of a renewal sent at `asked_at`, and announces for half
    of that time, which is long enough to miss a question or two. Why this is safe: a peer that
    answers CANNOT promises not to treat the asker's Lease as expired for its full duration after
    its answer, which comes after `asked_at`; and once it sees the API again, it gives every Lease a
    full duration. So no node that answered takes over before `asked_at + duration`, and this
    deadline comes earlier. Where one promised less (`said`: the answers), all is shorter by as
    much. Silent nodes promise nothing: one that can renew, and that neither this node nor any of
    its peers can reach, takes over when the Lease expires.
    """
    asked_at, timing = asked.asked_at, asked.timing
    promised = (answer.promised for answer in said.values() if answer.answer is PeerAnswer.CANNOT)
    least = min(promised, default=timing.duration)
    seconds = timing.renew_deadline * min(1.0, least / timing.duration)
    return HoldDeadline(announce_until=asked_at + seconds / 2, hold_until=asked_at + seconds)


class Heard(NamedTuple):
    """That a peer can renew: when it said so, and when it sent the renewal that shows it.

    By the clock of the node that heard it; the second is never later than it was.
    """

    at: float
    renewed_at: float


def is_heard(heard: Iterable[Heard], *, since: float, now: float, duration: float) -> bool:
    """Whether a peer said lately that it can renew, and has done so since then.

    `duration`: of the longest Lease of those that ask, which do so at its pace.
    """
    lately = now - min(_KNOWN_FOR, _KNOWN_PART * duration)
    return any(said.at >= lately and said.renewed_at >= since for said in heard)


@dataclass(frozen=True)
class WhoCan:
    """Which peers said lately that they can renew.

    `heard`: in an answer, which is passed on; `told`: unasked. An agent that was frozen may read
    late what it was told, and does not know that, so it is not passed on: who says so is asked.
    """

    heard: Mapping[str, Heard] = field(default_factory=dict)
    told: Mapping[str, Heard] = field(default_factory=dict)

    def answered(self, asked: Round, said: Mapping[str, OutageAnswer], *, now: float) -> WhoCan:
        """Record what peers answered; once a Lease would have ended it is forgotten."""
        can = {p: a for p, a in said.items() if a.answer is PeerAnswer.CAN}
        silent = {p for p, a in said.items() if a.answer is PeerAnswer.SILENT}
        heard = {p: h for p, h in self.heard.items() if p in silent or p not in said}
        heard.update({p: Heard(now, asked.asked_at - a.age) for p, a in can.items()})
        told = {p: h for p, h in self.told.items() if p in silent or p in can or p not in said}
        return WhoCan(_recent(heard, now, asked.timing.duration), told)

    def told_by(self, can: CanRenew, *, now: float, duration: float) -> WhoCan:
        """Record what a peer said unasked, by a message that it sent a moment ago."""
        told = {**self.told, can.node: Heard(now, now - MESSAGE_SECONDS - can.age)}
        return replace(self, told=_recent(told, now, duration))

    def was_told(self, *, since: float, now: float, duration: float) -> bool:
        """Whether a peer said so lately, and nothing else after it, and renewed since then."""
        return is_heard(self.told.values(), since=since, now=now, duration=duration)


def _recent(heard: Mapping[str, Heard], now: float, duration: float) -> Mapping[str, Heard]:
    begin = now - max(duration, _KNOWN_FOR)
    return {peer: said for peer, said in heard.items() if said.at > begin}


class OutageQuestion(NamedTuple):
    """Whether a peer can renew, asked by a node whose renewals fail for so many seconds.

    `duration`: how long its Lease counts after a renewal, in seconds; 0: it does not say.
    """

    asker: str
    failing_for: float
    duration: float


class OutageAnswer(NamedTuple):
    """A peer's answer; `age`: how many seconds ago it sent the renewal that shows that it can.

    `promised`: with CANNOT, for how many seconds it counts the asker.
    """

    answer: PeerAnswer
    age: float = 0.0
    promised: float = 0.0


def own_answer(
    question: OutageQuestion,
    heard: Mapping[str, Heard],
    timing: LeaseTiming,
    *,
    can_renew: bool,
    now: float,
) -> PeerAnswer:
    """Return the answer of a node to one whose renewals fail.

    `heard`: what peers last said to this node; what the asker said is not passed on to it.
    """
    if can_renew:
        return PeerAnswer.CAN
    since = now - question.failing_for
    duration = max(question.duration or _FOR_EVER, timing.duration)
    others = (said for peer, said in heard.items() if peer != question.asker)
    knows = is_heard(others, since=since, now=now, duration=duration)
    return PeerAnswer.KNOWS if knows else PeerAnswer.CANNOT


def outage_question_body(question: OutageQuestion) -> Json:
    """Return a question as JSON."""
    return {
        "asker": question.asker,
        "failingFor": question.failing_for,
        "duration": question.duration,
    }


def read_outage_question(body: Json) -> Optional[OutageQuestion]:
    """Return the question in JSON; None if there is none."""
    # Agents of 0.1.0 say no duration.
    failing_for, duration = _seconds(body.get("failingFor")), _seconds(body.get("duration", 0))
    if failing_for is None or duration is None:
        return None
    return OutageQuestion(str(body.get("asker")), failing_for, duration)


def outage_answer_body(answer: OutageAnswer) -> Json:
    """Return an answer as JSON."""
    return {"answer": answer.answer.value, "age": answer.age, "promised": answer.promised}


def read_outage_answer(body: Json) -> Optional[OutageAnswer]:
    """Return the answer in JSON; None if there is none."""
    # Agents of 0.1.0 promise as long as their own Lease lasts, and do not say so.
    age, promised = _seconds(body.get("age")), _seconds(body.get("promised", _MOST))
    spoken = [answer for answer in _SPOKEN if answer.value == body.get("answer")]
    if not spoken or age is None or promised is None:
        return None
    return OutageAnswer(spoken[0], age, promised)


def promise_seconds(question: OutageQuestion, timing: LeaseTiming) -> float:
    """Return for how long to count an asker: as long as its Lease lasts, within reason."""
    return min(question.duration or timing.duration, max(LONGEST_PROMISE, timing.duration))


class CanRenew(NamedTuple):
    """What a node says of itself in other messages: it can renew; `age` as in an answer."""

    node: str
    age: float


def can_renew_body(can: Optional[CanRenew]) -> Json:
    """Return what to add to a message; nothing if the node cannot."""
    return {} if can is None else {"can": can.node, "age": can.age}


def read_can_renew(body: Json) -> Optional[CanRenew]:
    """Return what a message says; None if it says nothing of that."""
    age = _seconds(body.get("age"))
    return CanRenew(str(body["can"]), age) if "can" in body and age is not None else None


def _seconds(value: Any) -> Optional[float]:
    """Return a number of seconds that is not negative; None for everything else."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < _FOR_EVER else None
