# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The requests of a process on their way to the API server, and the answers.

It stands in for `purelb_agent.kube.http`. A request takes effect when it arrives, even if its
sender ends; the answer finds the sender if that still waits.
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
from simulation.api.way import Connection, Way
from simulation.time.process import Process
from simulation.time.timeline import Timeline, microseconds


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
        self._lines: deque[bytes | OSError | None] = deque()
        self._news = asyncio.Event()

    def put(self, line: bytes | OSError | None) -> None:
        """Take a line as it arrives; None is the end, an error breaks the stream."""
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
                if isinstance(line, OSError):
                    raise line
                yield line


class ApiTransport:
    """Carries the requests of one process; see `purelb_agent.kube.client.Transport`."""

    def __init__(self, access: ModelAccess, *, unanswered: float) -> None:
        self._server = access.server
        self._process = access.process
        self._way = access.way
        self._user = access.user
        self._unanswered = unanswered
        self._timeline: Timeline = access.way.timeline

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
        connect: float | None = None,
    ) -> AsyncIterator[_Answer | _Stream]:
        """Send a request; see `purelb_agent.kube.client.Transport.send`."""
        answer: asyncio.Future[_Answer | _Stream] = asyncio.get_running_loop().create_future()
        stream = _Stream()

        def broken(error: OSError) -> None:
            self._process.deliver(_fail, answer, error)
            self._process.deliver(stream.put, error)

        connection = Connection(self._unanswered, broken)
        try:
            self._way.open(connection, connect=connect)
        except ConnectionRefusedError:
            await asyncio.sleep(self._way.request())
            raise
        try:
            # A body that is made on the open connection is made before anything is sent.
            text = body if isinstance(body, bytes) else b""
            if body is not None and not isinstance(body, bytes):
                text = b"".join([part async for part in body])
            request = Request(self._user, method, path, params or {}, text)
            if request.params.get("watch"):
                self._watch(connection, request, answer, stream)
            else:
                self._ask(connection, request, answer)
            yield await answer
        finally:
            self._way.close(connection)

    def _in(self, seconds: float) -> int:
        return self._timeline.now + microseconds(seconds)

    def _ask(self, connection: Connection, request: Request, waiting: asyncio.Future[Any]) -> None:
        before, after = self._way.slow(request.method, target_of(request.path).kind)

        def arrive() -> None:
            answer = self._refusal(request) or _Answer(*self._server.answer(request))
            back = partial(self._process.deliver, _set, waiting, answer)
            self._way.carry(connection, self._in(self._way.answer() + after), back)

        # A server that is slow before the effect has the request already.
        def received() -> None:
            self._timeline.after(before, arrive) if before else arrive()

        self._way.carry(connection, self._in(self._way.request()), received)

    def _refusal(self, request: Request) -> _Answer | None:
        """Return the answer to a request that is not let in; None if it is.

        A 429 asks in its head to wait for a second. The programs do not read heads.
        """
        status = self._way.refuses(request.method, target_of(request.path).kind)
        if not status:
            return None
        return _Answer(status, _REFUSALS[status])

    def _watch(
        self,
        connection: Connection,
        request: Request,
        head: asyncio.Future[Any],
        stream: _Stream,
    ) -> None:
        target = target_of(request.path)
        connection.watches = target.kind
        pipe = _Pipe(self._way, connection, self._process)
        selects = field_selector(request.params.get("fieldSelector", ""))

        def end() -> None:
            self._server.forget(watch)
            pipe.put(stream.put, None)

        tell = partial(pipe.put, stream.put)
        watch = Watch(target.kind, target.namespace, selects, tell, end)

        def arrive() -> None:
            if connection.is_closed:
                return
            refusal = self._refusal(request)
            if refusal is not None:
                pipe.put(_set, head, refusal)
                return
            try:
                missed = self._server.watch(request, watch)
            except RefusedError as error:
                pipe.put(_set, head, _Answer(error.status, status_text(error)))
                return
            pipe.put(_set, head, stream)
            pipe.lag = self._way.lag()
            for line in missed:
                pipe.put(stream.put, line)
            self._timeline.after(float(request.params["timeoutSeconds"]), end)

        connection.forgotten = partial(self._server.forget, watch)
        self._way.carry(connection, self._in(self._way.request()), arrive)


def _refusal_text(status: int, reason: str, message: str) -> bytes:
    return status_text(RefusedError(status, reason, message))


# What the server says: of 429 it has no JSON.
_REFUSALS = {
    401: _refusal_text(401, "Unauthorized", "Unauthorized"),
    429: b"Too many requests, please try again later.\n",
    500: _refusal_text(500, "InternalError", "Internal error occurred: etcdserver: no leader"),
    503: _refusal_text(
        503, "ServiceUnavailable", "the server is currently unable to handle the request"
    ),
}


def _set(future: asyncio.Future[Any], answer: object) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], error: OSError) -> None:
    if not future.done():
        future.set_exception(error)


class _Pipe:
    """What is on its way to a process on one watch: nothing overtakes anything.

    `lag`: by how many seconds the server is behind on which the watch was opened.
    """

    def __init__(self, way: Way, connection: Connection, process: Process) -> None:
        self._way, self._connection, self._process = way, connection, process
        self.lag = 0.0
        self._last = 0
        self._under_way: deque[tuple[Any, ...]] = deque()

    def put(self, callback: Callable[..., None], *args: object) -> None:
        """Let the process call back when this arrives."""
        now = self._way.timeline.now
        self._last = max(now + microseconds(self._way.event() + self.lag), self._last)
        self._under_way.append((callback, *args))
        # Two that arrive at one moment are in order, also if their appointments are not.
        self._way.tell(self._connection, self._last, self._arrive)

    def _arrive(self) -> None:
        self._process.deliver(*self._under_way.popleft())


@dataclass(frozen=True)
class ModelAccess:
    """How a process reaches the model of the API server; see `purelb_agent.kube.client.Access`."""

    server: ApiServer
    process: Process
    way: Way
    user: str

    def transport(self, *, unanswered: float) -> ApiTransport:
        """Return a transport over this way."""
        return ApiTransport(self, unanswered=unanswered)

    def token(self) -> str:
        """Return what stands in for the token."""
        return self.user
