# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes events, as shown by `kubectl describe`.

Events are queued at once and sent by a separate task at a limited rate, so that callers never wait
and the API server is never flooded.
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
from purelb_agent.runtime.wakeup import Wakeup

_API_VERSIONS = {
    "Service": "v1",
    "Node": "v1",
    "ServiceGroup": "purelb.io/v2",
    "LBNodeAgent": "purelb.io/v2",
    "Lease": "coordination.k8s.io/v1",
}
# Namespace of events about cluster-scoped objects; the kubelet uses the same.
CLUSTER_NAMESPACE = "default"
_PER_SECOND = 20
# Every reason in use, each explained in docs/operate.md.
EventReason = Literal[
    "AddressAssigned",
    "AddressConflict",
    "AddressOutsidePool",
    "AddressReleased",
    "AddressSetAside",
    "AddressesDrained",
    "AddressesNotDrained",
    "AddressesRestored",
    "AllocationFailed",
    "AmbiguousInterface",
    "AmbiguousNamespaceDefault",
    "AnnouncingLocal",
    "AnnouncingNonLocal",
    "ExternalTrafficPolicyChanged",
    "InvalidConfiguration",
    "InvalidSpec",
    "LeaderElected",
    "MultiPoolPartial",
    "NoEligibleNodes",
    "NodeAddressMistaken",
    "NodeDraining",
    "NodeDrainingFailed",
    "OutageHeld",
    "PoolOverlaps",
    "ServiceDisputed",
    "FenceIncomplete",
    "ServiceProxyDown",
    "SubnetDeprecated",
    "Unreachable",
    "Withdrawn",
]
# Length of the queue; beyond it, the oldest events are dropped.
_MAX_QUEUED = 1000
# Bytes of a message in UTF-8. The API server rejects an event with a longer one.
_LONGEST = 1024
_ELLIPSIS = "…"


@dataclass(frozen=True)
class ObjectReference:
    """The object that an event is about; `namespace` is empty for a cluster-scoped object."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


def _shortened(message: str) -> str:
    """Returns the message, cut to the length that the API server accepts."""
    # JSON from the API may contain an unpaired surrogate, which UTF-8 cannot encode.
    encoded = message.encode(errors="replace")
    if len(encoded) <= _LONGEST:
        return encoded.decode()
    return encoded[: _LONGEST - len(_ELLIPSIS.encode())].decode(errors="ignore") + _ELLIPSIS


class Events:
    """Sends the events of one program; an event that cannot be sent is logged and dropped."""

    def __init__(self, kube: Kube, *, component: str, instance: str) -> None:
        self._kube = kube
        self._component = component
        self._instance = instance
        self._queue: deque[dict[str, Any]] = deque(maxlen=_MAX_QUEUED)
        self._wakeup = Wakeup()

    def record(
        self, about: ObjectReference, reason: EventReason, message: str, *, kind: str = "Normal"
    ) -> None:
        """Queue an event, with the current time."""
        timestamp = format_time(clock.wall_time())
        namespace = about.namespace or CLUSTER_NAMESPACE
        names = {"name": about.name, "namespace": about.namespace, "uid": about.uid}
        self._queue.append(
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
                "message": _shortened(message),
                "type": kind,
                "action": reason,
                "source": {"component": self._component, "host": self._instance},
                "reportingComponent": f"purelb.io/{self._component}",
                "reportingInstance": self._instance,
                "firstTimestamp": timestamp[:19] + "Z",
                "lastTimestamp": timestamp[:19] + "Z",
                "eventTime": timestamp,
                "count": 1,
            }
        )
        self._wakeup.notify()

    async def run(self) -> None:
        """Send queued events until cancelled."""
        while True:
            await self._wakeup.wait()
            while self._queue:
                await self._send(self._queue.popleft())
                await asyncio.sleep(1 / _PER_SECOND)

    async def _send(self, body: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
        try:
            await self._kube.request("POST", path, body)
        except ApiError as error:
            log.debug("eventNotSent", reason=body["reason"], error=str(error))
