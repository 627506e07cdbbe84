# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The installed programs: their policies are enforced and refuse none of their requests."""

from __future__ import annotations

import json

import pytest

from tests.support.lab.cluster_queries import (
    IMAGE,
    addresses_of,
    eventually,
    holder,
    module_result,
)
from tests.support.lab.dry_runs import POLICIES, V4, V6

pytestmark = pytest.mark.timeout(240)
ACCOUNTS = "system:serviceaccount:purelb-system:"
REFUSED = {403, 422}


def requests_of_programs(lab, position):
    """Yield log entries after a position, as other tests cause refusals."""
    with lab.audit_log.open() as log:
        log.seek(position)
        lines = log.readlines()
    for line in lines:
        # The API server may be writing the last line.
        if not line.endswith("\n"):
            continue
        entry = json.loads(line)
        if entry["user"]["username"].startswith(ACCOUNTS):
            yield entry


def test_no_request_is_refused_during_the_life_of_a_service(cluster, make_service):
    position = cluster.audit_log.stat().st_size
    path = make_service()
    vips = {V4: None, V6: None}
    for vip in addresses_of(cluster, path):
        vips[V6 if ":" in vip else V4] = vip
    for annotation, vip in vips.items():
        home = holder(cluster, vip)
        eventually(
            lambda a=annotation, h=home: (
                cluster.api.get(path)["metadata"]["annotations"].get(a, "").startswith(f"{h},")
            ),
            f"{annotation} to name {home}",
        )
    cluster.api.delete(path)

    def written():
        return [
            (entry["verb"], entry["objectRef"]["resource"], entry["responseStatus"]["code"])
            for entry in requests_of_programs(cluster, position)
            if entry["verb"] not in ("get", "list", "watch") and "responseStatus" in entry
        ]

    done = {("patch", "services", 200), ("update", "leases", 200)}
    eventually(lambda: done <= {*written()}, "writes of both programs")
    assert [write for write in written() if write[2] in REFUSED] == []


@pytest.mark.thorough
def test_role_ends_when_each_policy_is_enforced(cluster, playbook, install_purelb):
    names = [
        policy["metadata"]["name"]
        for policy in cluster.api.items(POLICIES, labelSelector="app.kubernetes.io/name=purelb")
        if policy["metadata"]["name"].endswith(".purelb-system.purelb.io")
    ]
    assert len(names) == 9
    for name in names:
        cluster.api.delete(f"{POLICIES}/{name}")
    eventually(lambda: not any(enforced(cluster).values()), "policies that have ended", seconds=60)
    try:
        # Without writers: who may write the annotations cannot observe that others may not.
        no_one = {
            "purelb_install_image": IMAGE,
            "purelb_install_annotation_writers": [],
            "purelb_install_eviction_reporters": [],
        }
        playbook("purelb.purelb.install", "-e", json.dumps(no_one))
        assert all(enforced(cluster).values())
    finally:
        install_purelb()


def enforced(lab):
    """Return whether each policy that a dry run can reach is enforced, by name."""
    states = module_result(lab.kubeconfig, "purelb_policies_info")["policies"]
    assert len(states) == 7
    return {state["name"]: state["enforced"] for state in states}
