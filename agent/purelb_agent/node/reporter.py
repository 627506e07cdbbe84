# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Tells the API server which addresses this node announces; never in the way of announcing.

The loop leaves here what it did, and a task of its own writes it: the announcing annotations of
Services, and events about what changed. What could not be written is tried again; only the latest
state counts.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from purelb.core.model import Announcement, PoolType, Service, ServiceKey
from purelb.core.names import ANNOUNCING_ANNOTATIONS
from purelb.core.node.annotations import format_announcing, merge_announcing
from purelb.core.node.configuration import SelectedConfig, SelectorState
from purelb.core.node.conflicts import DuplicateAddress
from purelb.core.node.decisions import Decisions, VipDecision
from purelb.core.node.snapshot import Place
from purelb_agent.kube.client import CONFLICT, NOT_FOUND, ApiError, Kube
from purelb_agent.kube.events import Events, ObjectReference
from purelb_agent.kube.store import NodeStore
from purelb_agent.node.events import NodeEvents
from purelb_agent.runtime import clock, log

_RETRY = 1.0
Claims = dict[ServiceKey, list[Announcement]]


class Reporter:
    """Owns the entries of this node in the announcing annotations."""

    def __init__(self, kube: Kube, store: NodeStore, events: Events, node: str) -> None:
        self._store = store
        self._kube = kube
        self._events = events
        self._notices = NodeEvents(events, store, node)
        self._node = node
        self._decisions: Decisions | None = None
        self._held: frozenset[Place] = frozenset()
        self._done = False
        self._taint: str | None = None
        self._failing = False
        self._work = asyncio.Event()

    def report(self, judgement: Decisions, held: frozenset[Place], *, done: bool) -> None:
        """Take note of the addresses that this node holds; `done`: nothing was refused."""
        if judgement is self._decisions and (held, done) == (self._held, self._done):
            return
        self._decisions, self._held, self._done = judgement, held, done
        self._work.set()

    def report_choice(self, choice: SelectedConfig) -> None:
        """Take note of how the node is configured; an object that cannot be used gets an event."""
        config = choice.config
        if choice.state is SelectorState.INVALID and config is not None:
            self._events.record(
                ObjectReference("LBNodeAgent", config.name, config.namespace, config.uid),
                "InvalidConfiguration",
                f"Node {self._node} announces nothing: {config.problem}",
                kind="Warning",
            )

    def report_conflict(self, conflict: DuplicateAddress) -> None:
        """Take note that another host has an address of this node, too."""
        verdict = self._decisions and self._decisions.verdicts.get(conflict.address)
        if verdict:
            self._notices.tell_conflict(verdict, conflict.mac.hex(":"))

    async def run(self) -> None:
        """Write what differs until cancelled."""
        while True:
            await self._rest()
            self._work.clear()
            judgement = self._decisions
            if judgement is None:
                continue
            announced = [v for v in judgement.here if self._has(v)]
            self._tell(judgement, announced)
            if not await self._write(judgement, announced):
                await asyncio.sleep(_RETRY)
                self._work.set()

    async def _rest(self) -> None:
        due = self._notices.next_at
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - clock.now())):
                await self._work.wait()
        except TimeoutError:
            return

    def _has(self, verdict: VipDecision) -> bool:
        return verdict.link is not None and (verdict.link.index, verdict.vip.address) in self._held

    def _is_caretaker(self, judgement: Decisions) -> bool:
        """Whether this node does what one node is to do for all."""
        live = (member.node for member in judgement.world.membership.members)
        return judgement.world.right is not None and min(live, default="") == self._node

    def _tell(self, judgement: Decisions, announced: Iterable[VipDecision]) -> None:
        self._notices.tell_announced(announced, judgement)
        is_caretaker = self._is_caretaker(judgement)
        self._notices.tell_unserved(judgement, is_caretaker=is_caretaker, now=clock.now())
        if self._store.taint != self._taint:
            self._notices.tell_draining(self._store.taint, done=self._done)
            log.info("draining", node=self._node, taint=self._store.taint or "")
            self._taint = self._store.taint

    async def _write(self, judgement: Decisions, announced: Iterable[VipDecision]) -> bool:
        """Bring all annotations in step; whether all of them are."""
        claims: Claims = defaultdict(list)
        for verdict in announced:
            link = verdict.link.name if verdict.link else ""
            for key in verdict.vip.services:
                claims[key].append(Announcement(self._node, link, verdict.vip.address))
        live = frozenset(member.node for member in judgement.world.membership.members)
        done = True
        for service in tuple(self._store.services.records.values()):
            changes = self._changes(service, claims.get(service.key, []), live, judgement)
            if changes:
                done = await self._patch(service, changes) and done
        self._failing = self._failing and not done
        return done

    def _changes(
        self,
        service: Service,
        claims: Iterable[Announcement],
        live: frozenset[str],
        judgement: Decisions,
    ) -> dict[str, str | None]:
        """What to write into the annotations of a Service: nothing, unless it concerns this node.

        Entries of nodes that are gone go with the next winner's, or the caretaker takes them.
        """
        changes: dict[str, str | None] = {}
        for version, annotation in ANNOUNCING_ANNOTATIONS.items():
            current = service.announcing.get(version, ())
            own = [c for c in claims if c.address and c.address.version == version]
            wanted = merge_announcing(
                current,
                own,
                node=self._node,
                live_nodes=live,
                alone=service.pool_type is not PoolType.REMOTE,
            )
            if wanted == current:
                continue
            concerns = own or any(entry.node == self._node for entry in current)
            if concerns or self._is_caretaker(judgement):
                changes[annotation] = format_announcing(wanted) or None
        return changes

    async def _patch(self, service: Service, changes: dict[str, str | None]) -> bool:
        path = f"/api/v1/namespaces/{service.key.namespace}/services/{service.key.name}"
        meta = {"resourceVersion": service.version, "annotations": changes}
        try:
            await self._kube.request("PATCH", path, {"metadata": meta})
        except ApiError as problem:
            # A conflict resolves itself: the watch brings the newer Service.
            if problem.status not in (CONFLICT, NOT_FOUND) and not self._failing:
                log.warning("annotationFailed", service=service.key, error=str(problem))
                self._failing = True
            return False
        return True
