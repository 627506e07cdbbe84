# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Remote addresses are on every node, and a router learns them by BGP."""

from __future__ import annotations

import json
import time

import pytest

from labkit.probe.addresses import nodes_with
from tests.support.lab.cluster_queries import (
    IN_FORCE,
    address_info,
    answers,
    eventually,
    fetch,
    ingress,
    lease_info,
    timed,
    wait_for_endpoints,
)
from tests.support.lab.faults import replace_agents

pytestmark = pytest.mark.timeout(90)
DUMMY = "kube-lb0"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"


def group(name, v4, v6, aggregation):
    return {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": name, "namespace": "purelb-system"},
        "spec": {
            "remote": {
                "v4pool": {**v4, "aggregation": aggregation[0]},
                "v6pool": {**v6, "aggregation": aggregation[1]},
            }
        },
    }


@pytest.fixture(scope="module")
def groups(cluster):
    made = [
        group(
            "single",
            {"pool": "10.100.0.10-10.100.0.19", "subnet": "10.100.0.0/24"},
            {"pool": "fd28:100::10-fd28:100::19", "subnet": "fd28:100::/64"},
            ("/32", "/128"),
        ),
        group(
            "whole",
            {"pool": "10.100.1.10-10.100.1.19", "subnet": "10.100.1.0/24"},
            {"pool": "fd28:100:0:1::10-fd28:100:0:1::19", "subnet": "fd28:100:0:1::/64"},
            ("default", "default"),
        ),
    ]
    for body in made:
        cluster.api.apply(body)
    yield
    for body in made:
        cluster.api.delete(cluster.api.path_of(body))


@pytest.fixture(scope="module")
def routing(cluster):
    cluster.start_routing()
    yield
    cluster.stop_routing()


@pytest.fixture
def make_remote(cluster, groups, make_service):
    def make(name="single", **spec):
        path = make_service(annotations={"purelb.io/service-group": name}, **spec)
        service = cluster.api.wait(path, lambda s: len(ingress(s)) == 2, what="two addresses")
        return path, ingress(service)

    return make


def on_all(lab, vips):
    return all(nodes_with(lab, vip) == set(lab.nodes) for vip in vips)


def prefixes_of(vips):
    return [f"{vip}/{128 if ':' in vip else 32}" for vip in vips]


@pytest.mark.parametrize(
    ("name", "masks"),
    [
        pytest.param("single", (32, 128), id="single", marks=pytest.mark.thorough),
        pytest.param("whole", (24, 64), id="whole"),
    ],
)
def test_remote_address_is_on_the_dummy_interface_of_every_node(
    cluster, make_remote, figure, name, masks
):
    _path, vips = make_remote(name)
    figure(f"on every node after {timed(lambda: on_all(cluster, vips), 'every node'):.2f} s")
    for vip, mask in zip(vips, masks, strict=True):
        for node in cluster.nodes:
            info = address_info(cluster, node, vip)
            assert (info["prefixlen"], info["valid_life_time"]) == (mask, 4294967295)
            assert not info.get("noprefixroute")
            links = [
                link["ifname"]
                for link in cluster.addresses(node)
                if any(a.get("local") == vip for a in link["addr_info"])
            ]
            assert links == [DUMMY]


@pytest.mark.thorough
def test_every_node_announces_and_the_audit_has_no_findings(cluster, make_remote):
    path, vips = make_remote()

    def announced():
        annotations = cluster.api.get(path)["metadata"]["annotations"]
        entries = " ".join(annotations.get(f"purelb.io/announcing-IPv{v}", "") for v in (4, 6))
        return set(entries.split()) == {f"{n},{DUMMY},{vip}" for n in cluster.nodes for vip in vips}

    eventually(announced, "an entry of every node")
    eventually(lambda: not lease_info(cluster.kubeconfig)["findings"], "whole audit")
    uid = cluster.api.get(path)["metadata"]["uid"]
    selector = f"reason=AnnouncingNonLocal,involvedObject.uid={uid}"
    eventually(
        lambda: len(cluster.api.items(EVENTS, fieldSelector=selector)) == len(cluster.nodes),
        "an event of each node",
    )


