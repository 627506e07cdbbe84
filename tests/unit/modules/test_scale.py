# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""A big cluster is audited in little time and memory: the module itself, over HTTP.

The bounds are generous, and of processor time, as other programs share the machine; what it really
takes, against a real API server, is measured by `bench/bench audit`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("kubernetes")
auditing = pytest.importorskip("benchkit.auditing")

ROOT = Path(__file__).parents[3]
LEASES, SERVICES = 1000, 5000
CPU_SECONDS, MEGABYTES = 6.0, 150


class Api(BaseHTTPRequestHandler):
    """Lists in pages, as the API server does."""

    protocol_version = "HTTP/1.1"
    lists: dict[str, list[dict[str, Any]]]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        items = self.lists.get(url.path.rpartition("/")[2], [])
        begin = int(query.get("continue", ["0"])[0])
        end = begin + int(query["limit"][0])
        rest = {"continue": str(end)} if end < len(items) else {}
        body = json.dumps({"items": items[begin:end], "metadata": rest}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def api():
    nodes = auditing.names(auditing.Size(LEASES, SERVICES))
    Api.lists = {
        "leases": [auditing.lease(name) for name in nodes],
        "services": [auditing.service(number, "n0000") for number in range(SERVICES)],
    }
    with HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def run(module: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], float, float]:
    """A module's result, its processor time and its memory."""
    tree = next(path for path in map(Path, sys.path) if (path / "ansible_collections").is_dir())
    argv = [sys.executable, str(ROOT / f"plugins/modules/{module}.py")]
    with subprocess.Popen(
        argv,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
        process.stdin.close()
        result = json.loads(process.stdout.read())
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, result["msg"]
    return result, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


@pytest.mark.timeout(60)
@pytest.mark.parametrize("module", auditing.MODULES)
def test_a_thousand_nodes_with_five_thousand_services_are_audited(module, api):
    size = auditing.Size(LEASES, SERVICES)
    arguments = {"host": api, **auditing.arguments(module, size)}
    result, seconds, megabytes = run(module, arguments)
    assert [len(result["leases"]), len(result["vips"])] == [LEASES, SERVICES]
    assert {vip["candidate_count"] for vip in result["vips"]} == {LEASES}
    assert seconds < CPU_SECONDS
    assert megabytes < MEGABYTES
