# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.purelb.purelb.plugins.modules import purelb_convert
from purelb.core.errors import SettingError
from purelb.migrate import conversion

NEAR = {"pool": "10.0.0.200-10.0.0.210", "subnet": "10.0.0.0/24"}
NEAR_V6 = {"pool": "fd00::200-fd00::210", "subnet": "fd00::/64"}
FAR = {"pool": "10.7.0.0/25", "subnet": "10.7.0.0/24"}


def group(name: str = "a", **local: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "purelb", "managedFields": []}
    body = {"apiVersion": "purelb.io/v1", "kind": "ServiceGroup", "metadata": meta}
    return {**body, "spec": {"local": local}}


def put(cluster: Any, plural: str, *bodies: dict[str, Any]) -> None:
    for body in bodies:
        meta = body["metadata"]
        cluster.stored[plural, meta.get("namespace"), meta["name"]] = body


def node(*addresses: str) -> dict[str, Any]:
    shown = [{"type": "InternalIP", "address": address} for address in addresses]
    return {"metadata": {"name": "n1"}, "status": {"addresses": shown}}


def lease(subnets: str) -> dict[str, Any]:
    annotations = {"purelb.io/subnets": subnets}
    meta = {"name": "purelb-node-n1", "namespace": "purelb-system", "annotations": annotations}
    return {"metadata": meta, "spec": {}}


def convert(cluster: Any, **params: Any) -> dict[str, Any]:
    defaults = {
        "namespace": "purelb",
        "target_namespace": "purelb-system",
        "definitions": None,
        "node_subnets": [],
        "decisions": {},
    }
    return conversion.info(cluster, {**defaults, **params}, check_mode=False)


def sources(result: dict[str, Any]) -> dict[str, str]:
    return {new["name"]: new["source"] for group in result["groups"] for new in group["becomes"]}


def test_ranges_are_compared_with_the_addresses_of_the_nodes(cluster: Any):
    listed = group("a", v4pool=NEAR, v6pool=NEAR_V6)
    # The items of a list come without these.
    del listed["apiVersion"], listed["kind"]
    put(cluster, "servicegroups", listed, group("b", v4pool=FAR))
    put(cluster, "nodes", node("10.0.0.7", "fd00::7", "a-name"))
    result = convert(cluster)
    assert sources(result) == {"a": "local", "b": "remote"}
    assert result["node_subnets_from"] == "nodes"
    assert result["node_subnets"] == ["10.0.0.0/24", "10.0.0.7/32", "fd00::/64", "fd00::7/128"]
    assert result["changed"] is False
    assert cluster.writes == []


def test_subnets_of_leases_take_precedence_over_nodes(cluster: Any):
    put(cluster, "servicegroups", group("a", v4pool=NEAR), group("b", v4pool=FAR))
    put(cluster, "nodes", node("10.0.0.7"))
    put(cluster, "leases", lease("10.7.0.0/24"))
    result = convert(cluster)
    assert sources(result) == {"a": "remote", "b": "local"}
    assert (result["node_subnets_from"], result["node_subnets"]) == ("leases", ["10.7.0.0/24"])


def test_given_subnets_take_precedence_over_leases(cluster: Any):
    put(cluster, "servicegroups", group("a", v4pool=NEAR))
    put(cluster, "leases", lease("10.7.0.0/24"))
    result = convert(cluster, node_subnets=["10.0.0.0/24", "fd00::/64"])
    assert (sources(result), result["node_subnets_from"]) == ({"a": "local"}, "option")


def test_a_cluster_without_nodes_is_an_error(cluster: Any):
    put(cluster, "servicegroups", group("a", v4pool=NEAR))
    with pytest.raises(SettingError, match="no subnet of a node is known"):
        convert(cluster)


def test_a_cluster_without_v1_objects_returns_none(cluster: Any):
    assert convert(cluster)["objects"] == []


def test_an_invalid_subnet_is_named(cluster: Any):
    with pytest.raises(SettingError, match="node_subnets: 'ten' must be a CIDR"):
        convert(cluster, node_subnets=["10.0.0.0/8", "ten"])


class TestModule:
    @pytest.fixture
    def run(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        """Returns a function that runs the module as Ansible does, without a cluster."""
        monkeypatch.setenv("KUBECONFIG", "/nowhere")

        def run(**params: Any) -> dict[str, Any]:
            text = json.dumps({"ANSIBLE_MODULE_ARGS": params}).encode()
            monkeypatch.setattr("ansible.module_utils.basic._ANSIBLE_ARGS", text)
            monkeypatch.setattr(
                "ansible.module_utils.basic._ANSIBLE_PROFILE", "legacy", raising=False
            )
            with pytest.raises(SystemExit):
                purelb_convert.main()
            result: dict[str, Any] = json.loads(capsys.readouterr().out)
            return result

        return run

    def test_with_all_input_given_no_cluster_is_read(self, run: Any):
        given = [group("a", v4pool=NEAR, v6pool=FAR)]
        result = run(definitions=given, node_subnets=["10.0.0.0/24"], decisions={})
        assert result["questions"][0]["group"] == "ServiceGroup purelb/a"
        assert "of the other family" in result["questions"][0]["question"]

    def test_decisions_are_followed(self, run: Any):
        given = {"definitions": [group("a", v4pools=[NEAR, FAR])], "node_subnets": ["10.0.0.0/24"]}
        assert run(**given)["groups"][0]["reason"] == "mixed"
        assert sources(run(**given, decisions={"a": "remote"})) == {"a": "remote"}

    def test_an_error_is_one_line(self, run: Any):
        given = {"definitions": [group("a", v4pool=NEAR)], "node_subnets": ["10.0.0.0/24"]}
        failed = run(**given, decisions={"a": "both"})
        assert failed["failed"] is True
        assert failed["msg"] == "decisions: a: must be one of local, remote, proposed"

    def test_without_subnets_the_cluster_is_read(self, run: Any):
        assert "/nowhere" in run(definitions=[group("a", v4pool=NEAR)])["msg"]
