# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A Service's class changes and returns in the API server; all its other fields stay."""

from __future__ import annotations

from typing import Any

import pytest

from labkit.lab import Lab
from purelb.migrate import handover

DUAL = {"ipFamilyPolicy": "RequireDualStack"}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "dual-stack": DUAL,
    "only IPv6": {"ipFamilies": ["IPv6"]},
    "local traffic": {**DUAL, "externalTrafficPolicy": "Local"},
    "without node ports": {**DUAL, "allocateLoadBalancerNodePorts": False},
    "some sources": {"loadBalancerSourceRanges": ["192.0.2.0/24", "2001:db8::/32"]},
    "by loadBalancerIP": {"loadBalancerIP": "192.0.2.7"},
    "sticky": {"sessionAffinity": "ClientIP"},
}


@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_service_is_unchanged_after_its_class_changed_and_returned(lab: Lab, spec: dict[str, Any]):
    api = lab.api
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "moving", "namespace": "default"},
        # A class that nothing here serves.
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "example.com/before",
            "ports": [{"port": 80}],
            **spec,
        },
    }
    path = api.path_of(api.create(body))
    try:
        before = api.get(path)
        for load_balancer_class in ("example.com/after", "example.com/before"):
            left = api.merge_patch(path, handover.release_patch(api.get(path)))
            assert left["spec"]["type"] != "LoadBalancer"
            api.merge_patch(path, handover.claim_patch(left, load_balancer_class))
            there = api.merge_patch(path, handover.cleanup_patch(api.get(path)))
            wanted = {**before["spec"], "loadBalancerClass": load_balancer_class}
            assert there["spec"] == wanted
        assert api.get(path)["metadata"].get("annotations") == before["metadata"].get("annotations")
    finally:
        api.delete(path)
