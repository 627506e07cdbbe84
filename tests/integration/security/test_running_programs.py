# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The programs themselves, installed with their policies: nothing that they ask is refused."""

from __future__ import annotations

import json

import pytest

from tests.support.lab.cluster_queries import addresses_of, eventually, holder
from tests.support.lab.dry_runs import V4, V6

pytestmark = pytest.mark.timeout(120)
ACCOUNTS = "system:serviceaccount:purelb-system:"
REFUSED = {403, 422}


def requests_of_programs(lab, position):
    """What was logged after a position: other tests let the API server refuse things."""
    with lab.audit_log.open() as log:
        log.seek(position)
        lines = log.readlines()
    for line in lines:
        entry = json.loads(line)
        if entry["user"]["username"].startswith(ACCOUNTS):
            yield entry


def test_a_service_comes_and_goes_and_nothing_is_refused(cluster, make_service):
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
    assert [one for one in written() if one[2] in REFUSED] == []
