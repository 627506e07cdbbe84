# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What is read before an installation, and that a missing permission is named, not an error."""

from __future__ import annotations

from typing import Any

import pytest

from purelb.apply.preflight import preflight_info
from purelb.module.errors import ApiError, ClusterError
from purelb.module.kube import Kind

MARK = {"app.kubernetes.io/name": "purelb", "app.kubernetes.io/managed-by": "purelb.purelb"}
HOME = "purelb-system"
POOLS = Kind("cilium.io", "v2alpha1", "ciliumloadbalancerippools", namespaced=False)
CALICO = Kind("crd.projectcalico.org", "v1", "ippools", namespaced=False)


def agents(*, port: int = 7472, claims: str = "on") -> dict[str, Any]:
    container = {
        "ports": [{"containerPort": port}],
        "env": [
            {"name": "PURELB_CLAIM_UNCLASSED", "value": claims},
            {"name": "X", "valueFrom": {}},
        ],
    }
    spec = {"containers": [container], "serviceAccountName": "lbnodeagent"}
    return {
        "kind": "DaemonSet",
        "metadata": {"name": "lbnodeagent", "namespace": HOME, "labels": MARK},
        "spec": {"template": {"metadata": {"labels": MARK}, "spec": spec}},
    }


NAMESPACE = {"kind": "Namespace", "metadata": {"name": HOME}}


def found(cluster: Any, *objects: dict[str, Any], accept: tuple[str, ...] = ()) -> dict[str, Any]:
    params = {"objects": [NAMESPACE, *(objects or (agents(),))], "accept": list(accept)}
    return preflight_info(cluster, params, False)


def names(cluster: Any, *objects: dict[str, Any]) -> list[str]:
    return [obstacle["name"] for obstacle in found(cluster, *objects)["obstacles"]]


def test_nothing_in_an_empty_cluster(cluster):
    assert found(cluster) == {"changed": False, "obstacles": [], "labels_namespace": True}
    assert not cluster.writes


def test_pods_nodes_and_pools_of_others(cluster):
    cluster.kinds["cilium.io/v2alpha1", "CiliumLoadBalancerIPPool"] = POOLS
    cluster.kinds["crd.projectcalico.org/v1", "IPPool"] = CALICO
    container = {"image": "metallb/speaker", "ports": [{"hostPort": 7472}]}
    speaker = {"spec": {"nodeName": "n1", "containers": [container]}}
    cluster.put("pods", "speaker", "metallb-system", **speaker)
    cluster.put("pods", "ended", "metallb-system", **speaker, status={"phase": "Failed"})
    arguments = {"annotations": {"k3s.io/node-args": '["server"]'}}
    cluster.put("nodes", "n1", metadata=arguments)
    cluster.put("ciliumloadbalancerippools", "blue")
    cluster.put("ippools", "pods", spec={})
    cluster.put("ippools", "services", spec={"allowedUses": ["LoadBalancer"]})
    result = found(cluster)
    assert [each["name"] for each in result["obstacles"]] == [
        "metallb",
        "servicelb",
        "cilium",
        "calico",
        "port",
    ]
    assert all(each["stops"] for each in result["obstacles"])
    assert names(cluster, agents(port=7474, claims="off")) == []
    cluster.stored["daemonsets", HOME, "lbnodeagent"] = agents()
    assert not any(each["stops"] for each in found(cluster)["obstacles"])


def test_another_installation_by_its_labels(cluster):
    cluster.put("daemonsets", "lbnodeagent", "elsewhere", labels=MARK)
    assert names(cluster) == ["otherInstallation"]


@pytest.mark.parametrize(
    ("labels", "refusal", "expected", "may_label"),
    [
        ({}, "", [], False),
        (MARK, "", [], True),
        ({"pod-security.kubernetes.io/enforce": "baseline"}, "", ["podSecurity"], False),
        ({}, "exceeded quota: none", ["admission"], False),
        ({}, 'pods is forbidden: User "jane" cannot create', ["unread"], False),
    ],
    ids=["of others", "ours", "baseline", "quota", "not allowed"],
)
def test_the_namespace_as_it_is(cluster, labels, refusal, expected, may_label):
    cluster.put("namespaces", HOME, labels=labels)
    cluster.refusal = ApiError(refusal, status=403) if refusal else None
    result = found(cluster)
    assert [each["name"] for each in result["obstacles"]] == expected
    assert result["labels_namespace"] == may_label


def test_addresses_of_others(cluster, monkeypatch: pytest.MonkeyPatch):
    written = {"f:status": {"f:loadBalancer": {"f:ingress": {}}}}
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    for name, spec in (("a", {}), ("b", {"loadBalancerClass": "x"})):
        cluster.put(
            "services",
            name,
            "default",
            metadata={"managedFields": [{"manager": "controller", "fieldsV1": written}]},
            spec={"type": "LoadBalancer", **spec},
            status=status,
        )
    plain = cluster.read_all
    # The fake selects by the name only.
    monkeypatch.setattr(
        cluster, "read_all", lambda kind, **options: plain(kind, **{**options, "fieldSelector": ""})
    )
    (obstacle,) = found(cluster)["obstacles"]
    assert "controller has given addresses to one Service" in obstacle["message"]
    assert "default/a" in obstacle["message"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mode: ipvs\n", ["strictARP"]),
        ("mode: ipvs\nipvs: {strictARP: true}\n", []),
        ("mode: nftables\n", []),
        ("{", []),
        ("[]", []),
        ("", []),
    ],
)
def test_configuration_of_kube_proxy(cluster, text, expected):
    cluster.put("configmaps", "kube-proxy", "kube-system", data={"config.conf": text})
    assert names(cluster) == expected


def test_what_may_not_be_read_is_said(cluster):
    cluster.forbidden = {"pods", "nodes", "services", "namespaces", "configmaps"}
    result = found(cluster)
    assert {each["name"] for each in result["obstacles"]} == {"unread"}
    texts = [each["message"] for each in result["obstacles"]]
    assert "not allowed to list pods" in texts
    assert not any(each["stops"] for each in result["obstacles"])


def test_other_errors_and_objects_without_agents_are_errors(cluster):
    with pytest.raises(ClusterError, match="has no DaemonSet"):
        found(cluster, NAMESPACE)

    def broken(*_args: Any, **_options: Any) -> None:
        raise ApiError("it is down", status=500)

    cluster.read_all = broken
    with pytest.raises(ApiError, match="it is down"):
        found(cluster)
