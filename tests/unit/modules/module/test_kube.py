# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("kubernetes")
from purelb.audit import cluster_reader
from purelb.module import connection, kube

SERVICES = kube.Kind("", "v1", "services", namespaced=True)


class Answer(NamedTuple):
    status: int
    data: bytes


class FakePool:
    """Returns responses from a list and records the requests."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers = [Answer(code, json.dumps(body).encode()) for code, body in answers]
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []

    def request(self, method: str, url: str, *, headers: dict[str, str], **_options: Any) -> Answer:
        self.requests.append(f"{method} {url}")
        self.headers.append(headers)
        return self.answers.pop(0)


def cluster_with(*answers: tuple[int, Any]) -> tuple[kube.Cluster, FakePool]:
    cluster = connection.connect({"host": "https://api:6443/"})
    pool = FakePool(*answers)
    cluster._pool = pool  # noqa: SLF001 - the wire is the only thing to replace
    return cluster, pool


def test_pages_are_followed_to_the_end():
    pages = [
        (200, {"items": [{"n": 1}], "metadata": {"continue": "more"}}),
        (200, {"items": [{"n": 2}], "metadata": {}}),
    ]
    cluster, pool = cluster_with(*pages)
    assert [obj["n"] for obj in cluster.items(SERVICES)] == [1, 2]
    assert parse_qs(urlsplit(pool.requests[1]).query)["continue"] == ["more"]


def test_impersonation_applies_to_the_returned_client_only():
    cluster, pool = cluster_with((201, {}), (200, {}))
    body = {"metadata": {"name": "web", "namespace": "ns"}}
    cluster.impersonate("someone").create(SERVICES, body, dry_run=True)
    cluster.get(SERVICES, namespace="ns", name="web")
    assert [sent.get("Impersonate-User") for sent in pool.headers] == ["someone", None]
    method, url = pool.requests[0].split()
    assert (method, urlsplit(url).path) == ("POST", "/api/v1/namespaces/ns/services")
    assert parse_qs(urlsplit(url).query)["dryRun"] == ["All"]


def test_an_expired_list_is_read_again_from_the_start():
    pages = [
        (200, {"items": [{"n": 1}], "metadata": {"continue": "more"}}),
        (410, {"message": "too old"}),
        (200, {"items": [{"n": 1}, {"n": 2}], "metadata": {}}),
    ]
    cluster, _pool = cluster_with(*pages)
    assert cluster.read_all(SERVICES, convert=lambda obj: obj["n"]) == [1, 2]


def test_a_missing_object_is_none():
    cluster, _pool = cluster_with((404, {"message": "not found"}))
    assert cluster.get(SERVICES, namespace="a", name="b") is None


def test_a_missing_kind_is_not_cached():
    served = {"resources": [{"kind": "A", "name": "as", "namespaced": True}]}
    cluster, pool = cluster_with((404, {}), (200, served))
    assert cluster.kind("g/v1", "A") is None
    assert cluster.kind("g/v1", "A") == kube.Kind("g", "v1", "as", namespaced=True)
    cluster.kind("g/v1", "A")
    assert len(pool.requests) == 2


@pytest.mark.parametrize(
    ("kind", "namespace", "path"),
    [
        pytest.param(SERVICES, "a", "/api/v1/namespaces/a/services/x", id="core"),
        pytest.param(
            kube.Kind("apps", "v1", "daemonsets", namespaced=True),
            "a",
            "/apis/apps/v1/namespaces/a/daemonsets/x",
            id="group",
        ),
        pytest.param(
            kube.Kind("", "v1", "nodes", namespaced=False), "a", "/api/v1/nodes/x", id="no ns"
        ),
    ],
)
def test_paths(kind: kube.Kind, namespace: str, path: str):
    assert kind.path(namespace, "x") == path


GROUPS = "GET https://api:6443/apis/purelb.io/v2/namespaces/purelb-system/servicegroups"
APPS = "GET https://api:6443/apis/apps/v1/namespaces/purelb-system"
PODS = "GET https://api:6443/api/v1/namespaces/purelb-system/pods"
POD = {"metadata": {"name": "x"}, "spec": {"nodeName": "n1"}}
HELD = {
    "metadata": {"name": "purelb-allocator"},
    "spec": {"holderIdentity": "a", "leaseDurationSeconds": 9, "renewTime": "2999-01-01T00:00:00Z"},
}
LEASES = "GET https://api:6443/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases"


def test_the_audit_reads_lists_and_writes_nothing():
    service = {
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"type": "LoadBalancer"},
    }
    node = {"metadata": {"name": "n1"}}
    lease = {"metadata": {"name": "purelb-node-n1"}, "spec": {"holderIdentity": "n1"}}
    lock = {"metadata": {"name": "purelb-allocator"}, "spec": {"holderIdentity": "allocator-1_x"}}
    found, requests = audited(
        [program("lbnodeagent")], [POD], [program("allocator")], [POD],
        [service], [node], [], [lock], [lease], [],
    )  # fmt: skip
    assert [lock["holder"] for lock in found["leader_locks"]] == ["allocator-1_x"]
    assert [lease["node"] for lease in found["leases"]] == ["n1"]
    assert not found["changed"]
    assert requests == [
        f"{APPS}/daemonsets",
        PODS,
        f"{APPS}/deployments",
        PODS,
        "GET https://api:6443/api/v1/services",
        "GET https://api:6443/api/v1/nodes",
        GROUPS,
        LEASES,
        LEASES,
        # As the node lists no subnet.
        "GET https://api:6443/apis/purelb.io/v2/namespaces/purelb-system/lbnodeagents",
    ]


def program(name):
    spec = {"containers": [{"name": name, "image": "purelb:1"}]}
    selector = {"matchLabels": {"component": name}}
    return {"metadata": {"name": name}, "spec": {"selector": selector, "template": {"spec": spec}}}


def test_the_audit_reads_the_given_leader_locks():
    asks = [
        {"kind": "Endpoints", "namespace": "kube-system", "name": "old"},
        {"kind": "ConfigMap", "namespace": None, "name": "older"},
    ]
    lists = [[program("lbnodeagent")], [], [], [], [], [], [HELD], [], [{"metadata": {}}], []]
    found, requests = audited(*lists, leader_locks=asks)
    states = [(lock["namespace"], lock["state"]) for lock in found["leader_locks"]]
    assert states == [("kube-system", "unreadable"), ("purelb-system", "absent")]
    assert [finding["code"] for finding in found["findings"]] == ["lockAbsent", "lockUnreadable"]
    assert requests[-2:] == [
        "GET https://api:6443/api/v1/namespaces/kube-system/endpoints",
        "GET https://api:6443/api/v1/namespaces/purelb-system/configmaps",
    ]


def test_the_audit_reads_endpoints_if_a_service_needs_them():
    service = {
        "metadata": {
            "namespace": "default",
            "name": "web",
            "annotations": {
                "purelb.io/allocated-by": "PureLB",
                "purelb.io/node-affinity": "service-endpoints",
            },
        },
        "spec": {"type": "LoadBalancer"},
        "status": {"loadBalancer": {"ingress": [{"ip": "172.28.1.220"}]}},
    }
    near = {
        "metadata": {
            "namespace": "default",
            "name": "web-x",
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "endpoints": [{"nodeName": "n2", "conditions": {"ready": True}}],
    }
    leases = [
        {
            "metadata": {
                "name": f"purelb-node-{node}",
                "annotations": {"purelb.io/subnets": "172.28.1.0/24"},
            },
            "spec": {"leaseDurationSeconds": 10, "renewTime": "2999-01-01T00:00:00Z"},
        }
        for node in ("n1", "n2", "n3")
    ]
    programs = [program("lbnodeagent")], [], []
    found, requests = audited(*programs, [service], [], [], [near], [], leases)
    assert found["vips"][0]["winner"] == "n2"
    assert "GET https://api:6443/apis/discovery.k8s.io/v1/endpointslices" in requests


def audited(*lists, leader_locks=None):
    cluster, pool = cluster_with(*((200, {"items": items}) for items in lists))
    params = {"namespace": "purelb-system", "leader_locks": leader_locks}
    found = cluster_reader.lease_info(cluster, params, check_mode=False)
    return found, [request.split("?")[0] for request in pool.requests]


def test_the_user_is_asked_for():
    cluster, pool = cluster_with((201, {"status": {"userInfo": {"username": "admin"}}}))
    assert cluster.user() == "admin"
    (request,) = pool.requests
    path = "https://api:6443/apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert request.startswith(f"POST {path}?")


@pytest.mark.parametrize(
    ("part", "path"), [("", "/services/a"), ("status", "/services/a/status")], ids=["all", "part"]
)
def test_a_patch_is_sent_to_the_object_or_a_subresource(part: str, path: str):
    cluster, pool = cluster_with((200, {}))
    cluster.patch(SERVICES, namespace="lab", name="a", patch={}, part=part)
    assert pool.requests == [
        f"PATCH https://api:6443/api/v1/namespaces/lab{path}?fieldManager=purelb.purelb"
    ]


@pytest.mark.parametrize(
    ("with_owned", "policy"), [(True, "Foreground"), (False, "Background")], ids=["waits", "alone"]
)
def test_a_deletion_has_the_propagation_policy(with_owned: Any, policy: str):
    cluster, pool = cluster_with((200, {}))
    cluster.delete(SERVICES, namespace="lab", name="a", dry_run=True, with_owned=with_owned)
    path = "https://api:6443/api/v1/namespaces/lab/services/a"
    assert pool.requests == [f"DELETE {path}?propagationPolicy={policy}&dryRun=All"]
