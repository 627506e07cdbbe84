# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What purelb_verify reads and returns; its rules are tested with the core."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

pytest.importorskip("kubernetes")
from purelb.audit import verify_run
from purelb.core.errors import PureLBError
from purelb.core.times import format_time
from purelb.module import connection

MAC, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"
PARAMS = {
    "namespace": "purelb-system",
    "nodes": {},
    "answers": [],
    "unread": {},
    "unasked": {},
    "examine": [],
    "check_metrics": False,
    "metrics_port": 7472,
    "fail_on": "error",
}


def service(vip):
    family = "IPv6" if ":" in vip else "IPv4"
    return {
        "metadata": {
            "namespace": "default",
            "name": "web",
            "annotations": {
                "purelb.io/allocated-by": "PureLB",
                "purelb.io/pool-type": "local",
                f"purelb.io/announcing-{family}": f"n1,eth0,{vip}",
            },
        },
        "spec": {"type": "LoadBalancer", "ipFamilies": [family]},
        "status": {"loadBalancer": {"ingress": [{"ip": vip}]}},
    }


def group(**pools):
    return {"metadata": {"name": "default", "namespace": "purelb-system"}, "spec": pools}


def lease(node):
    subnets = {"purelb.io/subnets": "172.28.1.0/24,fd28::/64"}
    return {
        "metadata": {"name": f"purelb-node-{node}", "annotations": subnets},
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": 10,
            "renewTime": format_time(time.time()),
        },
    }


GROUP = {
    "metadata": {"name": "default", "namespace": "purelb-system"},
    "spec": {
        "local": {
            "v4pool": {"pool": "172.28.1.200-172.28.1.250", "subnet": "172.28.1.0/24"},
            "v6pool": {"pool": "fd28::200-fd28::250", "subnet": "fd28::/64"},
        }
    },
}


def node(name, *addresses):
    stated = [{"type": "InternalIP", "address": address} for address in addresses]
    return {
        "metadata": {"name": name},
        "status": {"addresses": stated, "conditions": [{"type": "Ready", "status": "True"}]},
    }


LOCK = {
    "metadata": {"name": "purelb-allocator"},
    "spec": {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "renewTime": "2999-01-01T00:00:00Z",
    },
}


def program(name):
    spec = {"containers": [{"name": name, "image": "purelb:1"}]}
    return {"metadata": {"name": name}, "spec": {"selector": {}, "template": {"spec": spec}}}


PROGRAMS = {"daemonsets": [program("lbnodeagent")], "deployments": [program("allocator")]}
SLICE = {
    "metadata": {
        "namespace": "default",
        "name": "web-1",
        "labels": {"kubernetes.io/service-name": "web"},
    },
    "endpoints": [{"nodeName": "n1"}],
}


def held(address, prefix_length, lifetime):
    return {
        "address": address,
        "prefix_length": prefix_length,
        "valid_lifetime": lifetime,
        "preferred_lifetime": lifetime,
        "flags": [],
        "protocol": 0 if lifetime is None else 112,
    }


UP = {"up": True, "state": "up"}


def seen(*vips):
    addresses = [held("172.28.1.11", 24, None), held("fd28::11", 64, None)]
    addresses += [held(vip, 64 if ":" in vip else 24, 5) for vip in vips]
    eth0 = {"name": "eth0", "index": 2, "mac": MAC, "addresses": addresses}
    return {
        "time": time.time(),
        "interfaces": [{**eth0, **UP, "default_metrics": {"IPv4": 0, "IPv6": 0}}],
    }


class NeighborReply:
    status = 200

    def __init__(self, items: list[Any]) -> None:
        self.data = json.dumps({"items": items}).encode()


class FakePool:
    """Returns lists by the last word of their path; unknown ones are empty."""

    def __init__(self, lists: dict[str, list[Any]]) -> None:
        self.lists = lists

    def request(self, _method: str, url: str, **_options: Any) -> NeighborReply:
        path, _mark, query = url.partition("?")
        items = {"endpointslices": [SLICE], **self.lists}.get(path.rpartition("/")[2], [])
        wanted = parse_qs(query).get("fieldSelector", [""])[0].partition("metadata.name=")[2]
        return NeighborReply([i for i in items if wanted in ("", i["metadata"]["name"])])


def verified(params, *, leases=(), **lists):
    cluster = connection.connect({"host": "https://api:6443/"})
    cluster._pool = FakePool({**PROGRAMS, "leases": [LOCK, *leases], **lists})  # noqa: SLF001 - the wire is the only thing to replace
    return verify_run.verification(cluster, {**PARAMS, **params}, check_mode=False)


