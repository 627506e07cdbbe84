# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from purelb.core.model import InterfaceAddress, Link
from purelb.core.names import ADDRESS_PROTOCOL, MAX_MACS, MAX_SUBNETS
from purelb.core.node.configuration import NodeConfig
from purelb.core.node.interfaces import (
    default_links,
    lease_subnets,
    place_for,
    segment_macs,
    segments,
    selected_by_part,
    selected_links,
)
from tests.support.core.snapshots import ETH0, OWN4, OWN6, VIP4, on_eth0

ETH1 = Link(3, "eth1", default_metrics={4: 100})
ETH2 = Link(4, "eth2", default_metrics={6: 10})
DOWN = Link(5, "eth3", is_up=False, default_metrics={4: 0, 6: 0})


def never(_held):
    return False


def ends(held):
    return held.expires_at is not None


class TestDefaultLinks:
    def test_the_lowest_metric_wins(self):
        assert default_links([ETH1, ETH0]) == (ETH0,)

    def test_each_family_has_its_own(self):
        assert default_links([ETH0, ETH2]) == (ETH0, ETH2)

    def test_an_interface_that_is_down_does_not_count(self):
        assert default_links([DOWN, ETH1]) == (ETH1,)

    def test_without_a_default_route_there_is_none(self):
        assert default_links([Link(9, "eth9")]) == ()


def subnets(addresses, *, is_vip=never):
    return lease_subnets(segments([ETH0], addresses, is_vip=is_vip))


class TestSubnets:
    def test_are_those_of_the_selected_interfaces_in_order(self):
        elsewhere = InterfaceAddress(3, ip_address("10.0.0.1"), 8)
        found = subnets([OWN6, elsewhere, OWN4])
        assert list(map(str, found)) == ["172.28.1.0/24", "fd28::/64"]

    def test_addresses_that_tell_of_no_segment_do_not_count(self):
        odd = [
            InterfaceAddress(2, ip_address("fe80::1"), 64),
            InterfaceAddress(2, ip_address("169.254.1.1"), 16),
            InterfaceAddress(2, ip_address("fd01::1"), 64, tentative=True),
            InterfaceAddress(2, ip_address("fd02::1"), 64, dad_failed=True),
            InterfaceAddress(2, ip_address("192.0.2.1"), 7),
            InterfaceAddress(2, ip_address("fd03::1"), 15),
        ]
        assert subnets(odd) == ()

    def test_a_deprecated_address_still_shows_its_subnet(self):
        assert subnets([replace(OWN4, deprecated=True), replace(OWN6, deprecated=True)]) == (
            OWN4.network,
            OWN6.network,
        )

    def test_an_interface_without_a_carrier_is_on_no_segment(self):
        unplugged = replace(ETH0, has_carrier=False)
        same = InterfaceAddress(3, ip_address("172.28.1.12"), 24)
        found = segments([unplugged, ETH1], [OWN4, OWN6, same], is_vip=never)
        assert found == ((ETH1, ip_network("172.28.1.0/24")),)

    def test_a_vip_does_not_count(self):
        assert subnets([on_eth0(VIP4, prefixlen=32)], is_vip=ends) == ()

    def test_are_no_more_than_fit(self):
        many = [InterfaceAddress(2, ip_address("10.0.0.1") + i * 256, 24) for i in range(300)]
        assert len(subnets(many)) == MAX_SUBNETS


class TestOnLinkRoutes:
    NEAR = frozenset(map(ip_network, ("192.0.2.0/26", "2001:db8:1::/64")))
    LINK = replace(ETH0, on_link=NEAR)
    HOST4 = InterfaceAddress(2, ip_address("192.0.2.7"), 32)
    HOST6 = InterfaceAddress(2, ip_address("2001:db8:1::7"), 128)

    def subnets(self, *addresses, link=LINK, is_vip=never):
        return [str(n) for n in lease_subnets(segments([link], addresses, is_vip=is_vip))]

    def test_show_the_subnet_of_an_address_with_the_mask_of_one_host(self):
        assert self.subnets(self.HOST4) == ["192.0.2.0/26", "192.0.2.7/32"]
        assert self.subnets(self.HOST6) == ["2001:db8:1::/64", "2001:db8:1::7/128"]
        both = self.subnets(self.HOST4, self.HOST6)
        assert both == ["192.0.2.0/26", "192.0.2.7/32", "2001:db8:1::/64", "2001:db8:1::7/128"]

    def test_count_though_a_private_prefix_is_there_too(self):
        private = InterfaceAddress(2, ip_address("fd00::7"), 64)
        found = self.subnets(self.HOST6, private)
        assert found == ["2001:db8:1::/64", "2001:db8:1::7/128", "fd00::/64"]

    def test_need_not_contain_the_only_address(self):
        elsewhere = InterfaceAddress(2, ip_address("198.51.100.7"), 32)
        assert self.subnets(elsewhere) == ["192.0.2.0/26", "198.51.100.7/32"]

    def test_do_not_count_where_addresses_show_their_subnets(self):
        assert self.subnets(OWN4, OWN6) == ["172.28.1.0/24", "fd28::/64"]
        other = InterfaceAddress(2, ip_address("172.28.1.99"), 32)
        assert self.subnets(OWN4, OWN6, other) == ["172.28.1.0/24", "172.28.1.99/32", "fd28::/64"]

    def test_do_not_count_without_an_own_address(self):
        assert self.subnets() == []
        vip = on_eth0(ip_address("192.0.2.9"), prefixlen=32)
        assert self.subnets(vip, is_vip=ends) == []

    def test_do_not_count_where_hosts_have_no_ethernet_addresses(self):
        assert self.subnets(self.HOST4, link=replace(self.LINK, mac=b"")) == ["192.0.2.7/32"]


