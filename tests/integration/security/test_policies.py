# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The policies themselves, and users that they do not limit."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from purelb.core.api import codec
from tests.support.lab.accounts import client
from tests.support.lab.dry_runs import (
    GROUPS,
    LEASES,
    NAMESPACE,
    SERVICES,
    TAINT,
    Account,
    lease_named,
)

pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]


def test_policies_pass_the_type_check_of_the_api_server(lab, installed):
    for policy in (o for o in installed if o["kind"] == "ValidatingAdmissionPolicy"):
        seen = lab.api.wait(
            lab.api.path_of(policy), lambda p: p["status"].get("observedGeneration"), seconds=20
        )
        assert not seen["status"].get("typeChecking"), seen["status"]


class TestOtherUsers:
    """Only the two accounts are limited, except in the programs' annotations."""

    @pytest.fixture(params=["admin", "another account of the namespace"])
    def other_user(self, request, lab, pods):
        api = lab.api if request.param == "admin" else client(lab, NAMESPACE, "default")
        return Account(api)

    def test_other_users_may_write_anything(self, other_user, lab, pods, agent):
        path = f"{SERVICES}/announced"
        other_user.patch(
            path, {"metadata": {"labels": {"a": "b"}}, "spec": {"ports": [{"port": 81}]}}
        )
        other_user.patch(
            f"{path}/status", {"status": codec.ingress_status([ip_address("192.0.2.1")])}
        )
        other_user.send("POST", LEASES, lease_named("anything"))
        other_user.send("DELETE", f"{LEASES}/purelb-node-n1")
        other_user.patch(f"{GROUPS}/pool", {"spec": {"remote": {"multiPool": True}}})
        other_user.patch(
            "/api/v1/nodes/n3", {"spec": {"taints": [{**TAINT, "effect": "NoExecute"}]}}
        )

    def test_kubelet_keeps_renewing_its_lease(self, lab, agent):
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
        before = lab.api.get(path)["spec"]["renewTime"]
        # Every 10 s, and often enough as long as it is less than its duration of 40 s.
        lab.api.wait(path, lambda found: found["spec"]["renewTime"] > before, seconds=40)
