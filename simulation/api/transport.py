# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The way between a process and the API server: it takes time, in both directions.

It stands in for `purelb_agent.kube.http`. A request takes effect when it arrives, whatever becomes
of its sender; the answer finds the sender if that still waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from purelb_agent.kube.client import Body
from simulation.api.objects import field_selector
from simulation.api.server import ApiServer, RefusedError, Request, Watch, status_text, target_of
from simulation.time.process import Process
from simulation.time.timeline import Timeline, microseconds

# Returns how many seconds the next message takes.
Delay = Callable[[], float]


@dataclass(frozen=True)
class Wire:
    """How long requests, answers and events of watches are on their way."""

    request: Delay
    answer: Delay
    event: Delay


class _Answer:
    """A whole answer; see `purelb_agent.kube.client.Response`."""

    def __init__(self, status: int, text: bytes) -> None:
        self.status = status
        self._text = text

    async def read(self) -> bytes:
        return self._text

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._text


class _Stream:
    """The answer to a watch: lines that come until the server or the client ends it."""

    status = 200

    def __init__(self) -> None:
        self._lines: deque[bytes | None] = deque()
        self._news = asyncio.Event()

    def put(self, line: bytes | None) -> None:
        """Take a line as it arrives; None is the end."""
        self._lines.append(line)
        self._news.set()

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._lines:
                line = self._lines.popleft()
                if line is None:
                    return
                yield line


class ApiTransport:
    """Carries the requests of one process; see `purelb_agent.kube.client.Transport`."""

    def __init__(self, server: ApiServer, process: Process, wire: Wire, *, user: str) -> None:
        self._server = server
        self._process = process
        self._wire = wire
        self._user = user
        self._timeline: Timeline = process.machine.timeline

    async def open(self) -> None:
        """Nothing is kept open."""

    async def close(self) -> None:
        """Nothing is kept open."""

    @asynccontextmanager
    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],  # noqa: ARG002 - the token is that of the user
        body: Body = None,
        connect: float | None = None,  # noqa: ARG002 - connections are made at once
    ) -> AsyncIterator[_Answer | _Stream]:
        """Send a request; see `purelb_agent.kube.client.Transport.send`."""
        # A body that is made on the open connection is made before anything is sent.
        text = body if isinstance(body, bytes) else b""
        if body is not None and not isinstance(body, bytes):
            text = b"".join([part async for part in body])
        request = Request(self._user, method, path, params or {}, text)
        if request.params.get("watch"):
            async with self._watching(request) as stream:
                yield stream
        else:
            yield await self._answer_to(request)

    async def _answer_to(self, request: Request) -> _Answer:
        answered: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            answer = _Answer(*self._server.answer(request))
            back = partial(self._process.deliver, _set, answered, answer)
            self._timeline.after(self._wire.answer(), back)

        self._timeline.after(self._wire.request(), arrive)
        return await answered

    @asynccontextmanager
    async def _watching(self, request: Request) -> AsyncIterator[_Answer | _Stream]:
        head: asyncio.Future[_Answer | _Stream] = asyncio.get_running_loop().create_future()
        stream, is_gone = _Stream(), False
        pipe = _Pipe(self._timeline, self._process, self._wire.event)
        target = target_of(request.path)
        selects = field_selector(request.params.get("fieldSelector", ""))
        watch = Watch(target.kind, target.namespace, selects, partial(pipe.put, stream.put))

        def arrive() -> None:
            if is_gone:
                return
            try:
                missed = self._server.watch(request, watch)
            except RefusedError as error:
                pipe.put(_set, head, _Answer(error.status, status_text(error)))
                return
            pipe.put(_set, head, stream)
            for line in missed:
                pipe.put(stream.put, line)
            self._timeline.after(float(request.params["timeoutSeconds"]), end)

        def end() -> None:
            self._server.forget(watch)
            pipe.put(stream.put, None)

        self._timeline.after(self._wire.request(), arrive)
        try:
            yield await head
        finally:
            is_gone = True
            self._server.forget(watch)


def _set(future: asyncio.Future[Any], answer: object) -> None:
    if not future.done():
        future.set_result(answer)


class _Pipe:
    """What is on its way to a process on one connection: nothing overtakes anything."""

    def __init__(self, timeline: Timeline, process: Process, delay: Delay) -> None:
        self._timeline, self._process, self._delay = timeline, process, delay
        self._last = 0
        self._under_way: deque[tuple[Any, ...]] = deque()

    def put(self, callback: Callable[..., None], *args: object) -> None:
        """Let the process call back when this arrives."""
        self._last = max(self._timeline.now + microseconds(self._delay()), self._last)
        self._under_way.append((callback, *args))
        # Two that arrive at one moment are in order, whichever of their appointments comes first.
        self._timeline.at(self._last, self._arrive)

    def _arrive(self) -> None:
        self._process.deliver(*self._under_way.popleft())


@dataclass(frozen=True)
class ModelAccess:
    """How a process reaches the model of the API server; see `purelb_agent.kube.client.Access`."""

    server: ApiServer
    process: Process
    wire: Wire
    user: str

    def transport(self, *, unanswered: float) -> ApiTransport:  # noqa: ARG002 - nothing breaks off
        """Return the way there."""
        return ApiTransport(self.server, self.process, self.wire, user=self.user)

    def token(self) -> str:
        """Return what stands in for the token."""
        return self.user
