# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps this node's addresses through an outage of the API that affects every node.

While renewals fail or hang, it repeatedly asks the peers whether they can renew. The core assesses
the answers; the result is passed to the renewer, logged and recorded as an event.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter as Tally
from collections.abc import Mapping

from purelb.core.holding.messages import Json
from purelb.core.holding.outage import (
    OUTAGE,
    OutageAnswer,
    OutageAssessment,
    PeerAnswer,
    Round,
    next_round,
    outage_answer_body,
    outage_question_body,
    read_outage_answer,
    read_outage_question,
)
from purelb.core.model import Outage
from purelb_agent.holding.metrics import LeaseMetrics
from purelb_agent.holding.renewer import Renewer
from purelb_agent.kube.events import Events, ObjectReference
from purelb_agent.kube.store import NodeStore
from purelb_agent.peers.peers import Peers
from purelb_agent.runtime import clock, log

# Pause between two rounds of questions while the hold deadline is extended, as a part of the
# Lease's duration; shorter before, as less time is left until the deadline. In seconds at most.
_PAUSE_HOLDING, _PAUSE_UNDECIDED, _LONGEST_PAUSE = 0.1, 0.05, 1.0
# How long one round of questions takes where a node does not answer.
_ROUND, _SHORTEST_ROUND = 1.0, 0.3
# How long before the hold deadline it is extended at the latest.
_TO_EXTEND = 0.2
_SILENT = OutageAnswer(PeerAnswer.SILENT)


class OutageKeeper:
    """Asks the peers whether they can renew, and answers them."""

    def __init__(
        self,
        peers: Peers,
        renewer: Renewer,
        store: NodeStore,
        events: Events,
        *,
        metrics: LeaseMetrics,
    ) -> None:
        self._peers = peers
        self._renewer = renewer
        self._store = store
        self._events = events
        self._metrics = metrics
        self._assessment: OutageAssessment | None = None
        peers.answers[OUTAGE] = self._answer

    async def run(self) -> None:
        """Ask the peers whenever renewals are in doubt, until cancelled."""
        while True:
            await self._renewer.in_doubt.wait()
            self._assessment = None
            previous = self._renewer.outage
            while self._renewer.in_doubt.is_set():
                now = clock.now()
                asked = next_round(self._renewer.right, self._renewer.next_timing(), now=now)
                is_held = await self._ask(asked) is OutageAssessment.HOLD
                part = _PAUSE_HOLDING if is_held else _PAUSE_UNDECIDED
                pause = min(_LONGEST_PAUSE, part * self._renewer.right.timing.duration)
                await asyncio.sleep(max(0.0, asked.asked_at + pause - clock.now()))
            outage = self._renewer.outage
            if outage is not None and outage is not previous:
                self._report_end(outage)

    async def _ask(self, asked: Round) -> OutageAssessment:
        members = self._store.holder.members()
        # Who said unasked that it can may be no member yet; its answer is passed on to those whom
        # it does not reach.
        others = {*members, *self._store.holder.who_can.told} - {self._renewer.node}
        said = await self._peers.ask(
            {peer: self._store.addresses_of(peer) for peer in others},
            OUTAGE,
            outage_question_body(asked.question(self._renewer.node)),
            seconds=self._time_to_ask(asked.asked_at),
        )
        answers = {peer: read_outage_answer(said.get(peer, {})) or _SILENT for peer in others}
        for spoken in answers.values():
            self._metrics.count_peer_answer(spoken.answer.value)
        holder, assessment = self._store.holder.hear_outage(
            members, asked, answers, now=clock.now()
        )
        self._store.take(holder)
        self._renewer.publish()
        if assessment is not self._assessment:
            self._log(assessment, answers)
            self._assessment = assessment
        return assessment

    async def _answer(self, body: Json) -> Json | None:
        """Answer a peer that cannot renew."""
        question = read_outage_question(body)
        if question is None:
            return None
        age = await self._renewer.renewed(clock.now() - question.failing_for)
        holder, answer = self._store.holder.answer_outage(
            question, age=age, is_listed=self._store.leases.listed, now=clock.now()
        )
        self._store.take(holder)
        return outage_answer_body(answer)

    def _time_to_ask(self, now: float) -> float:
        """Return how long to wait for answers: less than is left of the right, if possible."""
        deadline = self._renewer.right.deadline(now)
        left = math.inf if deadline is None else deadline.announce_until - now
        return max(_SHORTEST_ROUND, min(_ROUND, left - _TO_EXTEND))

    def _log(self, assessment: OutageAssessment, said: Mapping[str, OutageAnswer]) -> None:
        counts = Tally(spoken.answer.value for spoken in said.values())
        log.warning(assessment.value, node=self._renewer.node, **dict(sorted(counts.items())))

    def _report_end(self, outage: Outage) -> None:
        seconds = outage.end_time - outage.begin_time
        self._metrics.count_outage()
        log.info("outageHeld", node=self._renewer.node, seconds=round(seconds, 1))
        message = (
            f"The API could not be reached from any node for {seconds:.0f} s; this node kept its "
            "addresses of LoadBalancer Services"
        )
        about = ObjectReference("Node", self._renewer.node, uid=self._store.node_uid)
        self._events.record(about, "OutageHeld", message)
