# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The one task that writes the status of ServiceGroups, at most every half second for each.

Pools sets what each status should be; many changes become one write. Nothing waits for it.
"""

from __future__ import annotations

import asyncio

from purelb.core.allocation.group_status import merge_patch
from purelb.core.names import API_GROUP, API_VERSION
from purelb_agent.allocator.metrics import AllocatorMetrics
from purelb_agent.kube.client import NOT_FOUND, ApiError, Json, Kube
from purelb_agent.runtime import log
from purelb_agent.runtime.workqueue import WorkQueue

_PAUSE = 0.5
_RETRY = 2.0


class GroupStatus:
    """Brings the status of each group to what was last set for it."""

    def __init__(self, kube: Kube, metrics: AllocatorMetrics, *, namespace: str) -> None:
        self._kube = kube
        self._metrics = metrics
        self._path = f"/apis/{API_GROUP}/{API_VERSION}/namespaces/{namespace}/servicegroups"
        # Status in each object, as the watcher brought it or the last write returned it.
        self._known: dict[str, Json] = {}
        # Status to be written.
        self._wanted: dict[str, Json] = {}
        self._queue: WorkQueue[str] = WorkQueue(first_pause=_RETRY, longest_pause=_RETRY)

    def names(self) -> set[str]:
        """Return the names of all known groups."""
        return set(self._known)

    def known(self, name: str) -> Json:
        """Return the status that a group's object has now."""
        return self._known.get(name, {})

    def learn(self, name: str, status: Json | None) -> None:
        """Take the status in a group's object; None if the group is gone."""
        if status is None:
            self._known.pop(name, None)
            self._wanted.pop(name, None)
        else:
            self._known[name] = status

    def want(self, name: str, status: Json) -> None:
        """Set what a group's status should be."""
        if merge_patch(self.known(name), status):
            self._wanted[name] = status
            self._queue.add(name)
        else:
            self._wanted.pop(name, None)

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            while True:
                names = [await self._queue.get()]
                while (name := self._queue.take()) is not None:
                    names.append(name)
                for name in names:
                    await self._write(name)
                    self._queue.done(name)
                await asyncio.sleep(_PAUSE)
        finally:
            self._queue.close()

    async def _write(self, name: str) -> None:
        status = self._wanted.pop(name, None)
        patch = merge_patch(self.known(name), status) if status is not None else {}
        if status is None or not patch:
            return
        try:
            body = await self._kube.request(
                "PATCH", f"{self._path}/{name}/status", {"status": patch}
            )
        except ApiError as error:
            self._metrics.count_status_write(is_success=False)
            if error.status != NOT_FOUND:
                log.warning("statusNotWritten", group=name, error=str(error))
                self._retry(name, status)
            return
        self._metrics.count_status_write(is_success=True)
        if name in self._known:
            self._known[name] = body.get("status") or {}

    def _retry(self, name: str, status: Json) -> None:
        """Write a status again, unless a newer one is set by then or the group is gone."""
        if name in self._known:
            self._wanted.setdefault(name, status)
            self._queue.retry(name)