class TestPlace:
    def test_is_the_first_interface_whose_subnet_holds_the_address(self):
        same = InterfaceAddress(3, ip_address("172.28.1.12"), 24)
        found = segments([ETH0, ETH1], [same, OWN4], is_vip=never)
        assert place_for(VIP4, found) == (ETH0, ip_network("172.28.1.0/24"))

    def test_is_none_where_only_a_vip_has_the_subnet(self):
        assert place_for(VIP4, segments([ETH0], [on_eth0(VIP4)], is_vip=ends)) is None


def test_the_interface_for_remote_addresses_is_none_for_local_ones():
    dummy = Link(9, "kube-lb0")
    config = NodeConfig(local_interface=".*", interfaces=("kube-lb0",))
    assert selected_links([ETH0, dummy], config) == (ETH0,)


@pytest.mark.parametrize(
    ("expression", "names", "found"),
    [
        ("eth0", ["eth0", "eth0.100", "lo"], ["eth0", "eth0.100"]),
        ("eth0", ["eth0", "veth0a1b"], ["eth0", "veth0a1b"]),
        ("eth", ["eth0", "veth0a1b"], ["eth0", "veth0a1b"]),
        ("eth", ["veth0a1b"], ["veth0a1b"]),
        ("eth0", ["eth0"], []),
        ("eth", ["eth0", "eth1"], []),
        ("^eth0$", ["eth0", "eth0.100"], []),
        ("^bond[0-9]+$", ["bond0", "bond1"], []),
        ("eth0", ["eth0", "kube-eth0"], []),
        ("none", ["none", "none1"], []),
    ],
)
def test_an_expression_that_matches_parts_of_names_is_ambiguous(expression, names, found):
    config = NodeConfig(local_interface=expression, dummy_interface="kube-eth0")
    links = [Link(index, name) for index, name in enumerate(names, 2)]
    links.append(Link(99, "eth0.down", is_up=False))
    assert list(selected_by_part(links, config)) == found


def test_an_agent_knows_a_link_that_an_agent_made():
    assert Link(9, "kube-lb0", alias="purelb").is_ours
    assert not Link(9, "kube-lb0").is_ours


@pytest.mark.parametrize("mac", [b"", bytes(4), bytes(20)], ids=["none", "tunnel", "infiniband"])
def test_a_link_without_a_mac_of_six_bytes_is_no_ethernet(mac):
    assert ETH0.is_ethernet
    assert not Link(9, "tun0", mac).is_ethernet


def test_the_macs_of_a_node_are_those_of_links_with_addresses_the_selected_ones_first():
    links = {n: Link(n, f"eth{n}", bytes([2, 0, 0, 0, 0, n])) for n in range(2, 6)}
    tunnel = Link(6, "tun0")
    addresses = [
        InterfaceAddress(3, ip_address("10.0.0.3"), 24),
        InterfaceAddress(2, ip_address("fd00::2"), 64),
        InterfaceAddress(4, ip_address("fe80::4"), 64),
        InterfaceAddress(5, ip_address("10.0.0.9"), 32, protocol=ADDRESS_PROTOCOL),
        InterfaceAddress(6, ip_address("10.0.1.6"), 24),
    ]
    everything = (*links.values(), tunnel)
    assert segment_macs([links[3]], everything, addresses) == (links[3].mac, links[2].mac)
    assert segment_macs([], everything, addresses) == (links[2].mac, links[3].mac)
    many = [Link(n, "x", bytes([2, 0, 0, 0, 1, n])) for n in range(MAX_MACS + 1)]
    assert segment_macs(many, (), ()) == tuple(link.mac for link in many[:-1])
