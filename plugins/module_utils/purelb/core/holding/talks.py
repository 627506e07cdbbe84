# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""When questions about permissions are asked, answered and repeated.

A question goes directly to the peer or, where it does not answer, stands in the Lease of the asker
until it is answered in the Lease of the peer. Permissions decide what questions and answers say.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, FrozenSet, Mapping, Optional, Tuple, TypeVar

from ..model import Address
from .permissions import PermissionAnswer, PermissionQuestion, QuestionRefusal

# How long a question waits for what the watches bring, before the node that has not seen it yet
# refuses. The asker waits a little longer.
NEWS_SECONDS = 0.25
# How long a direct question is worth an answer: its asker waits for 0.5 s.
ANSWER_SECONDS = 0.45
# Pauses before a question is repeated: there was no answer, a refusal, or the peer keeps what it
# holds until its permission is the last one missing.
_SILENT, _REFUSED, _CROSSED, _KEPT = 0.5, 0.3, 0.05, 2.0
_PAUSES = {
    None: 0.0,
    QuestionRefusal.UNKNOWN_EPOCH: _REFUSED,
    QuestionRefusal.EPOCH_OVER: _REFUSED,
    QuestionRefusal.CROSSING: _CROSSED,
    QuestionRefusal.NOT_MET: _CROSSED,
}
# How long a question stands in the Lease.
_POSTED = 5.0
# Lists because of refusals are at least so far apart.
_LISTED = 2.0
_NEVER = float("-inf")
T = TypeVar("T")
# The epochs of both, what is wanted of the peer, and what of that it must release.
_Wishes = Tuple[str, str, FrozenSet[Address], FrozenSet[Address]]


def _wishes(question: PermissionQuestion) -> _Wishes:
    return question.epoch, question.peer_epoch, question.wants, question.moves


def _without(records: Mapping[str, T], peer: str) -> Dict[str, T]:
    return {name: record for name, record in records.items() if name != peer}


@dataclass(frozen=True)
class Asked:
    """A question to this node and when it came; `by_lease`: it stands in the Lease of its asker."""

    question: PermissionQuestion
    came_at: float
    by_lease: bool = False


@dataclass(frozen=True)
class Talks:
    """The questions of one node and to it that are under way; each change returns a new record.

    `waiting`: questions to it; `answered`: those whose answers are sent when the interfaces have
    been changed. By peer: `not_before`, when it may be asked again, and `repeated`, when for the
    same as before; `posted`, how long a question stands in the own Lease; `taken`, the last
    question from its Lease; `mailed`, the answer to that. `listed_at`: when Leases and Nodes were
    to be listed again, as a peer has seen what this node has not.
    """

    waiting: Tuple[Asked, ...] = ()
    answered: Tuple[Tuple[Asked, PermissionAnswer], ...] = ()
    not_before: Mapping[str, float] = field(default_factory=dict)
    repeated: Mapping[str, Tuple[float, _Wishes]] = field(default_factory=dict)
    posted: Mapping[str, Tuple[float, PermissionQuestion]] = field(default_factory=dict)
    taken: Mapping[str, str] = field(default_factory=dict)
    mailed: Mapping[str, PermissionAnswer] = field(default_factory=dict)
    listed_at: float = _NEVER

    def with_question(self, asked: Asked) -> Talks:
        """Record a question that came; one from a Lease is taken once, as often as it is seen."""
        peer, nonce = asked.question.asker, asked.question.nonce
        if not asked.by_lease:
            return replace(self, waiting=(*self.waiting, asked))
        if self.taken.get(peer) == nonce:
            return self
        taken = {**self.taken, peer: nonce}
        return replace(self, waiting=(*self.waiting, asked), taken=taken)

    def without_mail_to(self, peer: str) -> Talks:
        """Record that no question stands in the Lease of a peer."""
        return replace(self, mailed=_without(self.mailed, peer)) if peer in self.mailed else self

    def to_answer(self, now: float) -> Tuple[Asked, ...]:
        """Return the questions whose askers still wait."""
        return tuple(a for a in self.waiting if a.by_lease or now < a.came_at + ANSWER_SECONDS)

    def listing(self, now: float) -> Talks:
        """Record that Leases and Nodes are to be listed again, unless they were lately."""
        return replace(self, listed_at=now) if now >= self.listed_at + _LISTED else self

    def replied(self, replies: Tuple[Tuple[Asked, PermissionAnswer], ...]) -> Talks:
        """Record that these answers are sent, or stand in the own Lease from now on."""
        mailed = {a.question.asker: answer for a, answer in replies if a.by_lease}
        return replace(self, answered=(), mailed={**self.mailed, **mailed})

    def may_ask(self, question: PermissionQuestion, *, now: float) -> bool:
        """Whether this question may be asked now."""
        again_at, last = self.repeated.get(question.peer, (now, None))
        is_repeated = now < again_at and last == _wishes(question)
        return not is_repeated and now >= self.not_before.get(question.peer, now)

    def with_posted(self, question: PermissionQuestion, *, now: float) -> Talks:
        """Record that a question stands in the own Lease from now on."""
        return replace(self, posted={**self.posted, question.peer: (now + _POSTED, question)})

    def unanswered(self, now: float) -> Tuple[Talks, Tuple[PermissionQuestion, ...]]:
        """Return the questions that stood in the own Lease for long enough, and none of them."""
        over = [peer for peer, (until, _question) in self.posted.items() if now >= until]
        posted = {p: record for p, record in self.posted.items() if p not in over}
        return replace(self, posted=posted), tuple(self.posted[peer][1] for peer in over)

    def heard(
        self,
        question: PermissionQuestion,
        answer: Optional[PermissionAnswer],
        *,
        by_lease: bool,
        now: float,
    ) -> Talks:
        """Record an answer, or that there is none; `by_lease`: the next one goes by the Lease."""
        peer = question.peer
        silent = _SILENT if by_lease else 0.0
        pause = silent if answer is None else _PAUSES[answer.refusal]
        repeated = _without(self.repeated, peer)
        if answer is not None and answer.refusal is None:
            again_at = now + (_REFUSED if question.moves else _KEPT)
            repeated[peer] = (again_at, _wishes(question))
        return replace(
            self,
            not_before={**self.not_before, peer: now + pause},
            repeated=repeated,
            posted=_without(self.posted, peer),
        )

    def next_at(self, now: float) -> Optional[float]:
        """Return when a question is to be answered or repeated, even without news."""
        moments = [
            *(asked.came_at + NEWS_SECONDS for asked in self.waiting),
            *self.not_before.values(),
            *(again_at for again_at, _asked in self.repeated.values()),
            *(until for until, _question in self.posted.values()),
        ]
        return min((moment for moment in moments if moment > now), default=None)
