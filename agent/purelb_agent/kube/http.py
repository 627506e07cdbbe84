# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""HTTP over TLS to the API server, with the credentials of a pod.

Connections use TCP keepalive: one that is left half open, for example by a cut cable, is closed
after about ten seconds.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from purelb.core.errors import SettingError
from purelb_agent.kube.client import ApiError, Body

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4),
    # Every second: the first probe after a network cut heals shows whether the server still has the
    # connection.
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
)


@dataclass(frozen=True)
class PodAccess:
    """Address and credentials of the API server, as every pod has them."""

    url: str
    ca_file: Path
    token_file: Path

    @classmethod
    def in_cluster(cls, environ: Mapping[str, str], account: Path = _ACCOUNT) -> PodAccess:
        """Return the access that Kubernetes gives every pod; SettingError outside a pod."""
        host = environ.get("KUBERNETES_SERVICE_HOST", "")
        port = environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (account / "token").exists():
            raise SettingError(
                "not running in a pod with a ServiceAccount (KUBERNETES_SERVICE_HOST or "
                f"{account}/token is missing): deploy the program with purelb.purelb.install"
            )
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{port}", account / "ca.crt", account / "token")

    def transport(self, *, unanswered: float) -> HttpTransport:
        """Return a pool of connections; see `kube.client.Access`."""
        return HttpTransport(self.url, self.ca_file, unanswered=unanswered)

    def token(self) -> str:
        """Return the token; ApiError without a valid one.

        Read each time: that takes microseconds, and a token that the kubelet rotated is used by the
        next request.
        """
        token = self.token_file.read_text(errors="replace").strip()
        # Anything else is invalid in a header. A half-written file must not end the program.
        if not (token.isascii() and token.isprintable()):
            raise ApiError(0, f"{self.token_file} contains no token")
        return token


def _socket_factory(seconds: float) -> Callable[[tuple[Any, ...]], socket.socket]:
    """Return a factory of sockets with keepalive.

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


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Raise what aiohttp raises as OSError, of which TimeoutError is one."""
    try:
        yield
    except OSError:
        raise
    except aiohttp.ClientError as error:
        raise OSError(str(error) or type(error).__name__) from error


class _HttpResponse:
    """See `kube.client.Response`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status

    async def read(self) -> bytes:
        with _as_os_errors():
            return await self._response.read()

    async def chunks(self) -> AsyncIterator[bytes]:
        with _as_os_errors():
            # Not line by line: aiohttp's reader rejects lines longer than its buffer.
            async for chunk in self._response.content.iter_any():
                yield chunk


class _Trust:
    """The certificate authorities of a file, read again when it has changed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read()

    def _version(self) -> tuple[int, int]:
        status = self._file.stat()
        return status.st_ino, status.st_mtime_ns

    def _read(self) -> None:
        # In this order: what changes meanwhile is read the next time.
        self._read_version = self._version()
        self._tls = ssl.create_default_context(cafile=str(self._file))
        # Cluster CAs lack the extensions that newer Pythons require of a certificate.
        self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT

    def tls(self) -> ssl.SSLContext:
        """Return the settings of a connection; the last good ones while the file is of no use."""
        with suppress(OSError):  # SSLError is one
            if self._version() != self._read_version:
                self._read()
        return self._tls


class HttpTransport:
    """A pool of connections; see `kube.client.Transport`.

    A cluster's authorities may be replaced at any time. Connections that stand stay; a request
    takes none that was opened by other authorities than the present ones.
    """

    def __init__(self, url: str, ca_file: Path, *, unanswered: float) -> None:
        self._url = url
        self._make_socket = _socket_factory(unanswered)
        self._trust = _Trust(ca_file)
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Open the pool."""
        connector = aiohttp.TCPConnector(
            socket_factory=self._make_socket, keepalive_timeout=30, limit=32
        )
        self._session = aiohttp.ClientSession(connector=connector, raise_for_status=False)

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: Body = None,
        connect: float | None = None,
    ) -> AsyncIterator[_HttpResponse]:
        """Send a request; see `kube.client.Transport.send`."""
        if self._session is None:
            raise RuntimeError("the transport is not open")
        timeout = aiohttp.ClientTimeout(total=None, connect=connect, sock_connect=connect)
        with _as_os_errors():
            async with self._session.request(
                method,
                self._url + path,
                params=params,
                headers=headers,
                data=body,
                timeout=timeout,
                ssl=self._trust.tls(),
            ) as response:
                yield _HttpResponse(response)
