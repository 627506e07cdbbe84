# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API over HTTP: JSON in, JSON out, no models.

Requests are bounded in time. Watches are not, so their connections carry TCP keepalive: a
connection that a cut cable leaves half open is given up after about ten seconds.
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
    # Every second: the first probe after a cut has healed finds out whether the server forgot us.
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
)
# Seconds after which data of ours that nobody acknowledges is given up, too.
_UNANSWERED = 10.0
MERGE_PATCH = "application/merge-patch+json"
NOT_FOUND, CONFLICT, GONE = 404, 409, 410


class ApiError(Exception):
    """The API server refused (status 400 and up) or could not be reached (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Access:
    """Where the API server is and how a program proves who it is."""

    url: str
    ca_file: Path
    token_file: Path

    @classmethod
    def in_cluster(cls, environ: Mapping[str, str], account: Path = _ACCOUNT) -> Access:
        """What Kubernetes gives to every pod."""
        host = environ.get("KUBERNETES_SERVICE_HOST", "")
        port = environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (account / "token").exists():
            raise SettingError(
                "this is no pod with a ServiceAccount (KUBERNETES_SERVICE_HOST or "
                f"{account}/token is missing): deploy the program with purelb.purelb.install"
            )
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{port}", account / "ca.crt", account / "token")


def _sockets_that_give_up(seconds: float) -> Callable[[tuple[Any, ...]], socket.socket]:
    """A maker of sockets with keepalive, whose data stays unacknowledged no longer than this."""
    milliseconds = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))

    def make(info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, *_address = info
        made = socket.socket(family, kind, protocol)
        for level, option, value in (*_KEEPALIVE, milliseconds):
            made.setsockopt(level, option, value)
        return made

    return make


def _message(status: int, text: str) -> str:
    """The API server's own words if it sent a Status object."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}: {text[:200]}"


def _decoded(text: str | bytes, path: str) -> dict[str, Any]:
    """The JSON object in an answer; what stands before the API server may answer otherwise."""
    try:
        decoded: dict[str, Any] = json.loads(text)
    except ValueError as problem:
        raise ApiError(0, f"{path}: the answer is no JSON: {text[:80]!r}") from problem
    return decoded


class Kube:
    """A connection pool to the API server; used as an async context manager."""

    def __init__(self, access: Access, *, unanswered: float = _UNANSWERED) -> None:
        self._access = access
        self._make_socket = _sockets_that_give_up(unanswered)
        tls = ssl.create_default_context(cafile=str(access.ca_file))
        # Cluster CAs predate the extensions that newer Pythons ask of a certificate.
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
        """Read the token anew each time.

        That costs microseconds, and the request after the kubelet has rotated it is good.
        """
        token = self._access.token_file.read_text(errors="replace").strip()
        # A header can carry nothing else, and half a file is no reason to end.
        if not (token.isascii() and token.isprintable()):
            raise ApiError(0, f"{self._access.token_file} holds no token")
        return {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    def _send(self, method: str, path: str, timeout: aiohttp.ClientTimeout, **more: Any) -> Any:
        if self._session is None:
            raise RuntimeError("Kube is not open")
        headers = {**self._headers(), **more.pop("headers", {})}
        url = self._access.url + path
        return self._session.request(method, url, headers=headers, timeout=timeout, **more)

    def _payload(self, data: bytes) -> Any:
        """What is sent as the body, in a form that aiohttp takes."""
        return data

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        seconds: float = 10.0,
    ) -> dict[str, Any]:
        """Send one request, a PATCH as a merge patch; ApiError if it does not succeed in time."""
        data: Any = None
        headers = {}
        if body is not None:
            encoded = json.dumps(body).encode()
            data = self._payload(encoded)
            headers["Content-Type"] = MERGE_PATCH if method == "PATCH" else "application/json"
            # Head and body leave together, without an end that is sent apart.
            headers["Content-Length"] = str(len(encoded))
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._send(
                method, path, timeout, params=params, data=data, headers=headers
            ) as answer:
                text = await answer.text()
        except (TimeoutError, aiohttp.ClientError, OSError) as problem:
            why = str(problem) or f"no answer within {seconds:g} s"
            raise ApiError(0, f"{method} {path}: {why}") from problem
        if answer.status >= 400:  # noqa: PLR2004 - HTTP's own border
            raise ApiError(answer.status, f"{method} {path}: {_message(answer.status, text)}")
        return _decoded(text, path)

    async def watch(
        self, path: str, params: Mapping[str, str], *, on_open: Callable[[], None]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield watch events until the server ends the stream; ApiError if it breaks."""
        timeout = aiohttp.ClientTimeout(total=None, connect=5.0, sock_connect=5.0)
        try:
            async with self._send("GET", path, timeout, params={**params, "watch": "1"}) as answer:
                if answer.status >= 400:  # noqa: PLR2004 - HTTP's own border
                    text = await answer.text()
                    raise ApiError(answer.status, f"{path}: {_message(answer.status, text)}")
                on_open()
                rest = b""
                # Not line by line: the reader refuses lines longer than its buffer.
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield _decoded(line, path)
        except (TimeoutError, aiohttp.ClientError, OSError) as problem:
            raise ApiError(0, f"{path}: {problem or 'no connection in time'}") from problem
