# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""An API server with a few objects that refuses writes: for what comes before the first one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
# Kinds that every API server has.
_IN_EACH = {"pods", "nodes", "services", "daemonsets"}


class StaticApi(HTTPServer):
    """Serves kinds by the path of their group, and lists of objects by the path of the kind.

    Lists of `forbidden` kinds, by plural, are refused.
    `written` has the method and path of every request that would have changed something.
    """

    def __init__(self, kinds: dict[str, list[Object]], lists: dict[str, list[Object]]) -> None:
        self.kinds, self.lists = kinds, lists
        named = {kind["name"] for of_group in kinds.values() for kind in of_group}
        self.plurals = named | _IN_EACH
        self.forbidden: set[str] = set()
        self.written: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def kubeconfig(self, token: str) -> Object:
        """Return a kubeconfig for this server."""
        where = {"server": f"http://127.0.0.1:{self.server_port}"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "default", "cluster": where}],
            "users": [{"name": "default", "user": {"token": token}}],
            "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
            "current-context": "default",
        }


class _Handler(BaseHTTPRequestHandler):
    server: StaticApi

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        if split.path in self.server.kinds:
            self._answer(200, {"resources": self.server.kinds[split.path]})
        elif split.path.rpartition("/")[2] in self.server.forbidden:
            kind = split.path.rpartition("/")[2]
            self._answer(403, {"message": f'{kind} is forbidden: User "jane" cannot list it'})
        elif split.path.rpartition("/")[2] in self.server.plurals:
            wanted = parse_qs(split.query).get("fieldSelector", [""])[0]
            self._answer(200, {"items": list(self._selected(split.path, wanted))})
        else:
            self._answer(404, {"message": "not here"})

    def _selected(self, path: str, wanted: str) -> Iterator[Object]:
        for obj in self.server.lists.get(path, ()):
            if not wanted or wanted == f"metadata.name={obj['metadata']['name']}":
                yield obj

    def _refuse(self) -> None:
        self.server.written.append(f"{self.command} {self.path}")
        self._answer(403, {"message": "nothing is written here"})

    do_PATCH = do_POST = do_PUT = do_DELETE = _refuse  # noqa: N815 - as the base class says

    def _answer(self, status: int, content: Object) -> None:
        # A body that is not read would be taken for the next request.
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def serving(
    kinds: dict[str, list[Object]], lists: dict[str, list[Object]] | None = None
) -> Iterator[StaticApi]:
    """Serve until the end of the block."""
    api = StaticApi(kinds, lists or {})
    thread = threading.Thread(target=api.serve_forever)
    thread.start()
    try:
        yield api
    finally:
        api.shutdown()
        thread.join()
        api.server_close()
