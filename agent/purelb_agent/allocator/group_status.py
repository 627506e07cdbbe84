# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The one task that writes the status of ServiceGroups, at most every so often for each of them.

What it is to say is set by who allocates; many changes become one write. Nothing waits for it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from purelb.core.allocation.group_status import merge_patch
from purelb.core.names import API_GROUP, API_VERSION
from purelb_agent.allocator.metrics import AllocatorMetrics
from purelb_agent.kube.client import NOT_FOUND, ApiError, Kube
from purelb_agent.runtime import log

_PAUSE = 0.5
_RETRY = 2.0
Json = dict[str, Any]


class GroupStatus:
    """Brings the status of each group to what was last set for it."""

    def __init__(self, kube: Kube, metrics: AllocatorMetrics, *, namespace: str) -> None:
        self._kube = kube
        self._metrics = metrics
        self._path = f"/apis/{API_GROUP}/{API_VERSION}/namespaces/{namespace}/servicegroups"
        # What the objects say, as their watcher brought it or the last write answered.
        self._known: dict[str, Json] = {}
        self._wanted: dict[str, Json] = {}
        self._work = asyncio.Event()

    def names(self) -> set[str]:
        """Groups that are known."""
        return set(self._known)

    def known(self, name: str) -> Json:
        """The status of a group now."""
        return self._known.get(name, {})

    def learn(self, name: str, status: Json | None) -> None:
        """Take what an object says; None if it is gone."""
        if status is None:
            self._known.pop(name, None)
            self._wanted.pop(name, None)
        else:
            self._known[name] = status

    def want(self, name: str, status: Json) -> None:
        """Set what a group's status is to be."""
        if merge_patch(self.known(name), status):
            self._wanted[name] = status
            self._work.set()
        else:
            self._wanted.pop(name, None)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            for name in tuple(self._wanted):
                # While one was written, another may have come to be as it should.
                status = self._wanted.pop(name, None)
                if status is not None:
                    await self._write(name, status)
            await asyncio.sleep(_PAUSE)

    async def _write(self, name: str, status: Json) -> None:
        patch = merge_patch(self.known(name), status)
        if not patch:
            return
        try:
            body = await self._kube.request(
                "PATCH", f"{self._path}/{name}/status", {"status": patch}
            )
        except ApiError as problem:
            self._metrics.count_status_write(is_success=False)
            if problem.status != NOT_FOUND:
                log.warning("statusNotWritten", group=name, error=str(problem))
                loop = asyncio.get_running_loop()
                loop.call_later(_RETRY, self._again, name, status)
            return
        self._metrics.count_status_write(is_success=True)
        self._known[name] = body.get("status") or {}

    def _again(self, name: str, status: Json) -> None:
        """Try once more, unless something newer is to be written or the group is gone."""
        if name in self._known and name not in self._wanted:
            self.want(name, status)
