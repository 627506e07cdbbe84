# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The policies themselves, and everybody whom they are not about."""

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
    V4,
    V6,
    Account,
    lease_named,
)

pytestmark = pytest.mark.timeout(120)


def test_the_api_server_finds_no_fault_in_the_policies(lab, installed):
    for policy in (o for o in installed if o["kind"] == "ValidatingAdmissionPolicy"):
        seen = lab.api.wait(
            lab.api.path_of(policy), lambda p: p["status"].get("observedGeneration"), seconds=20
        )
        assert not seen["status"].get("typeChecking"), seen["status"]


class TestEverybodyElse:
    """The policies stop nobody but the two accounts."""

    @pytest.fixture(params=["admin", "another account of the namespace"])
    def anybody(self, request, lab, pods):
        api = lab.api if request.param == "admin" else client(lab, NAMESPACE, "default")
        return Account(api)

    def test_may_do_all_that_the_programs_may_not(self, anybody, lab, pods, agent):
        path = f"{SERVICES}/announced"
        anybody.annotate(path, **{V4: "n3,eth0,192.0.2.3", V6: "n3,eth0,2001:db8::3"})
        anybody.patch(path, {"metadata": {"labels": {"a": "b"}}, "spec": {"ports": [{"port": 81}]}})
        anybody.patch(f"{path}/status", {"status": codec.ingress_status([ip_address("192.0.2.1")])})
        anybody.send("POST", LEASES, lease_named("anything"))
        anybody.send("DELETE", f"{LEASES}/purelb-node-n1")
        anybody.patch(f"{GROUPS}/pool", {"spec": {"remote": {"multiPool": True}}})
        anybody.patch("/api/v1/nodes/n3", {"spec": {"taints": [{**TAINT, "effect": "NoExecute"}]}})

    def test_a_kubelet_goes_on_renewing_its_lease(self, lab, agent):
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
        before = lab.api.get(path)["spec"]["renewTime"]
        lab.api.wait(path, lambda found: found["spec"]["renewTime"] > before, seconds=15)
