# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API: JSON in, JSON out, no models.

Requests have a timeout. Watches are given theirs by who asks for them; the transport closes a
connection that is left half open. A transport carries the bytes of one request: kube/http is the
real one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Self

# Seconds after which a connection with unacknowledged data is closed.
_UNANSWERED = 10.0
# Seconds in which a watch must have a connection.
_CONNECT = 5.0
# An object of the API as decoded from JSON.
Json = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
NOT_FOUND, CONFLICT, GONE = 404, 409, 410


class ApiError(Exception):
    """The API server refused a request (status 400 and up) or could not be reached (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Response(Protocol):
    """An answer of which the head has come."""

    @property
    def status(self) -> int:
        """HTTP's status code."""

    async def read(self) -> bytes:
        """Return the whole body; OSError if the connection breaks."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; OSError if the connection breaks."""


# A body, or one that is made when the connection is open.
Body = bytes | AsyncIterator[bytes] | None


class Transport(Protocol):
    """A pool of connections to an API server."""

    async def open(self) -> None:
        """Get ready to send."""

    async def close(self) -> None:
        """Close every connection."""

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: Body = None,
        connect: float | None = None,
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request and wait for the head of its answer; OSError if that fails.

        `connect`: seconds for the connection; None leaves all time limits to the caller.
        """


class Access(Protocol):
    """How an API server is reached."""

    def transport(self, *, unanswered: float) -> Transport:
        """Return a pool that gives up connections with data unacknowledged for these seconds."""

    def token(self) -> str:
        """Return the token of the next request; ApiError without a valid one."""


def _message(status: int, text: bytes) -> str:
    """Returns the message of the API server's Status object, otherwise the start of the text."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}: {text[:200].decode(errors='replace')}"


def _decode(text: bytes, path: str) -> Json:
    """Returns the JSON object; ApiError for other content, which a proxy may send."""
    try:
        decoded: Json = json.loads(text)
    except ValueError as error:
        shown = text[:80].decode(errors="replace")
        raise ApiError(0, f"{path}: the response is not JSON: {shown!r}") from error
    return decoded


class Kube:
    """A client of the API server; used as an async context manager."""

    def __init__(self, access: Access, *, unanswered: float = _UNANSWERED) -> None:
        self._access = access
        self._transport = access.transport(unanswered=unanswered)

    async def __aenter__(self) -> Self:
        """Open the pool of connections."""
        await self._transport.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        await self._transport.close()

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._access.token()}", "Accept": "application/json"}

    def _payload(self, data: bytes) -> Body:
        """Return the request body as the transport is given it."""
        return data

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        seconds: float = 10.0,
    ) -> Json:
        """Send one request (a PATCH is a merge patch); return the response.

        Raises ApiError if it fails or takes longer than `seconds`.
        """
        data: Body = None
        about_body = {}
        if body is not None:
            encoded = json.dumps(body).encode()
            data = self._payload(encoded)
            about_body["Content-Type"] = MERGE_PATCH if method == "PATCH" else "application/json"
            # With a length, head and body are sent together, without a separate last chunk.
            about_body["Content-Length"] = str(len(encoded))
        try:
            headers = {**self._headers(), **about_body}
            async with (
                asyncio.timeout(seconds),
                self._transport.send(
                    method, path, params=params, headers=headers, body=data
                ) as response,
            ):
                text = await response.read()
        except OSError as error:
            reason = str(error) or f"no answer within {seconds:g} s"
            raise ApiError(0, f"{method} {path}: {reason}") from error
        if response.status >= 400:  # noqa: PLR2004 - HTTP's own limit
            raise ApiError(response.status, f"{method} {path}: {_message(response.status, text)}")
        return _decode(text, path)

    async def watch(
        self, path: str, params: Mapping[str, str], *, on_open: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[Json, None]:
        """Yield watch events until the server ends the stream; ApiError if the stream breaks.

        Calls `on_open` when the server has accepted the watch, before it yields anything; what that
        raises ends the watch.
        """
        try:
            async with self._transport.send(
                "GET",
                path,
                params={**params, "watch": "1"},
                headers=self._headers(),
                connect=_CONNECT,
            ) as response:
                if response.status >= 400:  # noqa: PLR2004 - HTTP's own limit
                    text = await response.read()
                    raise ApiError(response.status, f"{path}: {_message(response.status, text)}")
                await on_open()
                rest = b""
                async for chunk in response.chunks():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield _decode(line, path)
        except OSError as error:
            raise ApiError(0, f"{path}: {str(error) or 'no connection in time'}") from error
