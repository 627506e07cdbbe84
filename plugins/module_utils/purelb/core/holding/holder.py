# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The machine of one node: until when it may hold addresses, which of them, and what it says.

Its events are Leases that were seen or read, messages, answers, and what its interfaces hold. It
returns what is to be said, reads no clock and sends nothing. The rules of a single part stand with
that part; here is what connects them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Callable, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from ..model import Address, Lease
from .counted_lease import Check
from .counting import Counting
from .messages import Mail, RightAnswer, mail_text, read_mail
from .outage import (
    CanRenew,
    OutageAnswer,
    OutageAssessment,
    OutageQuestion,
    PeerAnswer,
    Round,
    WhoCan,
    assess_outage,
    extended_deadline,
    own_answer,
    promise_seconds,
)
from .permissions import (
    PermissionAnswer,
    PermissionQuestion,
    Permissions,
    Promised,
    QuestionRefusal,
)
from .right import Right
from .talks import NEWS_SECONDS, Asked, Talks

# How long a node may take to renew once the API is back: its pause between attempts, and a margin.
_RETURN = 3.0
_NEVER = float("-inf")
_NOTHING: FrozenSet[Address] = frozenset()
Replies = Tuple[Tuple[Asked, PermissionAnswer], ...]


class Over(NamedTuple):
    """The last epoch in which this node may hold nothing any more, and who is still to hear it."""

    epoch: str = ""
    untold: FrozenSet[str] = frozenset()
    until: float = _NEVER


_TO_NOBODY = Over()


