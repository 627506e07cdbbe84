# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""An API server without a network: the methods of `purelb_agent.kube.client.Kube`.

How to use it:

    api = FakeApi()
    api.answer("GET", "/api/v1/services", {"items": [], "metadata": {"resourceVersion": "1"}})
    api.answer("PATCH", LEASE, ApiError(409, "modified"), times=1)  # then the answer before it
    api.answer("POST", EVENTS, lambda request: request.body)
    api.hang("PATCH", LEASE)        # answers nothing until api.resume("PATCH", LEASE)
    api.send("/api/v1/services", {"type": "ADDED", "object": {}})
    api.end_watch("/api/v1/services", ApiError(410, "too old"))
    api.silence("/api/v1/services")  # what is watched shows no change more, and does not end

`api.requests` has every request in the order in which they came, with its time and outcome. A
request that hangs ends after its `seconds` with ApiError(0), as the real client's does. A request
without a prepared answer is an AssertionError; or else the simulation's model of the API server
answers it, with all that it stores:

    api = FakeApi(ApiServer())
    api.put("/api/v1/services", service_object())
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from purelb_agent.kube.client import ApiError, Json
from purelb_agent.runtime import clock
from simulation.api import server as model
from simulation.api.objects import Key, field_selector


@dataclass
class Request:
    """A client's request and its outcome."""

    method: str
    path: str
    body: Any
    params: dict[str, str]
    at: float
    seconds: float | None = None
    """The client's timeout; None for a watch."""
    outcome: str = "pending"
    """'pending', 'answered', 'refused' (ApiError), or 'cancelled' by the client."""


Answer = Json | ApiError | Callable[[Request], Json]


@dataclass
class _Prepared:
    answer: Answer
    left: float


@dataclass
class _Route:
    """What is prepared for one method and path; the newest answer that is left goes first."""

    prepared: list[_Prepared] = field(default_factory=list)
    running: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.running.set()

    def take(self, request: Request) -> Json:
        if not self.prepared:
            raise AssertionError(f"no answer is prepared for {request.method} {request.path}")
        newest = self.prepared[-1]
        newest.left -= 1
        if newest.left <= 0:
            self.prepared.pop()
        if isinstance(newest.answer, ApiError):
            raise ApiError(newest.answer.status, str(newest.answer))
        return newest.answer(request) if callable(newest.answer) else newest.answer


