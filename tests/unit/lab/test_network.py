# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

from labkit.cluster.faults import partition_rules
from labkit.net import network
from labkit.topology import plan

LAB = plan(nodes=3, placements=["n2=lan1,lan2", "n3=lan2"])


def commands(name: str):
    return network.host_commands(LAB, LAB.host(name))


def test_host_has_one_default_route_per_family_on_its_first_lan():
    defaults = [c for c in commands("n2") if "default" in c]
    assert defaults == [
        "route add default via 172.28.1.1",
        "route add default via fd28:0:0:1::1",
    ]


def test_router_has_no_default_route():
    assert not [c for c in commands("router") if "default" in c]


def test_pods_of_a_node_on_a_common_lan_have_a_direct_route():
    assert "route add 10.244.2.0/24 via 172.28.2.12" in commands("n3")
    assert "route add 10.244.3.0/24 via 172.28.2.13" in commands("n2")


def test_pods_of_a_node_on_another_lan_are_reached_by_the_router():
    assert not [c for c in commands("n1") if "10.244.3.0" in c]
    assert "route add 10.244.3.0/24 via 172.28.2.13" in commands("router")


def test_only_nodes_have_kube_lb0():
    has = {h.name for h in LAB.hosts if "link set kube-lb0 up" in commands(h.name)}
    assert has == {"n1", "n2", "n3"}


def test_router_hashes_next_hops_by_ports_too():
    for family in ("ipv4", "ipv6"):
        key = f"net.{family}.fib_multipath_hash_policy"
        assert network.sysctls(LAB.host("router"))[key] == "1"
        assert key not in network.sysctls(LAB.host("n1"))


def test_static_ipv6_addresses_skip_duplicate_detection():
    added = [c for h in LAB.hosts for c in commands(h.name) if c.startswith("addr add fd")]
    assert added
    assert all(c.endswith("nodad") for c in added)


def test_machine_gets_one_link_with_the_labs_mark():
    lines = network.uplink_commands(LAB, Path("/some/run"))
    links = {line.split()[2] for line in lines if line.startswith("link ")}
    assert links == {"lab-host"}
    assert "link set lab-host alias /some/run" in lines


def test_link_of_lab_15_has_its_own_name_and_addresses():
    lines = network.uplink_commands(plan(number=15, nodes=1), Path("/some/run"))
    assert "addr add 172.28.255.61/30 dev lab15-host" in lines
    assert "addr add fd28:0:0:ff::3d/126 dev lab15-host nodad" in lines


def test_partition_drops_both_families_both_ways_pods_included():
    rules = partition_rules(LAB.node("n2"))
    for address in ("172.28.1.12", "172.28.2.12", "10.244.2.0/24"):
        assert rules.count(address) == 2
    for address in ("fd28:0:0:1::12", "fd28:0:0:2::12", "fd00:244:0:2::/64"):
        assert rules.count(address) == 2
    assert "reject" not in rules
