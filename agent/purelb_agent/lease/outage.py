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
from collections.abc import Iterable, Mapping

from purelb.core.holding.outage import (
    OutageAssessment,
    PeerAnswer,
    assess_outage,
    extended_deadline,
)
from purelb.core.model import Address, Outage
from purelb.core.settings import LeaseTiming
from purelb_agent.kube.events import Events, ObjectReference
from purelb_agent.kube.store import NodeStore
from purelb_agent.lease.metrics import LeaseMetrics
from purelb_agent.lease.peers import Peers
from purelb_agent.lease.renewer import Renewer
from purelb_agent.runtime import clock, log

# Pause between two rounds of questions while the hold deadline is extended; shorter before, as less
# time is left until the deadline.
_PAUSE_HOLDING, _PAUSE_UNDECIDED = 1.0, 0.5
# How long one round of questions takes where a node does not answer.
_ROUND, _SHORTEST_ROUND = 1.0, 0.3
# How long before the hold deadline it is extended at the latest.
_TO_EXTEND = 0.2


class OutageKeeper:
    """Asks the peers and extends the hold deadline by their answers."""

    def __init__(
        self,
        peers: Peers,
        renewer: Renewer,
        store: NodeStore,
        events: Events,
        *,
        timing: LeaseTiming,
        metrics: LeaseMetrics,
    ) -> None:
        self._peers = peers
        self._renewer = renewer
        self._store = store
        self._events = events
        self._timing = timing
        self._metrics = metrics
        self._assessment: OutageAssessment | None = None

    async def run(self) -> None:
        """Ask the peers whenever renewals are in doubt, until cancelled."""
        while True:
            await self._renewer.in_doubt.wait()
            self._assessment = None
            previous = self._renewer.outage
            while self._renewer.in_doubt.is_set():
                asked_at = clock.now()
                is_held = await self._ask(self._members(), asked_at) is OutageAssessment.HOLD
                pause = _PAUSE_HOLDING if is_held else _PAUSE_UNDECIDED
                await asyncio.sleep(max(0.0, asked_at + pause - clock.now()))
            outage = self._renewer.outage
            if outage is not None and outage is not previous:
                self._report_end(outage)

    def _members(self) -> dict[str, tuple[Address, ...]]:
        """Return all nodes with a Lease that are near, dead or not, and this one.

        So no two parts of those that can have the same address are more than half of them.
        """
        return self._reached((*self._store.leases.counting.near(), self._renewer.node))

    def _reached(self, nodes: Iterable[str]) -> dict[str, tuple[Address, ...]]:
        return {node: self._store.addresses_of(node) for node in nodes}

    async def _ask(
        self, members: Mapping[str, tuple[Address, ...]], asked_at: float
    ) -> OutageAssessment:
        since = self._renewer.failing_since or asked_at
        # Who said unasked that it can may be no member yet; its answer is passed on to those whom
        # it does not reach.
        asked = {**self._reached(self._peers.told), **members}
        answers = await self._peers.ask(asked, since=since, seconds=self._time_to_ask(asked_at))
        told = self._peers.was_told(since=since, now=clock.now())
        assessment = assess_outage(members, self._renewer.node, answers, told=told)
        for answer in answers.values():
            self._metrics.count_peer_answer(answer.value)
        if assessment is not self._assessment:
            self._log(assessment, answers)
            self._assessment = assessment
        self._renewer.cut_off(is_cut_off=assessment is OutageAssessment.ALONE_CUT_OFF)
        if assessment is OutageAssessment.HOLD:
            self._renewer.extend(extended_deadline(asked_at, self._timing))
        return assessment

    def _time_to_ask(self, now: float) -> float:
        """Return how long to wait for answers: less than is left of the right, if possible."""
        deadline = self._renewer.right.deadline(now)
        left = math.inf if deadline is None else deadline.announce_until - now
        return max(_SHORTEST_ROUND, min(_ROUND, left - _TO_EXTEND))

    def _log(self, assessment: OutageAssessment, answers: Mapping[str, PeerAnswer]) -> None:
        counts = Tally(answer.value for answer in answers.values())
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
