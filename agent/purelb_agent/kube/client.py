# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API over HTTP: JSON in, JSON out, no models.

Requests have a timeout. Watches have none, so their connections use TCP keepalive: a connection
left half open, for example by a cut cable, is closed after about ten seconds.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp

from purelb.core.errors import SettingError

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4),
    # Every second: the first probe after a network cut heals shows whether the server still has the
    # connection.
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
)
# Seconds after which a connection with unacknowledged data is closed.
_UNANSWERED = 10.0
# An object of the API as decoded from JSON.
Json = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
NOT_FOUND, CONFLICT, GONE = 404, 409, 410


class ApiError(Exception):
    """The API server refused a request (status 400 and up) or could not be reached (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Access:
    """Address and credentials for the API server."""

    url: str
    ca_file: Path
    token_file: Path

    @classmethod
    def in_cluster(cls, environ: Mapping[str, str], account: Path = _ACCOUNT) -> Access:
        """Returns the access that Kubernetes gives every pod; SettingError outside a pod."""
        host = environ.get("KUBERNETES_SERVICE_HOST", "")
        port = environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (account / "token").exists():
            raise SettingError(
                "not running in a pod with a ServiceAccount (KUBERNETES_SERVICE_HOST or "
                f"{account}/token is missing): deploy the program with purelb.purelb.install"
            )
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{port}", account / "ca.crt", account / "token")


def _socket_factory(seconds: float) -> Callable[[tuple[Any, ...]], socket.socket]:
    """Returns a factory of sockets with keepalive.

    Their connections are closed when data has been unacknowledged for `seconds`.
    """
    milliseconds = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))

    def make(info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, *_address = info
        made = socket.socket(family, kind, protocol)
        for level, option, value in (*_KEEPALIVE, milliseconds):
            made.setsockopt(level, option, value)
        return made

    return make


def _message(status: int, text: str) -> str:
    """Returns the message of the API server's Status object, otherwise the start of the text."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}: {text[:200]}"


def _decode(text: str | bytes, path: str) -> Json:
    """Returns the JSON object; ApiError for other content, which a proxy may send."""
    try:
        decoded: Json = json.loads(text)
    except ValueError as error:
        raise ApiError(0, f"{path}: the response is not JSON: {text[:80]!r}") from error
    return decoded


class Kube:
    """A connection pool to the API server; used as an async context manager."""

    def __init__(self, access: Access, *, unanswered: float = _UNANSWERED) -> None:
        self._access = access
        self._make_socket = _socket_factory(unanswered)
        tls = ssl.create_default_context(cafile=str(access.ca_file))
        # Cluster CAs lack the extensions that newer Pythons require of a certificate.
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the pool."""
        connector = aiohttp.TCPConnector(
            ssl=self._tls, socket_factory=self._make_socket, keepalive_timeout=30, limit=32
        )
        self._session = aiohttp.ClientSession(connector=connector, raise_for_status=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    def _headers(self) -> dict[str, str]:
        """Returns the headers of a request.

        Reads the token each time: that takes microseconds, and a token that the kubelet rotated is
        used by the next request.
        """
        token = self._access.token_file.read_text(errors="replace").strip()
        # Anything else is invalid in a header. A half-written file must not end the program.
        if not (token.isascii() and token.isprintable()):
            raise ApiError(0, f"{self._access.token_file} contains no token")
        return {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    def _send(self, method: str, path: str, timeout: aiohttp.ClientTimeout, **more: Any) -> Any:
        if self._session is None:
            raise RuntimeError("Kube is not open")
        headers = {**self._headers(), **more.pop("headers", {})}
        url = self._access.url + path
        return self._session.request(method, url, headers=headers, timeout=timeout, **more)

    def _payload(self, data: bytes) -> Any:
        """Returns the request body in a form that aiohttp accepts."""
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
        data: Any = None
        headers = {}
        if body is not None:
            encoded = json.dumps(body).encode()
            data = self._payload(encoded)
            headers["Content-Type"] = MERGE_PATCH if method == "PATCH" else "application/json"
            # With a length, aiohttp sends head and body together, without a separate last chunk.
            headers["Content-Length"] = str(len(encoded))
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._send(
                method, path, timeout, params=params, data=data, headers=headers
            ) as response:
                text = await response.text()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error) or f"no answer within {seconds:g} s"
            raise ApiError(0, f"{method} {path}: {reason}") from error
        if response.status >= 400:  # noqa: PLR2004 - HTTP's own limit
            raise ApiError(response.status, f"{method} {path}: {_message(response.status, text)}")
        return _decode(text, path)

    async def watch(
        self, path: str, params: Mapping[str, str], *, on_open: Callable[[], None]
    ) -> AsyncGenerator[Json, None]:
        """Yield watch events until the server ends the stream; ApiError if the stream breaks.

        Calls `on_open` when the server has accepted the watch.
        """
        timeout = aiohttp.ClientTimeout(total=None, connect=5.0, sock_connect=5.0)
        try:
            async with self._send(
                "GET", path, timeout, params={**params, "watch": "1"}
            ) as response:
                if response.status >= 400:  # noqa: PLR2004 - HTTP's own limit
                    text = await response.text()
                    raise ApiError(response.status, f"{path}: {_message(response.status, text)}")
                on_open()
                rest = b""
                # Not line by line: aiohttp's reader rejects lines longer than its buffer.
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield _decode(line, path)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ApiError(0, f"{path}: {error or 'no connection in time'}") from error
