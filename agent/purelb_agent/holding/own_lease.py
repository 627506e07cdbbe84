# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Reads, writes and deletes the node's own Lease; decides nothing.

A renewal is one request, which replaces the Lease as this process last wrote it; after one without
an answer, as the watch shows it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from purelb.core.api import codec
from purelb.core.model import Lease
from purelb.core.names import lease_name
from purelb_agent.kube.client import CONFLICT, NOT_FOUND, ApiError, Json, Kube
from purelb_agent.runtime import log

# Each attempt is three requests.
_DELETE_ATTEMPTS, _DELETE_SECONDS = 3, 7.0


@dataclass(frozen=True)
class Identity:
    """This agent: its node, the UID of its pod, and the namespace of the Leases."""

    node: str
    instance: str
    namespace: str


class OwnLease:
    """The Lease as this process last wrote it.

    Of two writes that are under way at once at most one takes effect, unless the other one has read
    the Lease again or the watch has shown it: each names the version that it replaces.
    """

    def __init__(self, kube: Kube, identity: Identity) -> None:
        self._kube = kube
        self._identity = identity
        self._body: Json | None = None
        # Whether the last write got no answer: it may have changed the version.
        self._is_unanswered = False
        self._node_uid = ""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{identity.namespace}/leases"
        self._collection, self._path = path, f"{path}/{lease_name(identity.node)}"

    async def write(self, lease: Lease, *, seconds: float, shown: Lease | None = None) -> None:
        """Create or replace the Lease; one changed by others is read and replaced.

        `shown`: what the watch has shown of it last. Each request may take so many seconds.
        """
        if not self._node_uid:
            path = f"/api/v1/nodes/{self._identity.node}"
            node = await self._kube.request("GET", path, seconds=seconds)
            self._node_uid = node["metadata"]["uid"]
        owned = replace(lease, node_uid=self._node_uid)
        wanted = codec.lease_body(owned, namespace=self._identity.namespace)
        known = self._body = self._body or await self.read(seconds)
        try:
            self._body = await self._replace(wanted, known, shown, seconds)
            self._is_unanswered = False
        except asyncio.CancelledError:
            self._is_unanswered = True
            raise
        except ApiError as error:
            self._is_unanswered = self._is_unanswered or not error.status
            if known is None or error.status not in (NOT_FOUND, CONFLICT):
                raise
            # A Node that was deleted and created again has another UID, and its Lease is gone.
            self._node_uid = ""
            self._body = await self.read(seconds)
            self._is_unanswered = False
            if not self._is_own(self._body):
                log.warning("leaseChangedByOthers", lease=lease_name(lease.node), error=str(error))
            await self.write(lease, shown=shown, seconds=seconds)

    def _is_own(self, body: Json | None) -> bool:
        """Whether this agent wrote it, by a request that it had no answer to."""
        lease = codec.lease_of(body) if body else None
        return lease is not None and lease.instance == self._identity.instance

    async def _replace(
        self, wanted: Json, known: Json | None, shown: Lease | None, seconds: float
    ) -> Json:
        if known is None:
            return await self._kube.request("POST", self._collection, wanted, seconds=seconds)
        # With the UID, a PUT of a deleted Lease fails: without it, the API server would create one
        # that belongs to a Node that is gone.
        for field in ("resourceVersion", "uid"):
            wanted["metadata"][field] = known["metadata"][field]
        if (
            self._is_unanswered
            and shown is not None
            and shown.instance == self._identity.instance
            and codec.is_older(known["metadata"]["resourceVersion"], shown.version)
        ):
            # To learn by a refusal that it was written would take as long as a write.
            wanted["metadata"]["resourceVersion"] = shown.version
        return await self._kube.request("PUT", self._path, wanted, seconds=seconds)

    async def read(self, seconds: float) -> Json | None:
        """Returns the Lease, or None if there is none; ApiError if the request fails."""
        try:
            return await self._kube.request("GET", self._path, seconds=seconds)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def delete(self) -> None:
        """Release and delete the Lease if this pod still holds it: peers take over at once.

        Without a holder it says that this node leaves; a Lease that others delete does not.
        """
        for _attempt in range(_DELETE_ATTEMPTS):
            try:
                deleted = await self._delete_once()
            except ApiError as error:
                # A renewal still in progress may have changed the Lease after it was read.
                if error.status == CONFLICT:
                    continue
                log.warning("leaseNotDeleted", error=str(error))
                return
            if deleted:
                log.info("leaseDeleted", lease=lease_name(self._identity.node))
            return

    async def _delete_once(self) -> bool:
        body = await self.read(_DELETE_SECONDS)
        if body is None or not self._is_own(body):
            return False
        body["spec"]["holderIdentity"] = ""
        body = await self._kube.request("PUT", self._path, body, seconds=_DELETE_SECONDS)
        meta = body["metadata"]
        this_version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": this_version}
        await self._kube.request("DELETE", self._path, options, seconds=_DELETE_SECONDS)
        return True
