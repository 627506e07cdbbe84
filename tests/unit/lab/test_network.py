# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import pytest

from labkit.cluster import nodes
from labkit.cluster.faults import partition_rules
from labkit.errors import Problem
from labkit.net import network, stand_ins
from labkit.topology import Topology, plan

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
        assert network.sysctls(LAB, LAB.host("router"))[key] == "1"
        assert key not in network.sysctls(LAB, LAB.host("n1"))


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


def varied(*variants):
    return plan(nodes=2, variants=variants)


def varied_commands(made, host="n1"):
    return network.host_commands(made, made.host(host))


def test_unknown_variant_is_refused_with_the_known_ones():
    with pytest.raises(Problem, match="there is no variant 'ipv9': use one of dhcp, host-masks"):
        varied("ipv9")


def test_variants_are_kept_in_the_state_and_make_another_topology():
    made = varied("promote", "dhcp", "dhcp")
    assert made.variants == ("dhcp", "promote")
    assert Topology.from_json(made.to_json()) == made
    assert made.planned == made != varied()


def test_nodes_have_addresses_with_the_mask_of_one_host_and_on_link_routes():
    found = varied_commands(varied("host-masks"))
    assert found[:2] == [
        "addr add 172.28.1.11/32 dev eth0",
        "addr add fd28:0:0:1::11/128 dev eth0 nodad noprefixroute",
    ]
    near = ["route add 172.28.1.0/24 dev eth0", "route add fd28:0:0:1::0/64 dev eth0 proto ra"]
    assert found[3:5] == near
    assert varied_commands(varied("host-masks"), "client") == varied_commands(varied(), "client")


def test_addresses_by_dhcp_are_renewed_with_the_same_words():
    made = varied("dhcp")
    life = f"valid_lft {network.LEASED_FOR} preferred_lft {network.LEASED_FOR}"
    v4, v6 = varied_commands(made)[:2]
    assert v4 == f"addr add 172.28.1.11/24 dev eth0 {life}"
    assert v6 == f"addr add fd28:0:0:1::11/64 dev eth0 nodad noprefixroute {life}"
    node = made.node("n1")
    again = network.own_addresses(made, node, node.interfaces[0], verb="change")
    assert again == [text.replace("addr add", "addr change") for text in (v4, v6)]


@pytest.mark.parametrize(("variants", "value"), [((), "0"), (("promote",), "1")])
def test_promote_secondaries_does_not_depend_on_the_machine(variants, value):
    made = varied(*variants)
    found = network.sysctls(made, made.node("n1"))
    names = {name: found[f"net.ipv4.conf.{name}.promote_secondaries"] for name in ("eth0", "all")}
    assert names == {"eth0": value, "all": "0"}


@pytest.mark.parametrize(("variants", "mode"), [((), "nftables"), (("iptables",), "iptables")])
def test_kube_proxy_has_its_mode(variants, mode, tmp_path):
    made = varied(*variants)
    assert f"--proxy-mode={mode}" in nodes.kube_proxy(made, made.node("n1"), tmp_path)


def test_stand_ins_run_only_where_a_variant_needs_them():
    assert stand_ins.wanted(varied("dhcp"))
    assert stand_ins.wanted(varied("ipvs", "promote"))
    assert not stand_ins.wanted(varied("iptables", "promote"))


def test_stand_in_for_ipvs_follows_the_services(monkeypatch):
    sent = []
    monkeypatch.setattr(stand_ins, "ip_batch", lambda c, **where: sent.append((where, c)))
    ipvs = stand_ins.Ipvs(varied().nodes[:1])
    where, made = sent.pop()
    assert made[0] == "link add kube-ipvs0 type bridge"
    assert where == {"namespace": "lab-n1", "force": False}

    def services(*ips):
        entries = [{"ip": ip} for ip in ips]
        return [
            {"status": {"loadBalancer": {"ingress": entries}}},
            {"status": {"loadBalancer": {}}},
        ]

    ipvs.follow(services("172.28.1.220", "fd28::1"))
    ipvs.follow(services("172.28.1.220"))
    ipvs.follow(services("172.28.1.221"))
    ipvs.close()
    assert [where["force"] for where, _found in sent] == [True, True, False]
    assert [found for _where, found in sent] == [
        ["addr add 172.28.1.220/32 dev kube-ipvs0"],
        ["addr del 172.28.1.220/32 dev kube-ipvs0", "addr add 172.28.1.221/32 dev kube-ipvs0"],
        ["link del kube-ipvs0"],
    ]
