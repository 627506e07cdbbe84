# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes events: what an operator reads in `kubectl describe`.

Events are told at once and sent by a task of their own at a bounded rate, so that nothing waits for
them and no storm of them reaches the API server.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from purelb.core.times import format_time
from purelb_agent.kube.client import ApiError, Kube
from purelb_agent.runtime import clock, log

_API_VERSIONS = {
    "Service": "v1",
    "Node": "v1",
    "ServiceGroup": "purelb.io/v2",
    "LBNodeAgent": "purelb.io/v2",
    "Lease": "coordination.k8s.io/v1",
}
# Events about what is in no namespace are kept in this one, as those of the kubelet are.
_OF_CLUSTER = "default"
_PER_SECOND = 20
# All that is ever told, each explained in docs/operate.md.
EventReason = Literal[
    "AddressAssigned",
    "AddressConflict",
    "AddressOutsidePool",
    "AddressesDrained",
    "AddressesNotDrained",
    "AddressesRestored",
    "AllocationFailed",
    "AnnouncingLocal",
    "AnnouncingNonLocal",
    "ExternalTrafficPolicyChanged",
    "InvalidConfiguration",
    "InvalidSpec",
    "LeaderElected",
    "MultiPoolPartial",
    "NoEligibleNodes",
    "NodeDraining",
    "NodeDrainingFailed",
    "OutageHeld",
    "PoolOverlaps",
    "Unreachable",
    "Withdrawn",
]
# What nobody could send for so long is old news.
_WAITING = 1000


@dataclass(frozen=True)
class ObjectReference:
    """The object that an event is about; a Node has no namespace."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class Events:
    """Sends events in the name of one program; an event that cannot be sent is only logged."""

    def __init__(self, kube: Kube, *, component: str, instance: str) -> None:
        self._kube = kube
        self._component = component
        self._instance = instance
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_WAITING)
        self._work = asyncio.Event()

    def record(
        self, about: ObjectReference, reason: EventReason, message: str, *, kind: str = "Normal"
    ) -> None:
        """Leave an event to be sent; its time is now."""
        moment = format_time(clock.wall_time())
        namespace = about.namespace or _OF_CLUSTER
        names = {"name": about.name, "namespace": about.namespace, "uid": about.uid}
        self._waiting.append(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {
                    "name": f"{about.name}.{secrets.token_hex(8)}",
                    "namespace": namespace,
                },
                "involvedObject": {
                    "kind": about.kind,
                    "apiVersion": _API_VERSIONS[about.kind],
                    **{name: text for name, text in names.items() if text},
                },
                "reason": reason,
                "message": message,
                "type": kind,
                "action": reason,
                "source": {"component": self._component, "host": self._instance},
                "reportingComponent": f"purelb.io/{self._component}",
                "reportingInstance": self._instance,
                "firstTimestamp": moment[:19] + "Z",
                "lastTimestamp": moment[:19] + "Z",
                "eventTime": moment,
                "count": 1,
            }
        )
        self._work.set()

    async def run(self) -> None:
        """Send what was told until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                await self._send(self._waiting.popleft())
                await asyncio.sleep(1 / _PER_SECOND)

    async def _send(self, body: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
        try:
            await self._kube.request("POST", path, body)
        except ApiError as problem:
            log.debug("eventNotSent", reason=body["reason"], error=str(problem))
