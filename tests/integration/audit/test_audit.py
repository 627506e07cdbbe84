# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The audit of a real cluster: its result, its findings, and its error without permission."""

from __future__ import annotations

import base64
import json

import pytest

from labkit.topology import API_PORT
from purelb.core.api.workloads import node_of
from tests.support.lab.cluster_queries import (
    AGENTS,
    DAEMON_SET,
    addresses_of,
    eventually,
    holder,
    lease_info,
)

pytestmark = pytest.mark.timeout(150)


def test_healthy_cluster_has_no_findings_and_winners_are_holders(cluster, make_service):
    vips = addresses_of(cluster, make_service())

    def settled():
        result = lease_info(cluster.kubeconfig)
        return result if not result["findings"] else None

    result = eventually(settled, "audit without findings", seconds=60)
    assert [lease["node"] for lease in result["leases"]] == sorted(cluster.nodes)
    assert all(lease["live"] and lease["age"] < 10 for lease in result["leases"])
    winners = {vip["address"]: vip["winner"] for vip in result["vips"]}
    assert {vip: winners[vip] for vip in vips} == {vip: holder(cluster, vip) for vip in vips}
    for vip in result["vips"]:
        assert sorted(vip["candidates"]) == sorted(cluster.nodes)
        assert [entry["node"] for entry in vip["announcing"]] == [vip["winner"]]


@pytest.mark.thorough
def test_dead_agent_is_a_finding(cluster, make_service):
    addresses_of(cluster, make_service())
    cluster.kill("n1", "lbnodeagent", "STOP")
    try:
        found = eventually(
            lambda: [
                f for f in lease_info(cluster.kubeconfig)["findings"] if f["code"] == "leaseExpired"
            ],
            "expired Lease",
            # It expires after up to 10 s, and each audit takes seconds on a busy machine.
            seconds=60,
        )
        assert found[0]["object"] == "Lease purelb-node-n1"
    finally:
        cluster.kill("n1", "lbnodeagent", "CONT")


NODES = "/api/v1/nodes"


@pytest.fixture
def ghost(cluster):
    """A Node without a kubelet."""
    metadata = {"name": "ghost", "labels": {"kubernetes.io/os": "linux"}}
    cluster.api.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    yield "ghost"
    cluster.api.delete(f"{NODES}/ghost")

    def is_forgotten() -> bool:
        # The DaemonSet looks at its nodes again when one of its Pods ends, and only then. That of
        # this Node was never scheduled, so no kubelet and no collector ends it.
        pods = cluster.api.items(AGENTS, labelSelector="component=lbnodeagent")
        left = [pod["metadata"]["name"] for pod in pods if node_of(pod) == "ghost"]
        for name in left:
            cluster.api.delete(f"{AGENTS}/{name}", gracePeriodSeconds=0)
        wanted = cluster.api.get(DAEMON_SET)["status"]["desiredNumberScheduled"]
        return not left and wanted == len(cluster.nodes)

    eventually(is_forgotten, "a DaemonSet without the Node", seconds=60)


@pytest.fixture
def overlapping(cluster):
    """A ServiceGroup with a range of the default one."""
    pool = {"pool": "172.28.1.220-172.28.1.221", "subnet": "172.28.1.0/24"}
    group = {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "overlapping", "namespace": "purelb-system"},
        "spec": {"local": {"v4pool": pool}},
    }
    path = cluster.api.path_of(cluster.api.create(group))
    yield "overlapping"
    cluster.api.delete(path)


def test_what_keeps_a_node_a_group_and_services_from_working_is_found(
    cluster, make_service, ghost, overlapping
):
    for group in ("nowhere", overlapping):
        make_service(annotations={"purelb.io/service-group": group})

    def found():
        result = lease_info(cluster.kubeconfig)
        by_code = {f["code"]: f for f in result["findings"]}
        return by_code.keys() == {"servicePending", "groupNotReady", "nodeWithoutAgent"} and result

    result = eventually(found, "all findings, and no other", seconds=60)
    texts = {(f["code"], f["object"]): f["message"] for f in result["findings"]}
    pending = sorted(text for (code, _about), text in texts.items() if code == "servicePending")
    assert [text.partition("ServiceGroup ")[2].split(":")[0] for text in pending] == [
        "nowhere does not exist (unknown pool)",
        "overlapping is not used, because its pool overlaps another one",
    ]
    assert "PoolOverlaps: " in texts["groupNotReady", f"ServiceGroup {overlapping}"]
    assert texts["nodeWithoutAgent", f"node {ghost}"].startswith("the Node is not Ready; ")
    assert {node["node"]: node["state"] for node in result["nodes"]} == {
        **dict.fromkeys(cluster.nodes, "live"),
        ghost: "down",
    }


def test_missing_permission_is_named_in_the_error(cluster, tmp_path):
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "auditor", "namespace": "default"},
    }
    cluster.api.apply(account)
    try:
        path = f"{cluster.api.path_of(account)}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = cluster.api.call("POST", path, body)["status"]["token"]
        authority = (cluster.at.run / "pki/ca.crt").read_bytes()
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "users": [{"name": "u", "user": {"token": token}}],
                    "clusters": [
                        {
                            "name": "c",
                            "cluster": {
                                "server": f"https://{cluster.topology.api_v4}:{API_PORT}",
                                "certificate-authority-data": base64.b64encode(authority).decode(),
                            },
                        }
                    ],
                }
            )
        )
        message = lease_info(kubeconfig, succeeds=False)["msg"]
    finally:
        cluster.api.delete(cluster.api.path_of(account))
    assert "list" in message
    assert "daemonsets" in message
    assert token not in message
