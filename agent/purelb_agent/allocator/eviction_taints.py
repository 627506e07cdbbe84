# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The one task that turns events of a coming eviction into taints on Nodes.

`preempt` in core/election/draining decides. A write that fails or conflicts is retried on the Node
as it is then. A Node over the limit waits until others lose the taint. Kubernetes events about
taints are sent by another task and never delay one.
"""

from __future__ import annotations

from purelb.core import names
from purelb.core.api import codec
from purelb.core.api.nodes import preempt_event_of
from purelb.core.election.draining import (
    NodeInfo,
    PreemptEvent,
    Preemption,
    PreemptReason,
    is_evicted,
    preempt,
)
from purelb.core.settings import EvictionLimit
from purelb_agent.kube.client import CONFLICT, NOT_FOUND, ApiError, Json, Kube
from purelb_agent.kube.events import Events, ObjectReference
from purelb_agent.kube.tables import Table
from purelb_agent.runtime import log
from purelb_agent.runtime.workqueue import WorkQueue

_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_TAINT = f"{names.SPOT_TAINT_KEY}={names.SPOT_TAINT_VALUE}:{names.SPOT_TAINT_EFFECT}"
# The Node that an event is about, and the event's own namespace and name.
_Key = tuple[str, str, str]


def _key(item: Json) -> _Key:
    meta = item["metadata"]
    return preempt_event_of(item).node, str(meta["namespace"]), str(meta["name"])


class EvictionTainter:
    """Taints the Nodes that eviction events name, one after the other."""

    def __init__(
        self, kube: Kube, events: Events, nodes: Table[str, NodeInfo], limit: EvictionLimit
    ) -> None:
        """`nodes` is another's table; it calls `nodes_changed`."""
        self.nodes = nodes
        self.preemptions: Table[_Key, PreemptEvent] = Table(
            preempt_event_of, _key, self._events_changed
        )
        self._kube = kube
        self._events = events
        self._limit = limit
        self._queue: WorkQueue[str] = WorkQueue(first_pause=_PAUSE, longest_pause=_LONGEST_PAUSE)
        # Version of each Node after the last write: an older one is no news.
        self._written: dict[str, str] = {}
        # Occurrence of the eviction event for which a failure was last reported, by Node.
        self._reported: dict[str, str] = {}
        # Nodes that are not tainted because others are.
        self._waiting: set[str] = set()

    def _events_changed(self, keys: set[_Key]) -> None:
        self.nodes_changed({node for node, _namespace, _name in keys})

    def nodes_changed(self, nodes: set[str]) -> None:
        """Look at these Nodes, and at those that wait for others."""
        for name in sorted(nodes | self._waiting):
            self._queue.add(name)

    async def run(self) -> None:
        """Taint until cancelled."""
        try:
            while True:
                name = await self._queue.get()
                await self._settle(name)
                self._queue.done(name)
        finally:
            self._queue.close()

    async def _settle(self, name: str) -> None:
        node = self.nodes.records.get(name)
        self._waiting.discard(name)
        if node is None:
            self._written.pop(name, None)
            self._forget_failure(name)
            return
        if self._is_outdated(node):
            return
        limit = self._limit.nodes(len(self.nodes.records))
        events = self.preemptions.records.values()
        decision = preempt(node, events, evicted=self._evicted(), limit=limit)
        if decision.reason is PreemptReason.TOO_MANY_EVICTED:
            self._wait(node, decision, limit)
            return
        if decision.patch is None:
            self._forget_failure(name)
            return
        try:
            body = await self._kube.request("PATCH", f"/api/v1/nodes/{name}", decision.patch)
        except ApiError as error:
            self._failed(node, decision, error)
            return
        self._written[name] = body["metadata"]["resourceVersion"]
        self._forget_failure(name)
        self._succeeded(node, decision)

    def _is_outdated(self, node: NodeInfo) -> bool:
        """Whether a Node is as it was before the last write."""
        return codec.is_older(node.version, self._written.get(node.name, ""))

    def _evicted(self) -> set[str]:
        """Return the Nodes with the taint, also those whose new state the watch has not brought."""
        nodes = self.nodes.records.values()
        return {node.name for node in nodes if is_evicted(node) or self._is_outdated(node)}

    def _wait(self, node: NodeInfo, decision: Preemption, limit: int) -> None:
        self._waiting.add(node.name)
        text = (
            f"An event {names.PREEMPT_EVENT_REASON} requests the taint {_TAINT}, but {limit} of "
            f"{len(self.nodes.records)} Nodes may have it at a time, and have it: this one waits. "
            "More are allowed by purelb_install_eviction_limit. "
            f"By hand: kubectl taint node {node.name} {_TAINT}"
        )
        if self._report_failure(node, decision, text):
            log.warning("evictionLimit", node=node.name, occurrence=decision.mark, limit=limit)

    def _report_failure(self, node: NodeInfo, decision: Preemption, text: str) -> bool:
        """Record an event, once for each occurrence; return whether it was the first time."""
        if decision.mark == self._reported.get(node.name):
            return False
        self._reported[node.name] = decision.mark
        about = ObjectReference("Node", node.name, uid=node.uid)
        self._events.record(about, "NodeDrainingFailed", text, kind="Warning")
        return True

    def _succeeded(self, node: NodeInfo, decision: Preemption) -> None:
        log.info(
            "nodeDraining", node=node.name, reason=decision.reason.value, occurrence=decision.mark
        )
        if decision.reason is PreemptReason.SPOT_EVICTION:
            message = (
                f"Added the taint {_TAINT} because of an event {names.PREEMPT_EVENT_REASON}: the "
                "addresses of this node go to others. To undo this remove the taint: "
                f"kubectl taint node {node.name} {names.SPOT_TAINT_KEY}-"
            )
            self._events.record(
                ObjectReference("Node", node.name, uid=node.uid), "NodeDraining", message
            )

    def _failed(self, node: NodeInfo, decision: Preemption, error: ApiError) -> None:
        if error.status == NOT_FOUND:
            return  # the watch brings the news that it is gone
        if error.status != CONFLICT:
            log.warning("writeFailed", node=node.name, occurrence=decision.mark, error=str(error))
        if _needs_report(decision, error):
            self._report_failure(node, decision, _refused(node, error))
        self._queue.retry(node.name)

    def _forget_failure(self, name: str) -> None:
        self._queue.forget(name)
        self._reported.pop(name, None)


def _needs_report(decision: Preemption, error: ApiError) -> bool:
    """Whether the API server refused a taint; while it is out of reach no event gets there."""
    is_refused = error.status not in (0, CONFLICT)
    return is_refused and decision.reason is PreemptReason.SPOT_EVICTION


def _refused(node: NodeInfo, error: ApiError) -> str:
    return (
        f"Could not add the taint {_TAINT}, which an event {names.PREEMPT_EVENT_REASON} requests, "
        f"and retries: {error}. "
        f"By hand: kubectl taint node {node.name} {_TAINT}"
    )