@dataclass(frozen=True)
class Holder:
    """What one node knows of its right, of the others and of what was agreed; each event a new one.

    `held`: the addresses on its interfaces after its last plan; None before the first one, when an
    earlier agent may have left some. `unread_at`: when a Lease could not be read.
    """

    right: Right
    permissions: Permissions
    counting: Counting = field(default_factory=Counting)
    talks: Talks = field(default_factory=Talks)
    who_can: WhoCan = field(default_factory=WhoCan)
    held: Optional[FrozenSet[Address]] = None
    over: Over = _TO_NOBODY
    unread_at: float = _NEVER

    @property
    def node(self) -> str:
        """Name of this node."""
        return self.permissions.node

    def at(self, now: float) -> Holder:
        """Return the same at this time: what has ended has, and so have its permissions."""
        right, counting = self.right.at(now), self.counting.at(now)
        permissions = self.permissions.entered(right.epoch).among(counting.epochs())
        if right is self.right and counting is self.counting and permissions is self.permissions:
            return self
        return replace(self, right=right, counting=counting, permissions=permissions)

    def near_epochs(self) -> Mapping[str, str]:
        """Return the epochs of the near nodes that count."""
        counting = self.counting
        epochs = counting.epochs().items()
        return {n: e for n, e in epochs if counting.is_near(counting.leases[n].lease)}

    def asked(self, question: PermissionQuestion, *, now: float, by_lease: bool = False) -> Holder:
        """Take a peer's question, which shows that the peer lives; `answer` answers it."""
        counting = self.counting.heard(question.asker, now=now)
        counting = counting.with_promised(question.promised, now=now)
        talks = self.talks.with_question(Asked(question, now, by_lease))
        return replace(self, counting=counting, talks=talks)

    def with_mail(self, *, now: float) -> Holder:
        """Take the answers and questions that stand in the Leases of those that count.

        Before the election: an answer may say that another node counts.
        """
        holder = self
        for peer, counted in self.counting.leases.items():
            mail = counted.lease.mail
            if (mail or peer in holder.talks.mailed) and counted.counts and counted.lease.epoch:
                holder = holder._with_mail_of(peer, read_mail(mail), now)
        return holder

    def _with_mail_of(self, peer: str, mail: Mail, now: float) -> Holder:
        holder, question = self, self.permissions.asked.get(peer)
        for asker, answer in mail.answers:
            if question is not None and (asker, answer.nonce) == (self.node, question.nonce):
                holder = holder.hear(question, answer, by_lease=True, now=now)
        asked = next((q for q in mail.questions if q.peer == self.node), None)
        if asked is None:
            return replace(holder, talks=holder.talks.without_mail_to(peer))
        return holder.asked(asked, by_lease=True, now=now) if asked.asker == peer else holder

    def answer(self, *, held: FrozenSet[Address], wanted: FrozenSet[Address], now: float) -> Holder:
        """Answer the questions that have come, once this node has seen what their askers have.

        `held`: the addresses on its interfaces; `wanted`: those that it is to have by its own plan.
        What is denied afterwards must be withdrawn before the answers are sent, by `reply`.
        """
        holder = self.at(now)
        if holder.talks.posted:
            talks, unanswered = holder.talks.unanswered(now)
            holder = replace(holder, talks=talks)
            for question in unanswered:
                holder = holder.hear(question, None, now=now)
        epochs, permissions, talks = holder.counting.epochs(), holder.permissions, holder.talks
        waiting: List[Asked] = []
        answered = list(talks.answered)
        for asked in talks.to_answer(now):
            question = asked.question
            if _is_over(holder.right, question.peer_epoch, held, now):
                answer = PermissionAnswer(question.nonce, refusal=QuestionRefusal.EPOCH_OVER)
            else:
                knows = (epochs.get(question.asker), permissions.epoch)
                is_known = knows == (question.epoch, question.peer_epoch)
                if not is_known or question.wants & wanted:
                    if now < asked.came_at + NEWS_SECONDS:
                        waiting.append(asked)
                        continue
                    talks = talks.listing(now)
                permissions, answer = permissions.answer(
                    question, epochs=epochs, holds=held, wanted=wanted
                )
            answered.append((asked, answer))
        talks = replace(talks, waiting=tuple(waiting), answered=tuple(answered))
        return replace(holder, permissions=permissions, talks=talks)

    def reply(self, *, held: FrozenSet[Address], now: float) -> Tuple[Holder, Replies]:
        """Return the answers to send now that the interfaces have been changed and have `held`.

        An address that could not be removed is taken back. If the right is over and nothing is
        left, all near nodes are to hear it.
        """
        promised, ended = self.counting.promised(now), tuple(self.counting.ends().items())
        given = [asked for asked, answer in self.talks.answered if answer.has is not None]
        permissions = self.permissions
        for asked in given:
            permissions = permissions.keeping(asked.question, held=held)
        replies = tuple(
            (
                asked,
                replace(
                    answer,
                    has=permissions.pairs[asked.question.asker] if asked in given else None,
                    promised=promised,
                    ended=() if asked.by_lease else ended,
                ),
            )
            for asked, answer in self.talks.answered
        )
        talks = self.talks.replied(replies) if replies else self.talks
        over = self.over if held else self._newly_over(now)
        after = replace(self, permissions=permissions, talks=talks, held=held, over=over)
        return after, replies

    def ask(
        self, missing: Mapping[Address, Iterable[str]], *, nonce: Callable[[], str], now: float
    ) -> Tuple[Holder, Tuple[PermissionQuestion, ...]]:
        """Return the questions to send directly; others stand in the own Lease, by `mail`.

        `missing`: the addresses that this node wants and does not hold, each with the peers that
        count for it. `nonce` returns another text each time. No node is asked before a watch or a
        list has shown the own Lease.
        """
        if not self.right.is_shown:
            return self, ()
        holder, direct = self, []
        for peer, (wants, moves) in self._to_ask(missing, now).items():
            permissions, question = holder.permissions.ask(
                peer,
                self.counting.leases[peer].lease.epoch,
                nonce=nonce(),
                holds=self.held or _NOTHING,
                wants=wants,
                moves=moves,
                promised=self.counting.promised(now),
            )
            if not self.talks.may_ask(question, now=now):
                continue
            talks = holder.talks
            if permissions.asks_by_lease(peer):
                talks = talks.with_posted(question, now=now)
            else:
                direct.append(question)
            holder = replace(holder, permissions=permissions, talks=talks)
        return holder, tuple(direct)

    def _to_ask(
        self, missing: Mapping[Address, Iterable[str]], now: float
    ) -> Mapping[str, Tuple[FrozenSet[Address], FrozenSet[Address]]]:
        permissions, near = self.permissions, self.near_epochs()
        asks = permissions.to_ask(missing, near)
        # Of those that were met, one after the other: a node that joins next to a dead one does not
        # wait for the end of a Lease that others have waited for.
        unmet = near.keys() - permissions.pairs.keys()
        free = sorted(permissions.pairs.keys() - permissions.asked.keys())
        if free and any(permissions.asks_by_lease(peer) for peer in unmet):
            asks.setdefault(free[int(now) % len(free)], (_NOTHING, _NOTHING))
        return asks

    def hear(
        self,
        question: PermissionQuestion,
        answer: Optional[PermissionAnswer],
        *,
        now: float,
        by_lease: bool = False,
    ) -> Holder:
        """Take the answer to a question, or that none came in time."""
        peer, counting = question.peer, self.counting
        # A Lease can be written with a token; what nodes say to each other is signed.
        for node, epoch in answer.ended if answer is not None and not by_lease else ():
            counting = counting.ended(node, epoch, now=now)
        asked = self.permissions.asked.get(peer)
        if asked is None or asked.nonce != question.nonce:
            return replace(self, counting=counting).at(now)
        if answer is None:
            permissions = self.permissions.gave_up(peer, question.nonce)
        else:
            counting = counting.with_promised(answer.promised, now=now)
            permissions = self.permissions.heard(peer, answer, by_lease=by_lease)
            if answer.refusal is QuestionRefusal.EPOCH_OVER:
                counting = counting.said_over(peer, question.peer_epoch)
        talks = self.talks.heard(
            question, answer, by_lease=permissions.asks_by_lease(peer), now=now
        )
        return replace(self, counting=counting, permissions=permissions, talks=talks).at(now)

    def mail(self) -> str:
        """Return what the own Lease says to those that are not reached; empty if it is nothing."""
        permissions, mailed = self.permissions, self.talks.mailed
        questions = [q for p, q in permissions.asked.items() if permissions.asks_by_lease(p)]
        epochs = self.counting.epochs() if mailed else {}
        answers = sorted((peer, answer) for peer, answer in mailed.items() if peer in epochs)
        return mail_text(Mail(tuple(questions), tuple(answers)))

    # Ends of rights and Leases.

    def _newly_over(self, now: float) -> Over:
        epoch = self.right.over
        if epoch in ("", self.over.epoch):
            return self.over
        # Also those that count no more: they may have promised to count this node.
        near = (self.counting.leases[node].lease for node in self.counting.near())
        untold = frozenset(p.node for p in near if p.epoch and not p.is_released)
        return Over(epoch, untold, now + self.right.timing.duration)

    def told(self, epoch: str, peers: Iterable[str], *, now: float) -> Holder:
        """Record that peers have heard that an epoch is over; none is told for ever."""
        if epoch != self.over.epoch:
            return self
        untold = self.over.untold.difference(peers) if now < self.over.until else ()
        return replace(self, over=self.over._replace(untold=frozenset(untold)))

    def hear_over(self, node: str, epoch: str, promised: Promised, *, now: float) -> Holder:
        """Take from a node that it may hold nothing any more in this epoch."""
        counting = self.counting.with_promised(promised, now=now)
        return replace(self, counting=counting.said_over(node, epoch)).at(now)

    def say_right(self, epoch: str, *, now: float) -> Optional[RightAnswer]:
        """Say until when this node may hold addresses; nothing while it might hold some without."""
        deadline, promised = self.right.deadline(now), self.counting.promised(now)
        if deadline is not None:
            return RightAnswer(deadline.hold_until - now, promised=promised)
        if _is_over(self.right, epoch, self.held, now):
            return RightAnswer(0.0, is_over=True, promised=promised)
        return None

    def say_promise(self, node: str, *, now: float) -> RightAnswer:
        """Say for how long this node counts another because of a promise; if negative, not."""
        return RightAnswer(self.counting.promises.get(node, now) - now)

    def hear_right(self, node: str, epoch: str, said: RightAnswer, *, now: float) -> Holder:
        """Take what a node said of its right when it was asked about this epoch.

        Or what another one said: for how long it promised to count that node.
        """
        counting = self.counting.with_promised(said.promised, now=now)
        if said.is_over:
            counting = counting.said_over(node, epoch)
        elif said.seconds > 0:
            counting = counting.has_right(node, seconds=said.seconds, now=now)
        return replace(self, counting=counting).at(now)

    def found(self, node: str, check: Check, *, asked_at: float, now: float) -> Holder:
        """Record that a check left the end of a Lease possible."""
        return replace(self, counting=self.counting.found(node, check, asked_at=asked_at)).at(now)

    def read(
        self, node: str, lease: Optional[Lease], *, can_ask: bool, asked_at: float, now: float
    ) -> Holder:
        """Take a Lease that was read by a request of its own; None: there is none, or no newer one.

        Where reads failed, a node that cannot be asked may have been cut off as this one was, and
        be about to renew.
        """
        if not can_ask and asked_at < self.unread_at + _RETURN:
            return self
        counting = self.counting
        if lease is not None and node in counting.leases:
            counting = counting.observe(lease, now=now)
        holder = replace(self, counting=counting)
        return holder.found(node, Check.READ, asked_at=asked_at, now=now)

    # Outages of the API.

    def answer_outage(
        self, question: OutageQuestion, *, age: Optional[float], is_listed: bool, now: float
    ) -> Tuple[Holder, OutageAnswer]:
        """Answer a peer that cannot renew; CANNOT promises to count it as long as its Lease lasts.

        `age`: how many seconds ago this node sent the renewal that shows that it can; None: it
        shows nothing, or was sent before the asker's failed. `is_listed`: it has listed the Leases.
        """
        asker, timing, heard = question.asker, self.right.timing, self.who_can.heard
        answer = own_answer(question, heard, timing, can_renew=age is not None, now=now)
        counting, seconds = self.counting, 0.0
        if answer is PeerAnswer.CANNOT:
            seconds = promise_seconds(question, timing)
            promised = counting.promise(asker, until=now + seconds, listed=is_listed)
            answer = PeerAnswer.KNOWS if promised is None else answer
            counting = promised or counting
        # After that: one whose Lease has ended for this node gets no promise for being heard.
        counting = counting.heard(asker, now=now)
        return replace(self, counting=counting).at(now), OutageAnswer(answer, age or 0.0, seconds)

    def members(self) -> FrozenSet[str]:
        """Return whom to ask whether they can renew: all near nodes with a Lease, and this one.

        Dead or not, so no two parts of those that can have the same address are more than half of
        them.
        """
        return frozenset((*self.counting.near(), self.node))

    def hear_outage(
        self,
        members: FrozenSet[str],
        asked: Round,
        said: Mapping[str, OutageAnswer],
        *,
        now: float,
    ) -> Tuple[Holder, OutageAssessment]:
        """Take what the members and others answered to a round of questions.

        If no node can renew, this one may hold for longer.
        """
        who_can = self.who_can.answered(asked, said, now=now)
        told = who_can.was_told(since=asked.since, now=now, duration=asked.timing.duration)
        answers = {peer: spoken.answer for peer, spoken in said.items()}
        found = assess_outage(members, self.node, answers, told=told)
        right = self.right.cut_off(is_cut_off=found is OutageAssessment.ALONE_CUT_OFF)
        if found is OutageAssessment.HOLD:
            right = right.extended(extended_deadline(asked, said), now=now)
        return replace(self, right=right, who_can=who_can), found

    def hear_can(self, can: Optional[CanRenew], *, now: float) -> Holder:
        """Take from a message that its sender can renew; None: it says nothing of that."""
        if can is None:
            return self
        duration = self.right.timing.duration
        return replace(self, who_can=self.who_can.told_by(can, now=now, duration=duration))


def _is_over(right: Right, epoch: str, held: Optional[FrozenSet[Address]], now: float) -> bool:
    """Whether a node holds nothing and never will in this epoch."""
    return held == _NOTHING and right.is_over(epoch, now)
