# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps this node's addresses through an outage of the API that nobody is spared.

While renewals fail or hang, the peers are asked again and again whether they can renew. What
follows from their answers is decided in the core; here it is handed to the renewer, and told.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Mapping

from purelb.core.election.peers import OutageAssessment, PeerAnswer, assess_outage, hold_right
from purelb.core.model import Address, Outage
from purelb.core.settings import LeaseTiming
from purelb_agent.kube.events import Events, ObjectReference
from purelb_agent.kube.store import NodeStore
from purelb_agent.lease.metrics import LeaseMetrics
from purelb_agent.lease.peers import Peers
from purelb_agent.lease.renewer import Renewer
from purelb_agent.runtime import clock, log

# While it is open whether the right is extended, there is less time than while it is.
_WHILE_HOLDING, _WHILE_OPEN = 1.0, 0.5


class OutageKeeper:
    """Asks, judges, and extends the right by it."""

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
        self._outlook: OutageAssessment | None = None

    async def run(self) -> None:
        """Ask whenever there is doubt, until cancelled."""
        while True:
            await self._renewer.in_doubt.wait()
            # Of the moment at which the doubt began: later this node may see nobody.
            members = self._members()
            self._outlook = None
            before = self._renewer.outage
            while self._renewer.in_doubt.is_set():
                asked_at = clock.now()
                is_held = await self._ask(members, asked_at) is OutageAssessment.HOLD
                pause = _WHILE_HOLDING if is_held else _WHILE_OPEN
                await asyncio.sleep(max(0.0, asked_at + pause - clock.now()))
            outage = self._renewer.outage
            if outage is not None and outage is not before:
                self._tell_end(outage)

    def _members(self) -> dict[str, tuple[Address, ...]]:
        live = self._store.leases.membership.live(clock.now())
        nodes = self._store.nodes.records
        return {m.node: tuple(nodes[m.node].addresses) if m.node in nodes else () for m in live}

    async def _ask(
        self, members: Mapping[str, tuple[Address, ...]], asked_at: float
    ) -> OutageAssessment:
        answers = await self._peers.ask(members)
        assessment = assess_outage(members, self._renewer.node, answers)
        for answer in answers.values():
            self._metrics.count_peer_answer(answer.value)
        if assessment is not self._outlook:
            self._log(assessment, answers)
            self._outlook = assessment
        if assessment is OutageAssessment.HOLD:
            self._renewer.extend(hold_right(asked_at, self._timing))
        elif assessment is OutageAssessment.ALONE_CUT_OFF:
            self._renewer.renew_soon()
        return assessment

    def _log(self, assessment: OutageAssessment, answers: Mapping[str, PeerAnswer]) -> None:
        said = Tally(answer.value for answer in answers.values())
        log.warning(assessment.value, node=self._renewer.node, **dict(sorted(said.items())))

    def _tell_end(self, outage: Outage) -> None:
        seconds = outage.end_time - outage.begin_time
        self._metrics.count_outage()
        log.info("outageHeld", node=self._renewer.node, seconds=round(seconds, 1))
        text = (
            f"The API could not be reached from any node for {seconds:.0f} s; this node kept its "
            "addresses of LoadBalancer Services"
        )
        about = ObjectReference("Node", self._renewer.node, uid=self._store.node_uid)
        self._events.record(about, "OutageHeld", text)