@pytest.mark.parametrize("vip", ["172.28.1.220", "fd28::220"], ids=["v4", "v6"])
class TestAddress:
    def lists(self, vip):
        return {
            "services": [service(vip)],
            "nodes": [node("n1")],
            "leases": [lease("n1")],
            "servicegroups": [GROUP],
        }

    def test_a_correct_address_is_returned_with_its_holder(self, vip):
        heard = [{"address": vip, "macs": [MAC], "own": False}]
        result = verified({"nodes": {"n1": seen(vip)}, "answers": heard}, **self.lists(vip))
        (vip,) = result["vips"]
        assert vip["holders"] == [{"node": "n1", "interface": "eth0", "mac": MAC}]
        assert (vip["winner"], vip["macs"]) == ("n1", [MAC])
        assert (result["error_count"], result["warning_count"]) == (0, 0)
        assert "failed" not in result

    def test_a_missing_address_fails_the_module_with_a_remediation(self, vip):
        result = verified({"nodes": {"n1": seen()}}, **self.lists(vip))
        assert result["failed"]
        assert f"1 errors and 0 warnings; the first: notHeld: {vip} (default/web)" in result["msg"]
        assert "Remediation: read the lbnodeagent log on n1" in result["msg"]
        assert [finding["code"] for finding in result["findings"]] == ["notHeld"]
        assert result["vips"][0]["macs"] is None

    @pytest.mark.parametrize(
        ("fail_on", "fails"), [("never", False), ("error", False), ("warning", True)]
    )
    def test_fail_on_warning_fails_the_module_for_a_warning(self, vip, fail_on, fails):
        lists = {**self.lists(vip), "leases": [lease("n1"), {**lease("n2"), "spec": {}}]}
        result = verified({"fail_on": fail_on}, **lists)
        assert result["warning_count"] == 2
        assert result.get("failed", False) is fails

    def test_answers_from_several_hosts_are_merged(self, vip):
        heard = [
            {"address": vip, "macs": [MAC], "own": False},
            {"address": vip, "macs": [OTHER, MAC], "own": True},
        ]
        (answer,) = verify_run.answers_of(heard)
        assert [mac.hex(":") for mac in answer.macs] == [MAC, OTHER]
        assert answer.is_own


def test_an_external_group_is_ignored():
    pool = {"pool": "172.28.1.220-172.28.1.229", "subnet": "172.28.1.0/24"}
    groups = [group(netbox={"url": "x", "tenant": "t"}), group(local={"v4pool": pool})]
    lists = {"servicegroups": groups, "leases": [lease("n1")], "nodes": [node("n1")]}
    result = verified({"nodes": {"n1": seen("172.28.1.229")}}, **lists)
    assert [finding["code"] for finding in result["findings"]] == ["noService"]


def test_the_configuration_of_the_node_decides_the_interface():
    config = {"metadata": {"name": "all"}, "spec": {"local": {"localInterface": "none"}}}
    lists = {"lbnodeagents": [config], "leases": [lease("n1")], "nodes": [node("n1")]}
    result = verified({"nodes": {"n1": seen()}}, **lists)
    assert [finding["code"] for finding in result["findings"]] == ["subnetsDiffer"]


@pytest.mark.parametrize("answers", [[{}], [{"address": "x", "macs": [], "own": False}], [None]])
def test_invalid_answers_are_refused(answers):
    with pytest.raises(PureLBError, match="answers: is not what purelb_neighbor_info returns"):
        verified({"answers": answers})


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def port():
    with HTTPServer(("127.0.0.1", 0), Metrics) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


class TestMetrics:
    def findings(self, port, *addresses):
        lists = {"leases": [lease("n1")], "nodes": [node("n1", *addresses), node("n2")]}
        params = {"check_metrics": True, "metrics_port": port}
        found = verified(params, **lists)["findings"]
        return [
            (finding["code"], finding["object"], finding["message"])
            for finding in found
            # n2 has no Lease, so its metrics are not read.
            if finding["object"] != "node n2"
        ]

    def test_metrics_at_any_address_of_the_node_suffice(self, port):
        assert self.findings(port, "127.0.0.1") == []
        assert self.findings(port, "::1", "127.0.0.1") == []

    def test_unreadable_metrics_are_a_finding_with_the_cause(self, port):
        ((code, where, message),) = self.findings(port, "::1")
        assert (code, where) == ("metricsUnreachable", "node n1")
        assert message.startswith(f"http://[::1]:{port}/metrics: ")

    def test_a_node_without_an_address_is_a_finding(self, port):
        ((_code, _where, message),) = self.findings(port)
        assert message == "its Node has no address to read metrics from"
