# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The audit of a large cluster stays within time and memory limits: the module itself, over HTTP.

The time limit is a multiple of what the elections alone take on this machine at that moment, so it
holds on a busy machine. `bench/bench audit` measures the real cost against an API server.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from bench import auditing

pytestmark = pytest.mark.thorough
LEASES, SERVICES = 1000, 5000
# Measured: 0.9 to 1.4 times the processor time of ranking all nodes for each address.
TIMES_ELECTIONS, MEGABYTES = 2.0, 150
_SAMPLE = 1000


class Api(BaseHTTPRequestHandler):
    """Answers lists in pages, like the API server."""

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
def objects():
    return auditing.objects(auditing.Size(LEASES, SERVICES))


@pytest.fixture(scope="module")
def api(objects):
    Api.lists = {
        "leases": objects.leases,
        "nodes": objects.nodes,
        "pods": objects.pods,
        "daemonsets": [auditing.program("DaemonSet", "lbnodeagent")],
        "deployments": [auditing.program("Deployment", "allocator")],
        "services": objects.services,
        "servicegroups": [objects.group],
        "endpointslices": [slice_of(service) for service in objects.services],
    }
    with HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def slice_of(service):
    metadata = service["metadata"]
    labels = {"kubernetes.io/service-name": metadata["name"]}
    return {
        "metadata": {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "labels": labels,
        },
        "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "node-1"}],
    }


def election_seconds():
    """Return the processor time of all elections of the audit, estimated from a sample."""
    begun = time.process_time()
    auditing.winners(auditing.Size(LEASES, _SAMPLE))
    return (time.process_time() - begun) * SERVICES / _SAMPLE


@pytest.mark.timeout(60)
@pytest.mark.parametrize("module", auditing.MODULES)
def test_audit_of_1000_nodes_and_5000_services_stays_within_limits(module, api, objects):
    before = election_seconds()
    spent, result = auditing.spend(module, {"host": api, **objects.arguments(module)})
    elections = (before + election_seconds()) / 2
    assert [len(result["leases"]), len(result["vips"])] == [LEASES, SERVICES]
    assert {vip["candidate_count"] for vip in result["vips"]} == {LEASES}
    assert result["findings"] == []
    assert spent.cpu < TIMES_ELECTIONS * elections
    assert spent.megabytes < MEGABYTES
