# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The one task that turns events of a coming eviction into taints on Nodes.

It decides nothing: `core.draining.preempt` does. A write that fails or conflicts is tried again on
the Node as it is then. Taints go first; what an operator is told never delays one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from purelb.core import names
from purelb.core.api import codec
from purelb.core.api.nodes import preempt_event_of
from purelb.core.election.draining import NodeInfo, PreemptEvent, Preemption, PreemptReason, preempt
from purelb_agent.kube.client import CONFLICT, NOT_FOUND, ApiError, Json, Kube
from purelb_agent.kube.events import Events, ObjectReference
from purelb_agent.kube.tables import Table, node_table
from purelb_agent.runtime import log

_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_TAINT = f"{names.SPOT_TAINT_KEY}={names.SPOT_TAINT_VALUE}:{names.SPOT_TAINT_EFFECT}"
# The Node that an event is about, and the event's own namespace and name.
_Key = tuple[str, str, str]


def _key(item: Json) -> _Key:
    meta = item["metadata"]
    return preempt_event_of(item).node, str(meta["namespace"]), str(meta["name"])


@dataclass(frozen=True)
class _Failure:
    """A Node that could not be written. `told` is the occurrence that an operator knows of."""

    pause: float
    retry: asyncio.TimerHandle
    told: str


class EvictionTainter:
    """Taints the Nodes that such events name, one after the other."""

    def __init__(self, kube: Kube, events: Events) -> None:
        self.nodes = node_table(self._look_at)
        self.preemptions: Table[_Key, PreemptEvent] = Table(preempt_event_of, _key, self._heard)
        self._kube = kube
        self._events = events
        # A dictionary, for its order.
        self._queue: dict[str, None] = {}
        # Version of each Node after the last write: what is older says nothing new.
        self._written: dict[str, str] = {}
        self._failures: dict[str, _Failure] = {}
        self._work = asyncio.Event()

    def _heard(self, keys: set[_Key]) -> None:
        self._look_at({node for node, _namespace, _name in keys})

    def _look_at(self, nodes: set[str]) -> None:
        self._queue.update(dict.fromkeys(sorted(nodes)))
        self._work.set()

    async def run(self) -> None:
        """Taint until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._queue:
                name = next(iter(self._queue))
                del self._queue[name]
                await self._settle(name)

    async def _settle(self, name: str) -> None:
        node = self.nodes.records.get(name)
        if node is None:
            self._written.pop(name, None)
            self._forget_failure(name)
            return
        if codec.is_older(node.version, self._written.get(name, "")):
            return
        decision = preempt(node, self.preemptions.records.values())
        if decision.patch is None:
            self._forget_failure(name)
            return
        try:
            body = await self._kube.request("PATCH", f"/api/v1/nodes/{name}", decision.patch)
        except ApiError as problem:
            self._failed(node, decision, problem)
            return
        self._written[name] = body["metadata"]["resourceVersion"]
        self._forget_failure(name)
        self._succeeded(node, decision)

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

    def _failed(self, node: NodeInfo, decision: Preemption, problem: ApiError) -> None:
        if problem.status == NOT_FOUND:
            return  # the watch brings the news that it is gone
        known = self._failures.get(node.name)
        told = known.told if known else ""
        if problem.status != CONFLICT:
            log.warning("writeFailed", node=node.name, occurrence=decision.mark, error=str(problem))
        if _is_worth_telling(decision, problem) and decision.mark != told:
            told = decision.mark
            about = ObjectReference("Node", node.name, uid=node.uid)
            text = _refused(node, problem)
            self._events.record(about, "NodeDrainingFailed", text, kind="Warning")
        self._forget_failure(node.name)
        pause = min(known.pause * 2, _LONGEST_PAUSE) if known else _PAUSE
        loop = asyncio.get_running_loop()
        retry = loop.call_later(pause, self._look_at, {node.name})
        self._failures[node.name] = _Failure(pause, retry, told)

    def _forget_failure(self, name: str) -> None:
        failure = self._failures.pop(name, None)
        if failure is not None:
            failure.retry.cancel()


def _is_worth_telling(decision: Preemption, problem: ApiError) -> bool:
    """Only words of the API server: while it is out of reach no event gets there either."""
    is_refused = problem.status not in (0, CONFLICT)
    return is_refused and decision.reason is PreemptReason.SPOT_EVICTION


def _refused(node: NodeInfo, problem: ApiError) -> str:
    return (
        f"Could not add the taint {_TAINT}, which an event {names.PREEMPT_EVENT_REASON} asks for, "
        f"and goes on trying: {problem}. "
        f"By hand: kubectl taint node {node.name} {_TAINT}"
    )
