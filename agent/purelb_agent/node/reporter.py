# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Writes to the API server which addresses this node announces, without delaying the loop.

The reconcile loop passes its latest result. A separate task writes the announcing annotations of
Services and events about what changed. Failed writes are retried, always with the latest state.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from purelb.core.election.draining import NodeMarks
from purelb.core.model import Address, Announcement, PoolType, Service, ServiceKey
from purelb.core.names import ANNOUNCING_ANNOTATIONS
from purelb.core.node.annotations import format_announcing, merge_announcing
from purelb.core.node.configuration import SelectedConfig, SelectorState
from purelb.core.node.conflicts import DuplicateAddress
from purelb.core.node.decisions import Decisions, VipDecision
from purelb.core.node.left import Place
from purelb.core.undone import Written, written
from purelb_agent.kube.client import CONFLICT, NOT_FOUND, ApiError, Kube
from purelb_agent.kube.events import Events, ObjectReference
from purelb_agent.kube.store import NodeStore
from purelb_agent.node.events import NodeEvents
from purelb_agent.node.standing_events import StandingEvents
from purelb_agent.runtime import clock, log
from purelb_agent.runtime.wakeup import Wakeup

_RETRY = 1.0
# Seconds between two writes of the same entries that others take away each time.
_LONGEST_PAUSE = 10.0
# An event names at most this many interfaces.
_NAMED = 5
Claims = dict[ServiceKey, list[Announcement]]
Changes = dict[str, str | None]