class FakeApi:
    """Returns prepared answers, or else those of a model, and records every request."""

    def __init__(self, server: model.ApiServer | None = None) -> None:
        self.server = server
        self.requests: list[Request] = []
        self._routes: defaultdict[tuple[str, str], _Route] = defaultdict(_Route)
        self._news: defaultdict[str, list[asyncio.Queue[Any]]] = defaultdict(list)
        self._watched: defaultdict[str, list[model.Watch]] = defaultdict(list)

    def answer(
        self, method: str, path: str, answer: Answer, *, times: float = float("inf")
    ) -> None:
        """Prepare the answer to all requests or the next `times`; older answers follow."""
        self._routes[method, path].prepared.append(_Prepared(answer, times))

    def hang(self, method: str, path: str) -> None:
        """Keep requests without an answer, until `resume`."""
        self._routes[method, path].running.clear()

    def resume(self, method: str, path: str) -> None:
        """Answer what hangs, and what comes."""
        self._routes[method, path].running.set()

    def sent(self, method: str, path: str | None = None) -> list[Request]:
        """The requests with this method, to this path or to any."""
        return [r for r in self.requests if r.method == method and path in (None, r.path)]

    @property
    def under_way(self) -> int:
        """How many requests and watches have no outcome yet."""
        return sum(request.outcome == "pending" for request in self.requests)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        seconds: float = 10.0,
    ) -> Json:
        """As `Kube.request`."""
        request = Request(method, path, body, dict(params or {}), clock.now(), seconds)
        self.requests.append(request)
        route = self._routes[method, path]
        try:
            # A real request is suspended at least once.
            await asyncio.sleep(0)
            async with asyncio.timeout(seconds):
                await route.running.wait()
            answer = self._answer(route, request)
        except TimeoutError as error:
            request.outcome = "refused"
            raise ApiError(0, f"{method} {path}: no answer within {seconds:g} s") from error
        except ApiError:
            request.outcome = "refused"
            raise
        except asyncio.CancelledError:
            request.outcome = "cancelled"
            raise
        request.outcome = "answered"
        return answer

    async def watch(
        self, path: str, params: Mapping[str, str], *, on_open: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[Json, None]:
        """As `Kube.watch`; opens unless `answer("WATCH", ...)` refuses or `hang` keeps it."""
        request = Request("WATCH", path, None, dict(params), clock.now())
        self.requests.append(request)
        route = self._routes["WATCH", path]
        news: asyncio.Queue[Any] = asyncio.Queue()
        watched = None
        try:
            await asyncio.sleep(0)
            await route.running.wait()
            if route.prepared:
                route.take(request)
            elif self.server is not None:
                watched = self._follow(self.server, request, news)
            self._news[path].append(news)
            await on_open()
            while (event := await news.get()) is not None:
                if isinstance(event, ApiError):
                    raise event
                yield event
            request.outcome = "answered"
        except ApiError:
            request.outcome = "refused"
            raise
        finally:
            if request.outcome == "pending":
                request.outcome = "cancelled"
            if self.server is not None and watched is not None:
                self.server.forget(watched)
                self._watched[path].remove(watched)
            if news in self._news[path]:
                self._news[path].remove(news)

    def put(self, kind: str, body: Json) -> None:
        """Store an object of a kind, for example `/api/v1/services`, in the model."""
        if self.server is None:
            raise AssertionError("there is no model to store it")
        meta = body["metadata"]
        meta.setdefault("uid", self.server.objects.next_uid())
        self.server.objects.put(Key(kind, meta.get("namespace", ""), meta["name"]), body)

    def find(self, path: str) -> Json | None:
        """Return an object of the model as it is now, or None."""
        if self.server is None:
            raise AssertionError("there is no model that stores it")
        stored = self.server.objects.find(model.target_of(path).key)
        return None if stored is None else stored.body

    def _answer(self, route: _Route, request: Request) -> Json:
        if route.prepared or self.server is None:
            return route.take(request)
        body = b"" if request.body is None else json.dumps(request.body).encode()
        status, text = self.server.answer(
            model.Request("test", request.method, request.path, request.params, body)
        )
        answer: Json = json.loads(text)
        if status >= model.FORBIDDEN:
            raise ApiError(status, answer["message"])
        return answer

    def _follow(
        self, server: model.ApiServer, request: Request, news: asyncio.Queue[Any]
    ) -> model.Watch:
        target = model.target_of(request.path)
        watch = model.Watch(
            target.kind,
            target.namespace,
            field_selector(request.params.get("fieldSelector", "")),
            lambda line: news.put_nowait(json.loads(line)),
        )
        try:
            missed = server.watch(model.Request("test", "GET", request.path, request.params), watch)
        except model.RefusedError as error:
            raise ApiError(error.status, str(error)) from error
        for line in missed:
            watch.tell(line)
        self._watched[request.path].append(watch)
        return watch

    def silence(self, path: str) -> None:
        """Show no change of the model to the watches of this path that are open; later ones do."""
        for watch in self._watched[path]:
            watch.tell = lambda _line: None

    def send(self, path: str, event: Json) -> None:
        """Send an event to every open watch of this path."""
        self._put(path, event)

    def end_watch(self, path: str, error: ApiError | None = None) -> None:
        """End every open watch of this path, as a server does or with an error."""
        self._put(path, error)

    def _put(self, path: str, what: Any) -> None:
        if not self._news[path]:
            raise AssertionError(f"no watch of {path} is open")
        for news in self._news[path]:
            news.put_nowait(what)
