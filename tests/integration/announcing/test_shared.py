# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Services with several addresses, shared addresses, and preference for nodes with endpoints."""

from __future__ import annotations

import time

import pytest

from labkit.probe.addresses import nodes_with
from tests.support.lab.cluster_queries import (
    GRACEFUL,
    addresses_of,
    eventually,
    holder,
    lease_info,
    timed,
    wait_for_endpoints,
)
from tests.support.lab.faults import without_allocator

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def by_hand(cluster, make_service):
    """Creates Services with addresses from the test, while no allocator runs."""

    def make(*vips, **spec):
        annotations = {
            "purelb.io/allocated-by": "PureLB",
            "purelb.io/allocated-from": "default",
            "purelb.io/pool-type": "local",
            "purelb.io/allow-shared-ip": "tests",
        }
        path = make_service(annotations=annotations, **spec)
        ingress = [{"ip": vip} for vip in vips]
        cluster.api.merge_patch(
            f"{path}/status", {"status": {"loadBalancer": {"ingress": ingress}}}
        )
        return path

    with without_allocator(cluster):
        yield make
        # Before the allocator starts again.
        balancers = cluster.api.items("/api/v1/services", fieldSelector="spec.type=LoadBalancer")
        for service in balancers:
            typed = {"kind": "Service", "apiVersion": "v1", **service}
            cluster.api.delete(cluster.api.path_of(typed))


@pytest.mark.thorough
def test_shared_address_is_withdrawn_with_its_last_service(cluster, by_hand):
    vips = ["172.28.1.240", "fd28:0:0:1::240"]
    first = by_hand(*vips)
    second = by_hand(*vips, ports=[{"port": 81, "targetPort": 8080}])
    winners = {vip: holder(cluster, vip) for vip in vips}
    cluster.api.delete(first)
    time.sleep(2)
    assert {vip: nodes_with(cluster, vip) for vip in vips} == {v: {n} for v, n in winners.items()}
    cluster.api.delete(second)
    eventually(lambda: not any(nodes_with(cluster, vip) for vip in vips), "withdrawal")


def test_each_address_of_a_service_is_on_its_own_winner(cluster, by_hand):
    vips = [f"172.28.1.{n}" for n in (241, 242, 243)]
    vips += [f"fd28:0:0:1::{n}" for n in (241, 242, 243)]
    path = by_hand(*vips)
    found = {vip: holder(cluster, vip) for vip in vips}
    audited = {v["address"]: v["winner"] for v in lease_info(cluster.kubeconfig)["vips"]}
    assert {vip: audited[vip] for vip in vips} == found

    def announced():
        annotations = cluster.api.get(path)["metadata"]["annotations"]
        entries = " ".join(annotations.get(f"purelb.io/announcing-IPv{v}", "") for v in (4, 6))
        return set(entries.split()) == {f"{node},eth0,{vip}" for vip, node in found.items()}

    eventually(announced, "an entry of each winner")


def test_node_with_a_ready_endpoint_is_preferred(cluster, make_service, label_pod_on, figure):
    label_pod_on("n1")
    annotations = {"purelb.io/node-affinity": "service-endpoints"}
    path = make_service(annotations=annotations, selector={"here": "yes"})
    vips = addresses_of(cluster, path)
    for node in ("n1", "n2", "n3"):
        label_pod_on(node)
        wait_for_endpoints(cluster, path, node)
        seconds = timed(
            lambda n=node: all(nodes_with(cluster, vip) == {n} for vip in vips),
            f"{vips} on {node}",
            seconds=GRACEFUL,
        )
        figure(f"on {node} after {seconds:.2f} s")
    # Without a ready endpoint every node is a candidate, and the address stays announced.
    label_pod_on("")
    wait_for_endpoints(cluster, path)

    def holders_are_the_winners():
        audited = {v["address"]: v["winner"] for v in lease_info(cluster.kubeconfig)["vips"]}
        return all(nodes_with(cluster, vip) == {audited[vip]} for vip in vips)

    eventually(holders_are_the_winners, "each address on the winner of the audit")


@pytest.mark.thorough
def test_announcing_entries_of_deleted_nodes_are_removed(cluster, make_service):
    path = make_service()
    vip4, _vip6 = addresses_of(cluster, path)
    winner = holder(cluster, vip4)
    key = "purelb.io/announcing-IPv4"
    own = f"{winner},eth0,{vip4}"
    cluster.api.merge_patch(path, {"metadata": {"annotations": {key: f"gone,eth0,{vip4} {own}"}}})

    def entries():
        return cluster.api.get(path)["metadata"]["annotations"].get(key)

    eventually(lambda: entries() == own, "end of the entry")
    cluster.api.merge_patch(path, {"metadata": {"annotations": {key: None}}})
    eventually(lambda: entries() == own, "the own entry again")


@pytest.mark.thorough
def test_address_without_candidates_is_reported_once(cluster, by_hand):
    path = by_hand("192.0.2.7")
    uid = cluster.api.get(path)["metadata"]["uid"]
    selector = f"reason=NoEligibleNodes,involvedObject.uid={uid}"
    events = "/api/v1/namespaces/default/events"
    eventually(lambda: cluster.api.items(events, fieldSelector=selector), "event", seconds=20)
    time.sleep(3)
    (event,) = cluster.api.items(events, fieldSelector=selector)
    assert "192.0.2.7 is announced nowhere" in event["message"]
