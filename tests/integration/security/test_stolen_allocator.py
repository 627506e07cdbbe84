# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a thief of the allocator's token can make the nodes announce; the allocators are away."""

from __future__ import annotations

import time

import pytest

from purelb.core import names
from tests.support.lab.accounts import client, objects_applied
from tests.support.lab.cluster_queries import VIPS_V4, VIPS_V6, eventually
from tests.support.lab.faults import holders_of, wait_for_candidates, without_allocator

pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]
NAMESPACE = "purelb-system"
GATEWAY = ["172.28.1.1", "fd28:0:0:1::1"]
# In the subnet, and in no pool.
STRAY = ["172.28.1.66", "fd28:0:0:1::66"]
POOLED = [VIPS_V4.rpartition("-")[2], VIPS_V6.rpartition("-")[2]]
# Seconds in which an address would have come.
SETTLED = 3


@pytest.fixture
def thief(cluster):
    """A client with the allocator's token, while no allocator runs."""
    with without_allocator(cluster):
        yield client(cluster, NAMESPACE, "allocator")


def give(thief, path, addresses):
    marks = {names.ALLOCATED_BY_ANNOTATION: names.ALLOCATED_BY, names.POOL_TYPE_ANNOTATION: "local"}
    ingress = [{"ip": address} for address in addresses]
    thief.merge_patch(path, {"metadata": {"annotations": marks}})
    thief.merge_patch(f"{path}/status", {"status": {"loadBalancer": {"ingress": ingress}}})


def about(lab, path):
    name = path.rpartition("/")[2]
    return [
        event["message"]
        for event in lab.api.items(
            "/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={name}"
        )
        if event["reason"] == "NoEligibleNodes"
    ]


def test_agents_announce_only_what_a_pool_has_and_no_gateway(cluster, make_service, thief):
    wait_for_candidates(cluster, "172.28.1.0/24", "fd28:0:0:1::/64")
    stray, gateway, pooled = (make_service() for _service in range(3))
    pools = {
        f"v{version}pool": {"pool": f"{address}-{address}", "subnet": subnet}
        for version, address, subnet in zip(
            (4, 6), GATEWAY, ("172.28.1.0/24", "fd28:0:0:1::/64"), strict=True
        )
    }
    trap = {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "gateways", "namespace": NAMESPACE},
        "spec": {"local": pools},
    }
    with objects_applied(cluster, [trap]):
        give(thief, stray, STRAY)
        give(thief, gateway, GATEWAY)
        give(thief, pooled, POOLED)
        eventually(
            lambda: all(len(on) == 1 for on in holders_of(cluster, *POOLED).values()),
            "addresses of a pool on a node each",
        )
        time.sleep(SETTLED)
        assert not any(holders_of(cluster, *STRAY, *GATEWAY).values())
        for path, words in ((stray, "no ServiceGroup has it"), (gateway, "is the gateway")):
            eventually(
                lambda p=path, w=words: any(w in text for text in about(cluster, p)),
                f"event with {words}",
                seconds=15,
            )
