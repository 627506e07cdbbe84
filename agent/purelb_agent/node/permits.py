# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The permissions of this node: asks its peers for what it lacks, and answers their questions.

The reconciler owns it. In each cycle the questions that have come are answered, then the decisions
are made by what is left, and the answers are sent when the interfaces have been changed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from purelb.core.holding.messages import (
    Json,
    answer_body,
    question_body,
    read_answer,
    read_question,
)
from purelb.core.holding.permissions import (
    PermissionAnswer,
    PermissionQuestion,
    Permissions,
    QuestionRefusal,
)
from purelb.core.holding.right import Right
from purelb.core.model import Address, PoolType
from purelb.core.node.decisions import Decisions
from purelb.core.node.permitted import Permitted, permitted
from purelb_agent.kube.store import NodeStore
from purelb_agent.lease.mailbox import Mailbox
from purelb_agent.lease.peers import Peers
from purelb_agent.lease.renewer import Renewer
from purelb_agent.lease.resignation import Resignation
from purelb_agent.runtime import clock

KIND = "permission"
# How long a question waits for what the watches bring, before the node that has not seen it yet
# refuses. The asker waits a little longer.
_NEWS_SECONDS = 0.25
_ANSWER_SECONDS = 0.45
# Pauses before a question is repeated: there was no answer, a refusal, or the peer keeps what it
# holds until its permission is the last one missing.
_SILENT, _REFUSED, _CROSSED, _KEPT = 0.5, 0.3, 0.05, 2.0
_PAUSES = {
    None: 0.0,
    QuestionRefusal.UNKNOWN_EPOCH: _REFUSED,
    QuestionRefusal.EPOCH_OVER: _REFUSED,
    QuestionRefusal.CROSSING: _CROSSED,
}
# The epochs of both, what is wanted of the peer, and what of that it must release.
_Wishes = tuple[str, str, frozenset[Address], frozenset[Address]]
# Lists because of refusals are at least so far apart.
_LISTED = 2.0
# How long a question stands in the Lease.
_POSTED = 5.0


@dataclass(frozen=True)
class _Asked:
    """A question and when it came; `reply` sends the answer."""

    question: PermissionQuestion
    came_at: float
    reply: Callable[[PermissionAnswer], None]


@dataclass(frozen=True)
class _Permit:
    """What was permitted last, and what that came from."""

    elected: Decisions
    permissions: Permissions
    held: frozenset[Address]
    epochs: Mapping[str, str]
    puts: bool
    is_deleted: bool
    permitted: Permitted