def test_router_distributes_traffic_over_the_nodes(cluster, routing, make_remote, figure):
    _path, vips = make_remote(externalTrafficPolicy="Local")
    pods = cluster.api.items(PODS, labelSelector="app=web")
    nodes = {pod["spec"]["nodeName"] for pod in pods}
    seconds = timed(
        lambda: all(cluster.next_hops(prefix) == nodes for prefix in prefixes_of(vips)),
        "route by all",
    )
    figure(f"routes by all nodes after {seconds:.2f} s")
    for vip in vips:
        # A node may have the address before its kube-proxy knows it.
        eventually(
            lambda v=vip: all(answers(cluster, v) for _request in range(30)),
            f"answers of every node from {vip}",
        )
        pods_seen = {fetch(cluster, vip).strip() for _request in range(30)}
        # With traffic policy Local a node answers from its own pod, so pods identify nodes.
        assert len(pods_seen) > 1, pods_seen


@pytest.mark.thorough
def test_deleted_service_leaves_neither_address_nor_route(cluster, routing, make_remote, figure):
    path, vips = make_remote()
    eventually(lambda: on_all(cluster, vips), "the addresses on every node")
    cluster.api.delete(path)
    seconds = timed(lambda: not any(nodes_with(cluster, vip) for vip in vips), "withdrawal")
    figure(f"withdrawn after {seconds:.2f} s")
    seconds = timed(
        lambda: not any(cluster.next_hops(prefix) for prefix in prefixes_of(vips)),
        "end of the routes",
    )
    figure(f"routes gone {seconds:.2f} s later")


def test_address_follows_the_endpoints_with_local_traffic(
    cluster, make_remote, label_pod_on, figure
):
    label_pod_on("n2")
    path, vips = make_remote(externalTrafficPolicy="Local", selector={"here": "yes"})
    for node in ("n2", "n3"):
        label_pod_on(node)
        # The time until the endpoints change is not measured: it depends on the cluster.
        wait_for_endpoints(cluster, path, node)
        seconds = timed(
            lambda n=node: all(nodes_with(cluster, vip) == {n} for vip in vips),
            f"the addresses on {node}",
        )
        figure(f"on {node} after {seconds:.2f} s")
    label_pod_on("")
    wait_for_endpoints(cluster, path)
    eventually(lambda: not any(nodes_with(cluster, vip) for vip in vips), "withdrawal everywhere")


@pytest.mark.thorough
def test_lifetimes_and_route_follow_the_configuration(cluster, make_remote):
    config = {
        "apiVersion": "purelb.io/v2",
        "kind": "LBNodeAgent",
        "metadata": {"name": "default", "namespace": "purelb-system"},
        "spec": {
            "local": {
                "addressConfig": {"dummyInterface": {"validLifetime": 120, "noPrefixRoute": True}}
            }
        },
    }
    _path, vips = make_remote()
    eventually(lambda: on_all(cluster, vips), "the addresses on every node")

    def is_changed(vip):
        info = address_info(cluster, "n1", vip)
        return 0 < info.get("valid_life_time", 0) <= 120 and info.get("noprefixroute") is True

    cluster.api.apply(config)
    try:
        eventually(
            lambda: all(is_changed(vip) for vip in vips), "lifetime and no route", seconds=IN_FORCE
        )
    finally:
        cluster.api.delete(cluster.api.path_of(config))
    for vip in vips:
        eventually(
            lambda v=vip: address_info(cluster, "n1", v).get("valid_life_time") == 4294967295,
            "the default again",
        )


@pytest.mark.thorough
def test_remote_address_stays_when_an_agent_is_killed(cluster, make_remote):
    _path, vips = make_remote()
    eventually(lambda: on_all(cluster, vips), "the addresses on every node")
    before = json.dumps(address_info(cluster, "n1", vips[0]))
    cluster.kill("n1", "lbnodeagent")
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        assert on_all(cluster, vips)
        time.sleep(0.1)
    assert json.dumps(address_info(cluster, "n1", vips[0])) == before
    # Until a container that restarted twice is back, the addresses would stay for other tests.
    replace_agents(cluster, "n1")
