# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Writes outcomes to Services.

Annotations and addresses go in one request, so no agent ever sees one without the other. Each write
names the version that was decided on, so one based on an outdated Service is a conflict.
"""

from __future__ import annotations

from typing import Any

from purelb.core.allocation.outcomes import Assignment, Remainder
from purelb.core.api import codec
from purelb.core.model import Address, Service
from purelb.core.names import FIELD_MANAGER
from purelb_agent.kube.client import Kube


class ServiceWriter:
    """Writes Services through the leader's client."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def assign(self, service: Service, assignment: Assignment) -> str:
        """Assign addresses to a Service; returns its new version."""
        version = service.version
        if assignment.sets_cluster:
            spec = {"externalTrafficPolicy": "Cluster"}
            version = await self._patch(service, "", version, {"spec": spec})
        annotations = codec.assignment_annotations(assignment)
        return await self._status(service, version, annotations, assignment.addresses)

    async def release(self, service: Service, own: tuple[Address, ...]) -> str:
        """Remove our addresses and annotations, none of others; returns the new version."""
        annotations = codec.assignment_annotations(None)
        if service.addresses == own and not service.other_ingress:
            return await self._status(service, service.version, annotations, ())
        body: dict[str, Any] = {"metadata": {"annotations": annotations}}
        if own:
            # Entries of others have fields that are not kept here.
            found = await self._kube.request("GET", _path(service))
            body["status"] = codec.ingress_without(found, own)
        return await self._patch(service, "/status", service.version, body)

    async def reduce(self, service: Service, left: Remainder) -> str:
        """Reduce a Service to what it keeps; returns its new version."""
        annotations = codec.remainder_annotations(left)
        return await self._status(service, service.version, annotations, left.addresses)

    async def _status(
        self,
        service: Service,
        version: str,
        annotations: dict[str, str | None],
        addresses: tuple[Address, ...],
    ) -> str:
        body = {
            "metadata": {"annotations": annotations},
            "status": codec.ingress_status(addresses),
        }
        return await self._patch(service, "/status", version, body)

    async def _patch(self, service: Service, part: str, version: str, body: dict[str, Any]) -> str:
        meta = {**body.get("metadata", {}), "resourceVersion": version}
        written = await self._kube.request(
            "PATCH",
            f"{_path(service)}{part}",
            {**body, "metadata": meta},
            params={"fieldManager": FIELD_MANAGER},
        )
        return str(written["metadata"]["resourceVersion"])


def _path(service: Service) -> str:
    return f"/api/v1/namespaces/{service.key.namespace}/services/{service.key.name}"
