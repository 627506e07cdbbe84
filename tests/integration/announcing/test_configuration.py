# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""LBNodeAgent objects take effect while the agents run."""

from __future__ import annotations

import pytest

from tests.support.lab.cluster_queries import (
    DAEMON_SET,
    LEASES,
    address_info,
    addresses_of,
    eventually,
    fetch,
    holder,
)

pytestmark = pytest.mark.timeout(90)
PATH = "/apis/purelb.io/v2/namespaces/purelb-system/lbnodeagents"
EVENTS = "/api/v1/namespaces/purelb-system/events"
# The contract's limit in seconds until a change has taken effect on the interface.
IN_FORCE = 2


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


def test_expression_selects_the_interface(cluster, make_service, configure):
    vips = addresses_of(cluster, make_service())
    configure(localInterface="^nothing")
    eventually(
        lambda: not any(cluster.holders(vip) for vip in vips), "withdrawal", seconds=IN_FORCE
    )
    eventually(lambda: not any(subnets(cluster, n) for n in cluster.nodes), "empty Leases")
    configure(localInterface="^eth0$")
    eventually(
        lambda: all(len(cluster.holders(vip)) == 1 for vip in vips), "return", seconds=IN_FORCE
    )
    wait_for_states(cluster, dict.fromkeys(cluster.nodes, "configured"))


def test_invalid_expression_is_reported_until_corrected(cluster, make_service, configure):
    vips = addresses_of(cluster, make_service())
    assert {state(cluster, node) for node in cluster.nodes} == {"default"}
    configure(localInterface="eth(")
    eventually(
        lambda: not any(cluster.holders(vip) for vip in vips), "withdrawal", seconds=IN_FORCE
    )
    wait_for_states(cluster, dict.fromkeys(cluster.nodes, "invalid"))
    uid = cluster.api.get(f"{PATH}/test")["metadata"]["uid"]
    about = f"involvedObject.uid={uid},reason=InvalidConfiguration"
    events = eventually(
        lambda: (e := cluster.api.items(EVENTS, fieldSelector=about)) and len(e) == 3 and e,
        "an event of each node",
    )
    assert all("'eth(' is not a regular expression" in event["message"] for event in events)
    configure(localInterface="eth")
    eventually(
        lambda: all(len(cluster.holders(vip)) == 1 for vip in vips), "return", seconds=IN_FORCE
    )


def test_only_selected_nodes_announce(cluster, make_service, configure):
    vips = addresses_of(cluster, make_service())
    configure(selector={"matchLabels": {"kubernetes.io/hostname": "n2"}})
    eventually(lambda: all(cluster.holders(vip) == {"n2"} for vip in vips), "all on n2", seconds=5)
    wait_for_states(cluster, {"n1": "deselected", "n2": "configured", "n3": "deselected"})


@pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
def test_lifetimes_and_prefix_route_follow_the_configuration(
    cluster, make_service, configure, family
):
    (vip,) = (a for a in addresses_of(cluster, make_service()) if (":" in a) == (family == 6))
    node = holder(cluster, vip)
    configure(addressConfig={"localInterface": {"preferredLifetime": 2, "noPrefixRoute": False}})

    def is_changed():
        info = address_info(cluster, node, vip)
        # To change the prefix route, the agent removes the address and adds it again.
        return info and info["preferred_life_time"] <= 2 and not info.get("noprefixroute")

    eventually(is_changed, "change on the interface", seconds=IN_FORCE)


def test_agents_have_not_restarted(cluster):
    assert cluster.api.get(DAEMON_SET)["status"]["numberReady"] == len(cluster.nodes)
