# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

import ipaddress
import json
from dataclasses import replace

import pytest

from labkit.errors import Problem
from labkit.topology import MAX_LABS, Topology, parse_placements, plan, prefix_of


def test_addresses_contain_the_numbers_of_lan_and_host():
    lab = plan(nodes=3, placements=["n2=lan1,lan2"])
    assert lab.host("router").v4 == "172.28.1.1"
    assert lab.host("control").v6 == "fd28:0:0:1::2"
    assert [(i.name, i.v4, i.v6) for i in lab.node("n2").interfaces] == [
        ("eth0", "172.28.1.12", "fd28:0:0:1::12"),
        ("eth1", "172.28.2.12", "fd28:0:0:2::12"),
    ]


def test_second_interface_in_a_lan_has_an_address_of_no_node():
    lab = plan(nodes=100, placements=["n2=lan1,lan1"])
    first, second = lab.node("n2").interfaces
    assert (second.name, second.lan) == ("eth1", first.lan)
    assert (second.v4, second.v6) == ("172.28.1.112", "fd28:0:0:1::112")
    with pytest.raises(Problem, match="100 nodes at most"):
        plan(nodes=101, placements=["n2=lan1,lan1"])


@pytest.mark.parametrize("lan", ["lan2", "lan1"])
def test_connected_node_has_the_interface_that_a_placement_gives(lan: str):
    lab = plan(nodes=3).connected("n2", lan)
    placed = plan(nodes=3, placements=[f"n2=lan1,{lan}"])
    assert lab.lans == placed.lans
    for name in ("n2", "router"):
        shown = [replace(i, added=False) for i in lab.host(name).interfaces]
        assert shown == [*placed.host(name).interfaces]
    client = lab.host("client").on(lan)
    assert client
    assert client.v4.endswith(".3")


def test_disconnecting_undoes_connecting_in_any_order():
    before = plan(nodes=3, placements=["n3=lan2"])
    lab = before.connected("n2", "lan2").connected("n2", "lan3").connected("n1", "lan2")
    assert lab.planned == before
    lab = lab.disconnected("n2", "lan2")
    assert [i.name for i in lab.node("n2").interfaces] == ["eth0", "eth2"]
    assert lab.host("client").on("lan2")
    lab = lab.connected("n2", "lan1")
    assert [i.name for i in lab.node("n2").interfaces] == ["eth0", "eth2", "eth1"]
    for node, lan in (("n1", "lan2"), ("n2", "lan1"), ("n2", "lan3")):
        lab = lab.disconnected(node, lan)
    assert lab == before


@pytest.mark.parametrize(
    ("node", "lan", "message"),
    [("n2", "lan10", "lan1 to lan9"), ("router", "lan2", "no node"), ("n1", "lan2", "two at most")],
)
def test_impossible_connection_is_refused(node: str, lan: str, message: str):
    with pytest.raises(Problem, match=message):
        plan(nodes=2, placements=["n1=lan2,lan2"]).connected(node, lan)


def test_interface_of_the_placement_is_not_disconnected():
    with pytest.raises(Problem, match="not connected to lan2 after"):
        plan(nodes=2, placements=["n2=lan1,lan2"]).disconnected("n2", "lan2")


def test_addresses_and_port_names_of_interfaces_are_unique():
    lab = plan(nodes=200, placements=["n7=lan2,lan9"]).connected("n8", "lan2")
    cables = [i for h in lab.hosts for i in h.interfaces]
    for field in ("v4", "v6", "mac", "port"):
        values = [getattr(i, field) for i in cables]
        assert len(set(values)) == len(values)
    assert max(len(i.port) for i in cables) <= 15


def test_pod_subnets_of_200_nodes_are_valid_and_disjoint():
    nodes = plan(nodes=200).nodes
    v6 = {ipaddress.ip_network(n.pods_v6) for n in nodes}
    v4 = {ipaddress.ip_network(n.pods_v4) for n in nodes}
    assert (len(v4), len(v6)) == (200, 200)
    assert all(n.subnet_of(ipaddress.ip_network("fd00:244::/48")) for n in v6)


def test_router_is_on_every_lan_and_a_nodes_first_lan_comes_first():
    lab = plan(nodes=2, placements=["n1=lan3,lan1"])
    assert lab.lans == ("lan1", "lan3")
    assert [i.lan for i in lab.host("router").interfaces] == ["lan1", "lan3"]
    assert lab.node("n1").v4 == "172.28.3.11"


def test_lab_0_has_names_without_a_number():
    lab = plan(nodes=1)
    assert lab.namespaces == ("lab-switch", "lab-control", "lab-router", "lab-client", "lab-n1")
    assert lab.link_v4 == ("172.28.255.1/30", "172.28.255.2/30")
    assert lab.link_v6 == ("fd28:0:0:ff::1/126", "fd28:0:0:ff::2/126")
    assert (lab.host_link, lab.api_v4) == ("lab-host", "172.28.255.2")


def test_names_and_host_links_of_labs_are_disjoint():
    labs = [plan(number=number, nodes=200) for number in range(MAX_LABS)]
    names = [name for lab in labs for name in (*lab.namespaces, lab.host_link)]
    assert len(set(names)) == len(names)
    assert max(len(lab.host_link) for lab in labs) <= 15
    for links in ([lab.link_v4 for lab in labs], [lab.link_v6 for lab in labs]):
        subnets = [{ipaddress.ip_interface(a).network for a in link} for link in links]
        assert all(len(both) == 1 for both in subnets)
        assert len(set().union(*subnets)) == len(labs)


def test_no_labs_prefix_is_a_prefix_of_another_labs():
    prefixes = {prefix_of(number) for number in range(MAX_LABS)}
    assert not [(a, b) for a in prefixes for b in prefixes if a != b and a.startswith(b)]


def test_labs_of_different_numbers_have_the_same_interfaces():
    first, other = plan(nodes=2), plan(number=1, nodes=2)
    assert [h.interfaces for h in first.hosts] == [h.interfaces for h in other.hosts]


def test_saved_topology_loads_unchanged():
    lab = plan(number=7, nodes=2, placements=["n2=lan1,lan2"]).connected("n1", "lan2")
    assert Topology.from_json(json.loads(json.dumps(lab.to_json()))) == lab


@pytest.mark.parametrize(
    "text",
    ["n2", "n2=", "n2=lan0", "n2=lan10", "n2=lan1,", "client=lan2", "n0=lan1", "n2=lan1 ,lan2"],
)
def test_malformed_placement_is_refused_with_an_example(text: str):
    with pytest.raises(Problem, match=r"n2=lan1,lan2"):
        parse_placements([text], nodes=3)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["n4=lan2"], "n1 to n3 only"),
        (["n1=lan2", "n1=lan1"], "each node once"),
        (["n1=lan2,lan2,lan2"], "two at most"),
    ],
    ids=["no-such-node", "node-twice", "three-in-one-lan"],
)
def test_impossible_placement_is_refused(texts: list[str], message: str):
    with pytest.raises(Problem, match=message):
        parse_placements(texts, nodes=3)


@pytest.mark.parametrize("nodes", [0, -1, 201])
def test_number_of_nodes_out_of_range_is_refused(nodes: int):
    with pytest.raises(Problem, match="1 to 200 nodes"):
        plan(nodes=nodes)


def test_unknown_host_is_refused_with_the_known_hosts():
    with pytest.raises(Problem, match="control, router, client, n1"):
        plan(nodes=1).host("n9")
