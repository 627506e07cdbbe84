# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Modules and roles reach the API server through a proxy, and act as another user."""

from __future__ import annotations

import json

import pytest

from tests.support.lab.accounts import objects_applied
from tests.support.lab.cluster_queries import run_ansible
from tests.support.lab.connect_proxy import proxying

pytestmark = pytest.mark.timeout(180)
RBAC = "rbac.authorization.k8s.io"
LOGIN = "me:a-password-of-the-proxy"
PODS = {"api_version": "v1", "kind": "Pod", "namespace": "purelb-system"}
MASTERS = {"impersonate_user": "jane", "impersonate_groups": ["system:masters"]}


def test_through_a_proxy(cluster, play):
    with proxying(LOGIN) as proxy:
        through = {**PODS, "proxy": proxy.url}
        headers = {"proxy_headers": {"proxy_basic_auth": LOGIN}}
        host = cluster.topology.api_v4
        done = play(
            "purelb_objects_info",
            {**through, **headers},
            {**through, **headers, "no_proxy": str(host)},
            through,
        )
        with_login, directly, without_login = done.results
        assert with_login["objects"]
        assert len(proxy.reached) == 1
        assert proxy.reached[0].rpartition(":")[0] == str(host)
        assert directly["objects"]
        assert without_login["failed"]
        assert "407" in without_login["msg"]
        assert proxy.refused
        assert LOGIN not in done.output


@pytest.mark.parametrize("by", ["variables of the role", "environment"])
def test_roles_connect_as_modules_do(cluster, tmp_path, by):
    where = {"KUBECONFIG": str(cluster.kubeconfig)}
    with proxying(LOGIN) as proxy:
        given: list[str] = ["-e", f"purelb_audit_folder={tmp_path}"]
        if by == "environment":
            where["K8S_AUTH_PROXY"] = proxy.url
            where["K8S_AUTH_PROXY_HEADERS_PROXY_BASIC_AUTH"] = LOGIN
        else:
            options = {"proxy": proxy.url, "proxy_headers": {"proxy_basic_auth": LOGIN}}
            given += ["-e", json.dumps({"purelb_audit_connection": options})]
        done = run_ansible("purelb.purelb.audit", *given, **where)
        assert len(proxy.reached) == 2
        assert LOGIN not in done.stdout


def test_acting_as_another_user(cluster, play):
    config = json.loads(cluster.kubeconfig.read_text())
    acting = json.loads(json.dumps(config))
    acting["users"][0]["user"]["as"] = "jane"
    done = play(
        "purelb_objects_info",
        {**PODS, "impersonate_user": "jane"},
        {**PODS, **MASTERS},
        {**PODS, "kubeconfig": acting},
        {**PODS, "kubeconfig": acting, "impersonate_groups": ["system:masters"]},
        {**PODS, "kubeconfig": acting, "impersonate_user": "kubernetes-admin",
         "impersonate_groups": ["system:masters"]},
    )  # fmt: skip
    assert [result.get("failed", False) for result in done.results] == [
        True,
        False,
        True,
        False,
        False,
    ]
    for number in (0, 2):
        assert "not allowed to list pods in namespace purelb-system (403)" in done.messages[number]
        assert 'User "jane" cannot list resource "pods"' in done.messages[number]


def test_who_may_not_act_as_others_is_told_so(cluster, play):
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = cluster.api.call("POST", path, body)["status"]["token"]
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token, "as": "jane"}
    done = play("purelb_objects_info", {**PODS, "kubeconfig": config})
    assert done.results[0]["failed"]
    assert "not allowed to act as another user for get /api/v1" in done.messages[0]
    assert "grant this user the verb impersonate" in done.messages[0]


@pytest.mark.parametrize("checks_image", ["true", "false"])
def test_who_may_only_read_is_told_what_is_missing(cluster, playbook, checks_image):
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "jane"}],
    }
    options = {
        "purelb_install_connection": {"impersonate_user": "jane"},
        "purelb_install_check_image": checks_image == "true",
    }
    with objects_applied(cluster, [binding]):
        done = playbook("purelb.purelb.install", "-e", json.dumps(options), check=False)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert "has no attribute" not in said
    kind = "nodes" if checks_image == "true" else "validatingadmissionpolicies"
    assert f"not allowed to list {kind}" in said
    assert f'User "jane" cannot list resource "{kind}"' in said.replace("\\", "")