class Reporter:
    """The only writer of this node's entries in the announcing annotations."""

    def __init__(self, kube: Kube, store: NodeStore, events: Events, node: str) -> None:
        self._store = store
        self._kube = kube
        self._events = events
        self._node_events = NodeEvents(events, store, node)
        self._standing_events = StandingEvents(events, store, node)
        self._node = node
        self._decisions: Decisions | None = None
        self._held: frozenset[Place] = frozenset()
        self._done = False
        self._marked: Mapping[str, NodeMarks] = {}
        # The configuration of which it was reported that it selects too much.
        self._ambiguous: SelectedConfig | None = None
        self._failing = False
        # What was written last to each Service, to see that others undo it.
        self._written: dict[ServiceKey, Written[Changes]] = {}
        self._again_at: float | None = None
        self._wakeup = Wakeup()

    def report(self, decisions: Decisions, held: frozenset[Place], *, done: bool) -> None:
        """Take the result of a cycle; `done`: the kernel refused nothing."""
        current = (held, done, self._store.marked)
        if decisions is self._decisions and current == (self._held, self._done, self._marked):
            return
        self._decisions = decisions
        self._held, self._done, self._marked = current
        self._wakeup.notify()

    def report_choice(self, choice: SelectedConfig) -> None:
        """Record an event if the LBNodeAgent selected for this node is invalid."""
        config = choice.config
        if choice.state is SelectorState.INVALID and config is not None:
            self._events.record(
                ObjectReference("LBNodeAgent", config.name, config.namespace, config.uid),
                "InvalidConfiguration",
                f"Node {self._node} is announcing nothing: {config.problem}",
                kind="Warning",
            )

    def report_selected(self, choice: SelectedConfig, names: Sequence[str]) -> None:
        """Record an event, once for a configuration, if it selects interfaces hardly on purpose."""
        config = choice.config
        if not names or config is None or choice == self._ambiguous:
            return
        self._ambiguous = choice
        shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
        self._events.record(
            ObjectReference("LBNodeAgent", config.name, config.namespace, config.uid),
            "AmbiguousInterface",
            f"Node {self._node} uses {shown}: {config.local_interface!r} matches anywhere in a "
            "name. Begin it with ^ and end it with $ to match whole names",
            kind="Warning",
        )

    def report_conflict(self, conflict: DuplicateAddress) -> None:
        """Record an event: another host has an address of this node too."""
        decision = self._decisions and self._decisions.by_address.get(conflict.address)
        if decision:
            self._node_events.report_conflict(decision, conflict, now=clock.now())

    def report_mistaken(self, addresses: frozenset[Address]) -> None:
        """Record an event for each VIP that the status of the own Node lists."""
        self._node_events.report_mistaken(addresses)

    def report_fence(self, said: str) -> None:
        """Record an event if the node's addresses do not fall silent exactly."""
        self._node_events.report_fence(said)

    async def run(self) -> None:
        """Write events and annotations for each result until cancelled."""
        while True:
            due = (self._node_events.next_at, self._standing_events.next_at, self._again_at)
            await self._wakeup.wait(until=min((at for at in due if at is not None), default=None))
            decisions = self._decisions
            if decisions is None:
                continue
            announced = [decision for decision in decisions.here if self._is_held(decision)]
            self._record_events(decisions, announced)
            if not await self._write(decisions, announced):
                await asyncio.sleep(_RETRY)
                self._wakeup.notify()

    def _is_held(self, decision: VipDecision) -> bool:
        link = decision.link
        return link is not None and (link.index, decision.vip.address) in self._held

    def _is_cleanup_node(self, decisions: Decisions) -> bool:
        """Whether this node does what only one node should: it is the first live one by name."""
        live = (member.node for member in decisions.snapshot.membership.members)
        return decisions.snapshot.hold_deadline is not None and min(live, default="") == self._node

    def _record_events(self, decisions: Decisions, announced: Sequence[VipDecision]) -> None:
        self._node_events.report_announced(announced, decisions)
        now, is_cleanup_node = clock.now(), self._is_cleanup_node(decisions)
        self._node_events.report_unserved(decisions, is_cleanup_node=is_cleanup_node, now=now)
        self._standing_events.report(decisions, announced, done=self._done, now=now)
        self._node_events.report_silent(is_cleanup_node=is_cleanup_node, now=now)

    async def _write(self, decisions: Decisions, announced: Iterable[VipDecision]) -> bool:
        """Write all annotations that differ; False if a write failed.

        What others undid again and again waits until `_again_at`.
        """
        claims: Claims = defaultdict(list)
        for decision in announced:
            link = decision.link.name if decision.link else ""
            for key in decision.vip.services:
                claims[key].append(Announcement(self._node, link, decision.vip.address))
        live: frozenset[str] | None
        live = frozenset(member.node for member in decisions.snapshot.membership.members)
        deadline = decisions.snapshot.hold_deadline
        if deadline is not None and deadline.is_agreed:
            # Who cannot renew its Lease does not know which of the others can.
            live = None
        done, waiting = True, []
        services = self._store.services.records
        for key in self._written.keys() - services.keys():
            del self._written[key]
        for service in tuple(services.values()):
            changes = self._changes(service, claims.get(service.key, []), live, decisions)
            if not changes:
                continue
            last, now = self._written.get(service.key), clock.now()
            pause = last.pause(changes, now) if last is not None else 0.0
            if pause > 0:
                waiting.append(now + pause)
            elif await self._patch(service, changes):
                self._written[service.key] = written(last, changes, now, longest=_LONGEST_PAUSE)
            else:
                done = False
        self._again_at = min(waiting, default=None)
        self._failing = self._failing and not done
        return done

    def _changes(
        self,
        service: Service,
        claims: Iterable[Announcement],
        live: frozenset[str] | None,
        decisions: Decisions,
    ) -> Changes:
        """Returns the annotations of a Service to change; None removes one.

        Entries of dead nodes are removed by the next node that writes its own, otherwise by the
        cleanup node.
        """
        vips = (decisions.by_address.get(address) for address in service.addresses)
        is_local = any(found and found.vip.pool_type is PoolType.LOCAL for found in vips)
        changes: Changes = {}
        for version, annotation in ANNOUNCING_ANNOTATIONS.items():
            current = service.announcing.get(version, ())
            own = [c for c in claims if c.address and c.address.version == version]
            wanted = merge_announcing(
                current,
                own,
                node=self._node,
                live_nodes=live,
                alone=is_local,
            )
            if wanted == current:
                continue
            is_own_change = own or any(entry.node == self._node for entry in current)
            if is_own_change or self._is_cleanup_node(decisions):
                changes[annotation] = format_announcing(wanted) or None
        return changes

    async def _patch(self, service: Service, changes: Changes) -> bool:
        path = f"/api/v1/namespaces/{service.key.namespace}/services/{service.key.name}"
        meta = {"resourceVersion": service.version, "annotations": changes}
        try:
            await self._kube.request("PATCH", path, {"metadata": meta})
        except ApiError as error:
            # A conflict needs no log: the retry uses the newer Service from the watch.
            if error.status not in (CONFLICT, NOT_FOUND) and not self._failing:
                log.warning("annotationFailed", service=service.key, error=str(error))
                self._failing = True
            return False
        return True
