# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A proxy for TLS on loopback (CONNECT, RFC 9110 section 9.3.6) that asks for a password."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ConnectProxy(ThreadingHTTPServer):
    """`reached` has the target of every accepted request, `refused` counts the others."""

    daemon_threads = True

    def __init__(self, login: str) -> None:
        self.expected = "Basic " + base64.b64encode(login.encode()).decode()
        self.reached: list[str] = []
        self.refused = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        """The URL of the proxy."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: ConnectProxy

    def do_CONNECT(self) -> None:
        if self.headers.get("Proxy-Authorization") != self.server.expected:
            self.server.refused += 1
            self.send_error(407)
            return
        self.server.reached.append(self.path)
        host, _colon, port = self.path.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10) as upstream:
            self.send_response(200)
            self.end_headers()
            there = threading.Thread(target=_copy, args=(self.connection, upstream), daemon=True)
            there.start()
            _copy(upstream, self.connection)
            there.join(timeout=10)

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxying(login: str) -> Iterator[ConnectProxy]:
    """Run a proxy that accepts this name and password, separated by a colon."""
    with ConnectProxy(login) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
