# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The audit of a real cluster: its result, its findings, and its error without permission."""

from __future__ import annotations

import base64
import json

import pytest

from labkit.topology import API_PORT
from tests.support.lab.cluster_queries import addresses_of, eventually, holder, lease_info

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
    assert "services" in message
    assert token not in message