class Permits:
    """The permissions in the present epoch, and the questions that are under way."""

    def __init__(
        self, store: NodeStore, renewer: Renewer, peers: Peers, *, look_anew: Callable[[], None]
    ) -> None:
        """`look_anew` lists Leases and Nodes again: a peer has seen what this node has not."""
        self._node = renewer.node
        self._store = store
        self._renewer = renewer
        self._peers = peers
        self._look_anew = look_anew
        self._permissions = Permissions(self._node)
        self._epochs: Mapping[str, str] = {}
        self._last: _Permit | None = None
        self._questions: list[_Asked] = []
        self._answered: list[tuple[_Asked, PermissionAnswer]] = []
        # By peer: when it may be asked again, and for the same as before.
        self._not_before: dict[str, float] = {}
        self._repeated: dict[str, tuple[float, _Wishes]] = {}
        self._looked_at = float("-inf")
        self._mailbox = Mailbox(self._node)
        self.resignation = Resignation(
            self._node, store, peers, seconds=renewer.right.timing.duration
        )
        self._asking: set[asyncio.Task[None]] = set()
        peers.answers[KIND] = self._handle

    async def _handle(self, body: Json) -> Json | None:
        """Answer a message in the next cycle that has seen what the asker has seen."""
        question = read_question(body)
        if question is None or question.peer != self._node:
            return None
        answered: asyncio.Future[PermissionAnswer] = asyncio.Future()

        def reply(answer: PermissionAnswer) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._store.leases.hear_from(question.asker)
        self._store.leases.hear_promised(question.promised)
        asked = _Asked(question, clock.now(), reply)
        self._questions.append(asked)
        self._store.changed.notify()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await answered
        except TimeoutError:
            self._questions = [other for other in self._questions if other is not asked]
            return None
        return {**answer_body(answer), "over": self._store.leases.counting.over()}

    def read_mail(self, now: float) -> None:
        """Take the answers and questions that stand in the Leases of others.

        Before the election: an answer may say that another node counts.
        """
        for peer, text in self._store.leases.mail():
            answer, question = self._mailbox.read(peer, text)
            asked = self._permissions.asked.get(peer)
            if answer is not None and asked is not None and asked.nonce == answer.nonce:
                self._hear(asked, answer, by_lease=True)
            if question is not None:
                self._store.leases.hear_promised(question.promised)
                reply = partial(self._mailbox.answer, peer)
                self._questions.append(_Asked(question, now, reply))

    def permit(
        self, elected: Decisions, right: Right, held: frozenset[Address], *, now: float
    ) -> Decisions:
        """Answer the questions that have come; return what this node may do of `elected`."""
        self._epochs = self._store.leases.counting.epochs()
        self._permissions = self._permissions.entered(right.epoch).among(self._epochs)
        self._answer(elected, right, held, now)
        puts, is_deleted = right.may_add(now), right.is_deleted
        last, permissions = self._last, self._permissions
        if (
            last is None
            or last.elected is not elected
            or last.permissions is not permissions
            or (last.held, last.epochs, last.puts, last.is_deleted)
            != (held, self._epochs, puts, is_deleted)
        ):
            found = permitted(
                elected,
                permissions,
                held=held,
                epochs=self._epochs,
                may_add=puts,
                is_deleted=is_deleted,
            )
            last = _Permit(elected, permissions, held, self._epochs, puts, is_deleted, found)
        self._last = last
        return last.permitted.decisions

    def _answer(
        self, elected: Decisions, right: Right, held: frozenset[Address], now: float
    ) -> None:
        if not self._questions:
            return
        local = (d for d in elected.here if d.vip.pool_type is PoolType.LOCAL)
        wanted = frozenset(decision.vip.address for decision in local)
        waiting: list[_Asked] = []
        for asked in self._questions:
            question = asked.question
            answer = PermissionAnswer(question.nonce, refusal=QuestionRefusal.EPOCH_OVER)
            if held or not right.is_over(question.peer_epoch, now):
                if not self._knows(question, wanted):
                    if now < asked.came_at + _NEWS_SECONDS:
                        waiting.append(asked)
                        continue
                    self._list_again(now)
                self._permissions, answer = self._permissions.answer(
                    question, epochs=self._epochs, holds=held, wanted=wanted
                )
            self._answered.append((asked, answer))
        self._questions = waiting

    def _knows(self, question: PermissionQuestion, wanted: frozenset[Address]) -> bool:
        """Whether this node has seen what the asker acts on."""
        epochs = (self._epochs.get(question.asker), self._permissions.epoch)
        return epochs == (question.epoch, question.peer_epoch) and not question.wants & wanted

    def _list_again(self, now: float) -> None:
        if now >= self._looked_at + _LISTED:
            self._looked_at = now
            self._look_anew()

    def send(self, right: Right, held: frozenset[Address], *, now: float) -> None:
        """Send the answers, now that the interfaces have changed, and ask for what is missing."""
        promised = self._store.leases.counting.promised(now)
        given = [asked for asked, answer in self._answered if answer.has is not None]
        for asked in given:
            self._permissions = self._permissions.keeping(asked.question, held=held)
        for asked, answer in self._answered:
            pair = self._permissions.pairs[asked.question.asker] if asked in given else None
            asked.reply(replace(answer, has=pair, promised=promised))
        self._answered = []
        if right.over and not held:
            self.resignation.resign(right.over)
        if right.is_shown:
            self._ask(held, now)
        posted = (q for p, q in self._permissions.asked.items() if self._by_lease(p))
        self._renewer.post(self._mailbox.text(posted, self._epochs))

    def _by_lease(self, peer: str) -> bool:
        return self._permissions.asks_by_lease(peer)

    def _ask(self, held: frozenset[Address], now: float) -> None:
        missing = self._last.permitted.missing if self._last else {}
        pairs = self._permissions.pairs
        unmet = {p: epoch for p, epoch in self._epochs.items() if p not in pairs}
        near = self._store.leases.near(unmet)
        asks = self._permissions.to_ask(missing, near)
        # Of those that were met, one after the other: a node that joins next to a dead one does not
        # wait for the end of a Lease that others have waited for.
        free = sorted(pairs.keys() - self._permissions.asked.keys())
        if free and any(self._by_lease(peer) for peer in near):
            asks.setdefault(free[int(now) % len(free)], (frozenset(), frozenset()))
        for peer, (wants, moves) in asks.items():
            wishes = (self._permissions.epoch, self._epochs[peer], wants, moves)
            again_at, last = self._repeated.get(peer, (now, None))
            if now < self._not_before.get(peer, now) or (now < again_at and last == wishes):
                continue
            self._permissions, question = self._permissions.ask(
                peer,
                self._epochs[peer],
                nonce=secrets.token_hex(8),
                holds=held,
                wants=wants,
                moves=moves,
                promised=self._store.leases.counting.promised(now),
            )
            wait = self._wait_for_mail if self._by_lease(peer) else self._send
            task = asyncio.create_task(wait(question))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _send(self, question: PermissionQuestion) -> None:
        peer, body = question.peer, question_body(question)
        answer = await self._peers.tell(peer, self._store.addresses_of(peer), KIND, body)
        self._hear_over((answer or {}).get("over"))
        self._hear(question, read_answer(answer))

    def _hear_over(self, over: Any) -> None:
        table, counting = self._store.leases, self._store.leases.counting
        for node, epoch in over.items() if isinstance(over, dict) else ():
            counting = counting.ended(node, epoch, now=clock.now())
        table.change(counting)

    async def _wait_for_mail(self, question: PermissionQuestion) -> None:
        await asyncio.sleep(_POSTED)
        self._hear(question, None)

    def _hear(
        self,
        question: PermissionQuestion,
        answer: PermissionAnswer | None,
        *,
        by_lease: bool = False,
    ) -> None:
        """Take an answer, or that there is none."""
        peer = question.peer
        asked = self._permissions.asked.get(peer)
        if asked is None or asked.nonce != question.nonce:
            return
        if answer is None:
            self._permissions = self._permissions.gave_up(peer, question.nonce)
            pause = _SILENT if self._by_lease(peer) else 0.0
        else:
            self._store.leases.hear_promised(answer.promised)
            self._permissions = self._permissions.heard(peer, answer, by_lease=by_lease)
            pause = _PAUSES[answer.refusal]
            if answer.refusal is QuestionRefusal.EPOCH_OVER:
                table = self._store.leases
                table.change(table.counting.resigned(peer, question.peer_epoch))
        self._not_before[peer] = clock.now() + pause
        self._repeated.pop(peer, None)
        if answer is not None and answer.refusal is None:
            again_at = clock.now() + (_REFUSED if question.moves else _KEPT)
            wishes = (question.epoch, question.peer_epoch, question.wants, question.moves)
            self._repeated[peer] = (again_at, wishes)
        self._store.changed.notify()

    def cancel(self) -> None:
        """Wait for no answer any more."""
        for task in self._asking:
            task.cancel()

    def next_at(self, now: float) -> float | None:
        """Return when a question is to be answered or repeated, even without news."""
        moments = [
            *(asked.came_at + _NEWS_SECONDS for asked in self._questions),
            *self._not_before.values(),
            *(again_at for again_at, _wishes in self._repeated.values()),
        ]
        return min((moment for moment in moments if moment > now), default=None)
