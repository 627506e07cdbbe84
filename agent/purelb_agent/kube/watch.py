# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""List, then watch, for ever: keeps one kind of object in a store in step with the API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Protocol

from purelb_agent.kube.client import GONE, ApiError, Kube
from purelb_agent.runtime import clock, log

# Long back-off is what keeps a node blind after an outage; one request a second hurts nobody.
_RETRY_SECONDS = (0.5, 1.0)
# How long the server lets a watch run; spread so that nodes do not come back all at once.
_WATCH_SECONDS = (240, 480)
_PAGE = "500"


def _lightened(item: dict[str, Any]) -> dict[str, Any]:
    """The object without who wrote which field, half of it: lists are held whole for a moment."""
    item["metadata"].pop("managedFields", None)
    return item


class Sink(Protocol):
    """Where the objects of one kind go."""

    def replace(self, items: list[dict[str, Any]], *, asked_at: float) -> None:
        """Take these objects as all there were when the list was asked for."""

    def put(self, item: dict[str, Any]) -> None:
        """Take a new or changed object."""

    def drop(self, item: dict[str, Any]) -> None:
        """Forget a deleted object."""


class Watcher:
    """Feeds one sink from one collection, for example /api/v1/services."""

    def __init__(
        self, kube: Kube, path: str, sink: Sink, *, params: Mapping[str, str] | None = None
    ) -> None:
        self._kube = kube
        self._path = path
        self._sink = sink
        self._params = dict(params or {})
        self._version: str | None = None
        self._stream: asyncio.Task[None] | None = None
        self._is_refreshing = False
        self._failing = False
        self._listed_at = float("-inf")

    async def run(self) -> None:
        """Keep the sink in step until cancelled; failures are logged once for each outage."""
        while True:
            try:
                if self._version is None:
                    self._version = await self._list()
                self._stream = asyncio.create_task(self._follow(self._version))
                await self._stream
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._is_refreshing or (task is not None and task.cancelling()):
                    raise
                self._is_refreshing = False
            except ApiError as problem:
                self._failed(problem)
                # A version too old is no fault of the server: a list is to be had at once, but not
                # again and again.
                if problem.status == GONE and clock.now() > self._listed_at + _RETRY_SECONDS[1]:
                    continue
                await asyncio.sleep(random.uniform(*_RETRY_SECONDS))  # noqa: S311 - no secret

    def refresh(self) -> None:
        """List anew at once, over a new stream: what was heard so far is in doubt."""
        self._version = None
        if self._stream is not None and self._stream.cancel():
            self._is_refreshing = True

    def _failed(self, problem: ApiError) -> None:
        if problem.status == GONE:
            self._version = None
        if not self._failing:
            log.warning("watchFailed", path=self._path, error=str(problem))
        self._failing = True

    def _recovered(self) -> None:
        if self._failing:
            log.info("watchRecovered", path=self._path)
        self._failing = False

    async def _list(self) -> str:
        items: list[dict[str, Any]] = []
        self._listed_at = asked_at = clock.now()
        params = {**self._params, "limit": _PAGE}
        while True:
            page = await self._kube.request("GET", self._path, params=params)
            items += map(_lightened, page["items"])
            token = page["metadata"].get("continue")
            if not token:
                self._sink.replace(items, asked_at=asked_at)
                return str(page["metadata"]["resourceVersion"])
            params["continue"] = token

    async def _follow(self, version: str) -> None:
        params = {
            **self._params,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 - no secret
        }
        stream = self._kube.watch(self._path, params, on_open=self._recovered)
        async with aclosing(stream) as events:
            async for event in events:
                self._take(event["type"], event["object"])

    def _take(self, kind: str, item: dict[str, Any]) -> None:
        if kind == "ERROR":
            raise ApiError(int(item.get("code", 0)), str(item.get("message", item)))
        self._version = str(item["metadata"]["resourceVersion"])
        if kind == "DELETED":
            self._sink.drop(item)
        elif kind != "BOOKMARK":
            self._sink.put(item)
