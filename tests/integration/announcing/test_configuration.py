# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""LBNodeAgent objects take effect while the agents run."""

from __future__ import annotations

import pytest

from labkit.probe.addresses import nodes_with
from tests.support.lab.cluster_queries import (
    GRACEFUL,
    IN_FORCE,
    LEASES,
    address_info,
    addresses_of,
    eventually,
    fetch,
    holder,
    lease_info,
    timed,
)
from tests.support.lab.faults import ip

pytestmark = pytest.mark.timeout(90)
PATH = "/apis/purelb.io/v2/namespaces/purelb-system/lbnodeagents"
EVENTS = "/api/v1/namespaces/purelb-system/events"


@pytest.fixture
def configure(cluster):
    """Applies LBNodeAgent objects; deletes them after the test."""
    made = []

    def apply(name="test", *, selector=None, **local):
        spec = {"local": local, **({"nodeSelector": selector} if selector else {})}
        meta = {"name": name, "namespace": "purelb-system"}
        body = {"apiVersion": "purelb.io/v2", "kind": "LBNodeAgent", "metadata": meta, "spec": spec}
        cluster.api.apply(body)
        made.append(f"{PATH}/{name}")

    yield apply
    for path in made:
        cluster.api.delete(path)
    # The Leases alone may be those of the deleted configuration.
    wait_for_states(cluster, dict.fromkeys(cluster.nodes, "default"))
    eventually(lambda: all(subnets(cluster, n) for n in cluster.nodes), "subnets in every Lease")


def subnets(lab, node):
    lease = lab.api.get(f"{LEASES}/purelb-node-{node}")
    return lease["metadata"]["annotations"]["purelb.io/subnets"]


def state(lab, node):
    text = fetch(lab, lab.nodes[node].v4, path="/metrics", port=7472)
    (row,) = [
        line
        for line in text.splitlines()
        if line.startswith("purelb_lbnodeagent_selector_state{") and line.endswith(" 1.0")
    ]
    return row.partition('state="')[2].partition('"')[0]


def wait_for_states(lab, expected):
    """Wait for the state of each node: one that holds no address may be later than the others."""
    eventually(lambda: {n: state(lab, n) for n in lab.nodes} == expected, f"states {expected}")


def are_withdrawn(lab, vips):
    return not any(nodes_with(lab, vip) for vip in vips)


def are_announced(lab, vips):
    return all(len(nodes_with(lab, vip)) == 1 for vip in vips)


def test_expression_selects_the_interface(cluster, make_service, configure, figure):
    vips = addresses_of(cluster, make_service())
    configure(localInterface="^nothing")
    seconds = timed(lambda: are_withdrawn(cluster, vips), "withdrawal")
    figure(f"withdrawn after {seconds:.2f} s")
    eventually(lambda: not any(subnets(cluster, n) for n in cluster.nodes), "empty Leases")
    configure(localInterface="^eth0$")
    seconds = timed(lambda: are_announced(cluster, vips), "return")
    figure(f"announced again after {seconds:.2f} s")
    wait_for_states(cluster, dict.fromkeys(cluster.nodes, "configured"))


def test_invalid_expression_is_reported_until_corrected(cluster, make_service, configure, figure):
    vips = addresses_of(cluster, make_service())
    assert {state(cluster, node) for node in cluster.nodes} == {"default"}
    configure(localInterface="eth(")
    seconds = timed(lambda: are_withdrawn(cluster, vips), "withdrawal")
    figure(f"withdrawn after {seconds:.2f} s")
    wait_for_states(cluster, dict.fromkeys(cluster.nodes, "invalid"))
    uid = cluster.api.get(f"{PATH}/test")["metadata"]["uid"]
    about = f"involvedObject.uid={uid},reason=InvalidConfiguration"
    events = eventually(
        lambda: (e := cluster.api.items(EVENTS, fieldSelector=about)) and len(e) == 3 and e,
        "an event of each node",
    )
    assert all("'eth(' is not a regular expression" in event["message"] for event in events)
    configure(localInterface="eth")
    seconds = timed(lambda: are_announced(cluster, vips), "return")
    figure(f"announced again after {seconds:.2f} s")


