# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The node's own Lease at the API server: written, looked for, deleted; never judged.

A renewal is one request, a replacement of the Lease as last seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from purelb.core.api import codec
from purelb.core.model import Lease
from purelb.core.names import lease_name
from purelb_agent.kube.client import CONFLICT, NOT_FOUND, ApiError, Kube
from purelb_agent.runtime import log

_DELETE_ATTEMPTS = 3


@dataclass(frozen=True)
class Identity:
    """Who this agent is: its node, its pod, and the namespace that holds the Leases."""

    node: str
    instance: str
    namespace: str


class OwnLease:
    """One Lease, as this process last wrote it. Each request gets `seconds`."""

    def __init__(self, kube: Kube, identity: Identity, *, seconds: float) -> None:
        self._kube = kube
        self._identity = identity
        self._seconds = seconds
        self._body: dict[str, Any] | None = None
        self._node_uid = ""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{identity.namespace}/leases"
        self._collection, self._path = path, f"{path}/{lease_name(identity.node)}"

    async def list_all(self) -> list[dict[str, Any]]:
        """All Leases of the namespace."""
        listed = await self._kube.request("GET", self._collection, seconds=self._seconds)
        items: list[dict[str, Any]] = listed["items"]
        return items

    async def write(self, lease: Lease) -> dict[str, Any]:
        """Replace the Lease, or create it; a Lease that somebody else changed is taken over."""
        if not self._node_uid:
            path = f"/api/v1/nodes/{self._identity.node}"
            node = await self._kube.request("GET", path, seconds=self._seconds)
            self._node_uid = node["metadata"]["uid"]
        owned = replace(lease, node_uid=self._node_uid)
        wanted = codec.lease_body(owned, namespace=self._identity.namespace)
        if self._body is None:
            self._body = await self.read(self._seconds)
        try:
            self._body = await self._replace(wanted, self._body)
        except ApiError as problem:
            if self._body is None or problem.status not in (NOT_FOUND, CONFLICT):
                raise
            log.warning("leaseChangedByOthers", lease=lease_name(lease.node), error=str(problem))
            # A Node that was deleted and came back has another UID, and took the Lease with it.
            self._body, self._node_uid = None, ""
            return await self.write(lease)
        return self._body

    async def _replace(
        self, wanted: dict[str, Any], known: dict[str, Any] | None
    ) -> dict[str, Any]:
        if known is None:
            return await self._kube.request("POST", self._collection, wanted, seconds=self._seconds)
        # The UID too: the API server would create a Lease that is gone, for a Node that is gone.
        for field in ("resourceVersion", "uid"):
            wanted["metadata"][field] = known["metadata"][field]
        return await self._kube.request("PUT", self._path, wanted, seconds=self._seconds)

    async def read(self, seconds: float) -> dict[str, Any] | None:
        """The Lease as it is, or None; ApiError if that cannot be known in time."""
        try:
            return await self._kube.request("GET", self._path, seconds=seconds)
        except ApiError as problem:
            if problem.status == NOT_FOUND:
                return None
            raise

    async def delete(self) -> None:
        """Delete the Lease if it is still this pod's, so that peers take over at once."""
        for _attempt in range(_DELETE_ATTEMPTS):
            try:
                deleted = await self._delete_once()
            except ApiError as problem:
                # A renewal that was under way may still land in between.
                if problem.status == CONFLICT:
                    continue
                log.warning("leaseNotDeleted", error=str(problem))
                return
            if deleted:
                log.info("leaseDeleted", lease=lease_name(self._identity.node))
            return

    async def _delete_once(self) -> bool:
        body = await self.read(self._seconds)
        lease = codec.lease_of(body) if body else None
        if body is None or lease is None or lease.instance != self._identity.instance:
            return False
        meta = body["metadata"]
        exactly = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": exactly}
        await self._kube.request("DELETE", self._path, options, seconds=self._seconds)
        return True
