# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics and health endpoints, the agents' Leases and their requests at rest."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest

from tests.support.lab.cluster_queries import addresses_of, eventually, fetch, holder, metric

pytestmark = pytest.mark.timeout(60)
PORT = 7472
LEASE = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases/purelb-node-{}"


@pytest.mark.parametrize("family", ["v4", "v6"])
def test_every_agent_serves_its_endpoints(cluster, family):
    wanted = {"lease_healthy": 1, "member_count": len(cluster.nodes), "local_subnet_count": 2}
    for node in cluster.nodes.values():
        address = getattr(node, family)
        for path in ("/healthz", "/readyz"):
            assert fetch(cluster, address, path=path, port=PORT) == "ok\n"

        # An agent may learn of other nodes' new Leases a while after they are written.
        def is_settled(address=address):
            text = fetch(cluster, address, path="/metrics", port=PORT)
            return wanted == {name: metric(text, f"purelb_election_{name}") for name in wanted}

        eventually(is_settled, f"metrics {wanted} of {node.name}")


def test_metrics_of_an_address_end_with_it(cluster, make_service):
    path = make_service()
    vips = addresses_of(cluster, path)
    for vip in vips:
        node = cluster.nodes[holder(cluster, vip)]

        # The kernel has the address before its agent counts it.
        def is_counted(node=node, vip=vip):
            text = fetch(cluster, node.v4, path="/metrics", port=PORT)
            is_announced = f'purelb_lbnodeagent_announced{{ip="{vip}",node="{node.name}"' in text
            return is_announced and metric(text, "purelb_lbnodeagent_address_renewals_active") >= 1

        eventually(is_counted, f"metrics of {vip} on {node.name}")
    cluster.api.delete(path)

    def series_of(address):
        text = fetch(cluster, address, path="/metrics", port=PORT)
        return [line for line in text.splitlines() if any(f'ip="{vip}"' in line for vip in vips)]

    for node in cluster.nodes.values():
        eventually(lambda n=node: not series_of(n.v4), "end of the series")


def test_lease_has_what_other_agents_need(cluster):
    for name in cluster.nodes:
        lease = cluster.api.get(LEASE.format(name))
        meta, spec = lease["metadata"], lease["spec"]
        assert meta["annotations"]["purelb.io/subnets"] == "172.28.1.0/24,fd28:0:0:1::/64"
        assert meta["annotations"]["purelb.io/instance"]
        assert [o["kind"] for o in meta["ownerReferences"]] == ["Node"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == (name, 3)


@pytest.mark.thorough
def test_idle_agent_only_renews_its_lease(cluster):
    begin = cluster.audit_log.read_text().count("\n")
    time.sleep(20)
    # The API server may be writing the last line.
    end = cluster.audit_log.read_text().count("\n")
    requests = Counter(
        (entry["user"]["extra"]["authentication.kubernetes.io/node-name"][0], entry["verb"])
        for entry in map(json.loads, cluster.audit_log.read_text().splitlines()[begin:end])
        if entry["user"]["username"].endswith(":lbnodeagent") and entry["verb"] != "watch"
    )
    assert {verb for _node, verb in requests} == {"update"}
    for node in cluster.nodes:
        # Every second.
        assert 15 <= requests[node, "update"] <= 21
