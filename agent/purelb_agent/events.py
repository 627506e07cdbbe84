# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes events: what an operator reads in `kubectl describe`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.codec import (
    format_micro_time,
)

from . import clock, log
from .kube import ApiError, Kube

API_VERSIONS = {
    "Service": "v1",
    "ServiceGroup": "purelb.io/v2",
    "LBNodeAgent": "purelb.io/v2",
    "Node": "v1",
}
# Where the API server takes events about objects that have no namespace.
_CLUSTER_NAMESPACE = "default"


class Events:
    """Sends events in the name of one program; an event that cannot be sent is only logged."""

    def __init__(self, kube: Kube, *, component: str, instance: str) -> None:
        self._kube = kube
        self._component = component
        self._instance = instance

    async def send(
        self, about: Mapping[str, str], *, uid: str, reason: str, message: str, kind: str = "Normal"
    ) -> None:
        """Send one event about an object given by kind, name and, where it has one, namespace."""
        moment = format_micro_time(clock.wall_time())
        namespace = about.get("namespace", _CLUSTER_NAMESPACE)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about['name']}.{secrets.token_hex(8)}", "namespace": namespace},
            "involvedObject": {**about, "uid": uid, "apiVersion": API_VERSIONS[about["kind"]]},
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
        try:
            await self._kube.request("POST", f"/api/v1/namespaces/{namespace}/events", body)
        except ApiError as problem:
            log.debug("eventNotSent", reason=reason, error=str(problem))
