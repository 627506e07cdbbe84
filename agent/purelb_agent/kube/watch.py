# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""List, then watch: keeps a table of one kind of object in step with the API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import Protocol

from purelb.core.api.codec import is_older
from purelb_agent.kube.client import GONE, ApiError, Json, Kube
from purelb_agent.runtime import clock, log

# Short, as a long backoff would delay the first list after an outage, and constant: one request
# per second is a negligible load.
_RETRY_SECONDS = (0.5, 1.0)
# Time limit of a watch, chosen at random so that the nodes do not reconnect at the same time. The
# server keeps it, so a watch that lasts longer is of a server that is stopped, or gone behind
# a proxy that keeps the connection. Nothing else is promised: bookmarks may come at any interval.
_WATCH_SECONDS = (60, 110)
# How much later the end may come, and how much earlier it is none of another cause.
_END_SECONDS, _END_EARLY = 10.0, 1.0
_PAGE = "500"
# After an outage of this length a list is needed in any case: an older store that was put back may
# have come as far as the former one by then, so the versions tell nothing.
_LONG_OUTAGE = 10.0
_SERVER_FAILED = 500
# Spreads what many nodes would do at the same time.
CHANCE = random.Random()  # noqa: S311 - no secret


def _smaller(item: Json) -> Json:
    """Returns the object with no more of managedFields than the last time in them.

    They are half of a list, which is held whole.
    """
    managed = item["metadata"].pop("managedFields", ())
    times = [entry["time"] for entry in managed if entry.get("time")]
    if times:
        item["metadata"]["managedFields"] = [{"time": max(times)}]
    return item


class Sink(Protocol):
    """Receives the objects of one kind."""

    def replace(self, items: list[Json], *, asked_at: float) -> None:
        """Replace everything by a complete list, which was requested at `asked_at`."""

    def put(self, item: Json) -> None:
        """Add or replace an object."""

    def drop(self, item: Json) -> None:
        """Remove a deleted object."""


class Watcher:
    """Feeds one sink with the objects of one collection, for example /api/v1/services."""

    def __init__(
        self,
        kube: Kube,
        path: str,
        sink: Sink,
        *,
        params: Mapping[str, str] | None = None,
        chance: random.Random = CHANCE,
    ) -> None:
        self._kube = kube
        self._chance = chance
        self._path = path
        self._sink = sink
        self._params = dict(params or {})
        self._version: str | None = None
        self._stream: asyncio.Task[None] | None = None
        self._is_refreshing = False
        self._failing_since: float | None = None
        # Whether the server may have another store now than that of the known version.
        self._is_in_doubt = False
        self._listed_at = float("-inf")

    async def run(self) -> None:
        """List and watch until cancelled; failures are logged once per outage."""
        while True:
            try:
                if self._version is None:
                    self._version = await self._list()
                    self._is_in_doubt = False
                self._stream = asyncio.create_task(self._follow(self._version))
                await self._stream
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._is_refreshing or (task is not None and task.cancelling()):
                    raise
                self._is_refreshing = False
            except ApiError as error:
                self._failed(error)
                # The resource version expired: list again at once, but at most once per second.
                if error.status == GONE and clock.now() > self._listed_at + _RETRY_SECONDS[1]:
                    continue
                await asyncio.sleep(self._chance.uniform(*_RETRY_SECONDS))

    def refresh(self) -> None:
        """List again at once and open a new stream: the current one may have stalled."""
        self._version = None
        if self._stream is not None and self._stream.cancel():
            self._is_refreshing = True

    def _failed(self, error: ApiError) -> None:
        if error.status == GONE:
            self._version = None
        elif not 0 < error.status < _SERVER_FAILED:
            self._is_in_doubt = True
        if self._failing_since is None:
            log.warning("watchFailed", path=self._path, error=str(error))
            self._failing_since = clock.now()

    async def _accepted(self, version: str) -> None:
        """Take note that a watch is open; ApiError if a list is needed nevertheless.

        The server accepts a version of the future, and says nothing until that is reached. After a
        restore the known version is one, and what was known is no more.
        """
        if self._is_in_doubt:
            since = self._failing_since
            if since is not None and clock.now() > since + _LONG_OUTAGE:
                raise ApiError(GONE, "too much may have happened meanwhile")
            if await self._is_future(version):
                raise ApiError(GONE, "an older store has been put back")
        self._is_in_doubt = False
        if self._failing_since is not None:
            log.info("watchRecovered", path=self._path)
        self._failing_since = None

    async def _is_future(self, version: str) -> bool:
        """Ask the store itself, by a list without a version; of its objects one is enough."""
        params = {**self._params, "limit": "1"}
        page = await self._kube.request("GET", self._path, params=params)
        return is_older(str(page["metadata"]["resourceVersion"]), version)

    async def _list(self) -> str:
        items: list[Json] = []
        self._listed_at = asked_at = clock.now()
        params = {**self._params, "limit": _PAGE}
        while True:
            page = await self._kube.request("GET", self._path, params=params)
            items += map(_smaller, page["items"])
            token = page["metadata"].get("continue")
            if not token:
                self._sink.replace(items, asked_at=asked_at)
                return str(page["metadata"]["resourceVersion"])
            params["continue"] = token

    async def _follow(self, version: str) -> None:
        limit = self._chance.randint(*_WATCH_SECONDS)
        params = {
            **self._params,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(limit),
        }
        accepted = partial(self._accepted, version)
        began_at, stream = clock.now(), self._kube.watch(self._path, params, on_open=accepted)
        try:
            async with asyncio.timeout(limit + _END_SECONDS), aclosing(stream) as events:
                async for event in events:
                    self._take(event["type"], event["object"])
        except TimeoutError as error:
            # For how long it was silent is not known.
            self._version = None
            raise ApiError(0, f"the watch should have ended after {limit} s") from error
        # The server was stopped, or has lost its own watch of the store.
        self._is_in_doubt = clock.now() < began_at + limit - _END_EARLY

    def _take(self, kind: str, item: Json) -> None:
        if kind == "ERROR":
            raise ApiError(int(item.get("code", 0)), str(item.get("message", item)))
        self._version = str(item["metadata"]["resourceVersion"])
        if kind == "DELETED":
            self._sink.drop(item)
        elif kind != "BOOKMARK":
            self._sink.put(item)
