# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from labkit.cluster.routing import bgpd_config
from labkit.topology import plan

LAB = plan(nodes=3, placements=["n2=lan2,lan1"])


def lines(name: str) -> list[str]:
    return [line.strip() for line in bgpd_config(LAB, LAB.host(name)).splitlines()]


def peers(name: str) -> list[str]:
    return [line.split()[1] for line in lines(name) if line.endswith(" activate")]


def test_node_peers_with_the_router_on_its_first_lan_in_both_families():
    assert peers("n1") == ["172.28.1.1", "fd28:0:0:1::1"]
    assert peers("n2") == ["172.28.2.1", "fd28:0:0:2::1"]


def test_router_peers_with_every_node():
    v4 = ["172.28.1.11", "172.28.2.12", "172.28.1.13"]
    v6 = ["fd28:0:0:1::11", "fd28:0:0:2::12", "fd28:0:0:1::13"]
    assert peers("router") == v4 + v6


def test_node_advertises_addresses_of_kube_lb0_and_router_nothing():
    assert lines("n1").count("redistribute connected route-map told") == 2
    assert "match interface kube-lb0" in lines("n1")
    assert not [line for line in lines("router") if line.startswith("redistribute")]


def test_router_accepts_multiple_paths_in_both_families():
    assert lines("router").count("maximum-paths ibgp 128") == 2


def test_route_maps_are_defined_before_they_are_used():
    text = lines("n1")
    assert text.index("route-map told permit 10") < text.index("router bgp 64512")