def test_expression_that_matches_a_part_of_a_name_is_reported(cluster, configure):
    lan100 = "link add link eth0 name eth0.100 type macvlan mode bridge"
    ip(cluster, "n2", lan100, "link set eth0.100 up", "addr add 172.28.100.12/24 dev eth0.100")
    try:
        configure(localInterface="eth0")
        uid = cluster.api.get(f"{PATH}/test")["metadata"]["uid"]
        about = f"involvedObject.uid={uid},reason=AmbiguousInterface"

        def of_n2():
            events = cluster.api.items(EVENTS, fieldSelector=about)
            return [e for e in events if e["message"].startswith("Node n2 ")]

        (event,) = eventually(of_n2, "event")
        # Chance may give a Pod of any node an interface such as veth0c9a22d5.
        named = event["message"].partition(":")[0].partition(" uses ")[2].split(", ")
        assert {"eth0", "eth0.100"} <= set(named)
        assert "'eth0' matches anywhere" in event["message"]
        assert "172.28.100.0/24" in subnets(cluster, "n2")
        configure(localInterface="^eth0$")
        eventually(lambda: "172.28.100.0/24" not in subnets(cluster, "n2"), "whole names alone")
    finally:
        ip(cluster, "n2", "link del eth0.100")
        eventually(lambda: "172.28.100.0/24" not in subnets(cluster, "n2"), "the usual subnets")


def test_only_selected_nodes_announce(cluster, make_service, configure, figure):
    vips = addresses_of(cluster, make_service())
    configure(selector={"matchLabels": {"kubernetes.io/hostname": "n2"}})
    seconds = timed(
        lambda: all(nodes_with(cluster, vip) == {"n2"} for vip in vips),
        "all on n2",
        seconds=GRACEFUL,
    )
    figure(f"on the selected node after {seconds:.2f} s")
    wait_for_states(cluster, {"n1": "deselected", "n2": "configured", "n3": "deselected"})
    causes = [f for f in lease_info(cluster.kubeconfig)["findings"] if "Lease" in f["object"]]
    assert {(f["code"], f["message"]) for f in causes} == {
        ("leaseWithoutSubnets", f"no LBNodeAgent selects {node}, so it announces nothing")
        for node in ("n1", "n3")
    }


def test_object_without_settings_is_skipped(cluster, configure):
    configure("for-all")
    wait_for_states(cluster, dict.fromkeys(cluster.nodes, "configured"))
    cluster.api.merge_patch(f"{PATH}/for-all", {"spec": {"local": None}})
    wait_for_states(cluster, dict.fromkeys(cluster.nodes, "default"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("wrong", "right"), [("^nothing", "^eth0$"), ("eth(", "eth")], ids=["other", "invalid"]
)
def test_changed_expression_is_in_force_within_two_seconds(
    cluster, make_service, configure, wrong, right
):
    vips = addresses_of(cluster, make_service())
    configure(localInterface=wrong)
    eventually(lambda: are_withdrawn(cluster, vips), "withdrawal", seconds=IN_FORCE)
    eventually(lambda: not any(subnets(cluster, n) for n in cluster.nodes), "empty Leases")
    configure(localInterface=right)
    eventually(lambda: are_announced(cluster, vips), "return", seconds=IN_FORCE)


@pytest.mark.thorough
def test_lifetimes_and_prefix_route_follow_the_configuration(cluster, make_service, configure):
    holders = {vip: holder(cluster, vip) for vip in addresses_of(cluster, make_service())}
    for vip in (vip for vip in holders if ":" in vip):
        assert address_info(cluster, holders[vip], vip)["preferred_life_time"] == 0
    configure(addressConfig={"localInterface": {"preferredLifetime": 4, "noPrefixRoute": False}})

    def is_changed(vip):
        info = address_info(cluster, holders[vip], vip)
        # To change the prefix route, the agent removes the address and adds it again.
        is_routed = info and not info.get("noprefixroute")
        return is_routed and 0 < info["preferred_life_time"] <= 4

    eventually(
        lambda: all(is_changed(vip) for vip in holders), "change on the interface", seconds=IN_FORCE
    )
