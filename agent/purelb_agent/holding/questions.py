# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Carries the questions about permissions between this node and its peers.

The reconciler owns it. In each cycle the questions that have come are answered, then the decisions
are made by what is left, and the answers are sent when the interfaces have been changed. The
Holder decides all of that.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable
from functools import partial

from purelb.core.holding.messages import (
    Json,
    answer_body,
    question_body,
    read_answer,
    read_question,
)
from purelb.core.holding.permissions import PermissionAnswer, PermissionQuestion
from purelb.core.holding.talks import ANSWER_SECONDS, Asked
from purelb.core.model import Address, PoolType
from purelb.core.node.decisions import Decisions
from purelb.core.node.holdings import HoldingFacts, Holdings, decide_holdings
from purelb_agent.holding.metrics import LeaseMetrics
from purelb_agent.holding.over import OverReporter
from purelb_agent.holding.renewer import Renewer
from purelb_agent.kube.store import NodeStore
from purelb_agent.peers.peers import Peers
from purelb_agent.runtime import clock

KIND = "permission"
_Waiting = defaultdict[tuple[str, str], list[asyncio.Future[PermissionAnswer]]]


class Questions:
    """The questions that are under way."""

    def __init__(
        self,
        store: NodeStore,
        renewer: Renewer,
        peers: Peers,
        *,
        look_anew: Callable[[], None],
        metrics: LeaseMetrics,
    ) -> None:
        """`look_anew` lists Leases and Nodes again: a peer has seen what this node has not."""
        self._store = store
        self._renewer = renewer
        self._peers = peers
        self._look_anew = look_anew
        self._metrics = metrics
        self._facts: HoldingFacts | None = None
        self._holdings: Holdings | None = None
        # By asker and nonce: who waits for the answer. One may come over several addresses.
        self._waiting: _Waiting = defaultdict(list)
        self.over_reporter = OverReporter(store, peers)
        self._asking: set[asyncio.Task[None]] = set()
        peers.answers[KIND] = self._handle

    async def _handle(self, body: Json) -> Json | None:
        """Answer a message in the next cycle that has seen what the asker has seen."""
        question = read_question(body)
        if question is None or question.peer != self._renewer.node:
            return None
        answered = asyncio.Future[PermissionAnswer]()
        waiting = self._waiting[question.asker, question.nonce]
        waiting.append(answered)
        self._store.take(self._store.holder.asked(question, now=clock.now()))
        self._store.changed.notify()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return answer_body(await answered)
        except TimeoutError:
            return None
        finally:
            waiting.remove(answered)
            if not waiting:
                self._waiting.pop((question.asker, question.nonce), None)

    def read_mail(self, now: float) -> None:
        """Take the answers and questions that stand in the Leases of others."""
        self._store.take(self._store.holder.with_mail(now=now))

    def decide(self, elected: Decisions, held: frozenset[Address], *, now: float) -> Decisions:
        """Answer the questions that have come; return what this node may do of `elected`."""
        before = self._store.holder
        wanted = _wanted(elected) if before.talks.waiting else frozenset()
        holder = before.answer(held=held, wanted=wanted, now=now)
        self._store.take(holder)
        if holder.talks.listed_at > before.talks.listed_at:
            self._look_anew()
        facts = HoldingFacts(
            elected,
            holder.permissions,
            held,
            holder.counting.epochs(),
            holder.right.may_add(now),
            holder.right.is_deleted,
        )
        # Most cycles change nothing of that, and with many addresses this costs milliseconds.
        if self._holdings is None or facts != self._facts:
            self._facts, self._holdings = facts, decide_holdings(facts)
            self._metrics.show_lacking(self._holdings.lacking)
        return self._holdings.decisions

    def send(self, held: frozenset[Address], *, now: float) -> None:
        """Send the answers, now that the interfaces have changed, and ask for what is missing."""
        before = self._store.holder
        holder, replies = before.reply(held=held, now=now)
        missing = self._holdings.missing if self._holdings else {}
        holder, questions = holder.ask(missing, nonce=partial(secrets.token_hex, 8), now=now)
        self._store.take(holder)
        for asked, answer in replies:
            self._reply(asked, answer)
        if holder.over is not before.over:
            self.over_reporter.begin()
        for question in questions:
            task = asyncio.create_task(self._send(question))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        self._renewer.post(holder.mail())

    def _reply(self, asked: Asked, answer: PermissionAnswer) -> None:
        for waiting in self._waiting.get((asked.question.asker, answer.nonce), ()):
            if not waiting.done():
                waiting.set_result(answer)

    async def _send(self, question: PermissionQuestion) -> None:
        peer, body = question.peer, question_body(question)
        said = await self._peers.tell(peer, self._store.addresses_of(peer), KIND, body)
        self._store.take(self._store.holder.hear(question, read_answer(said), now=clock.now()))
        self._store.changed.notify()

    def cancel(self) -> None:
        """Wait for no answer any more."""
        for task in self._asking:
            task.cancel()

    def next_at(self, now: float) -> float | None:
        """Return when a question is to be answered or repeated, even without news."""
        return self._store.holder.talks.next_at(now)


def _wanted(elected: Decisions) -> frozenset[Address]:
    local = (d for d in elected.here if d.vip.pool_type is PoolType.LOCAL)
    return frozenset(decision.vip.address for decision in local)
