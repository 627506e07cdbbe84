# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""On which interfaces the programs belong."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from purelb.core.fence.hooks import Hook, announcing_links, wanted_programs
from purelb.core.fence.programs import FenceProgram
from purelb.core.model import InterfaceAddress, Link

MAC = b"\2\0\0\0\0\1"
ETH0 = Link(2, "eth0", MAC)
GUARDED = {
    Hook(2, is_egress=False): FenceProgram.INGRESS,
    Hook(2, is_egress=True): FenceProgram.EGRESS,
}


def other(**fields):
    return Link(3, "other", **{"mac": MAC, **fields})


def own(link, text):
    address, length = text.split("/")
    return InterfaceAddress(link, ip_address(address), int(length))


def programs(link, *addresses, announcing=(2,)):
    """What there is to be on the other link."""
    links = (ETH0, link)
    found = wanted_programs(frozenset(announcing), links, addresses)
    assert {hook: found[hook] for hook in GUARDED} == GUARDED
    return [program for hook, program in found.items() if hook.link == link.index]


def test_both_directions_of_what_announces():
    assert wanted_programs(frozenset({2}), (ETH0,), ()) == GUARDED


@pytest.mark.parametrize("kind", ["", "bridge", "bond", "vlan", "macvlan", "team"])
def test_arp_of_other_interfaces(kind):
    assert programs(other(kind=kind)) == [FenceProgram.ARP]


@pytest.mark.parametrize("kind", ["dummy", "vxlan", "geneve", "ifb", "openvswitch"])
def test_nothing_where_no_lan_is(kind):
    assert programs(other(kind=kind), own(3, "10.0.0.1/24")) == []


@pytest.mark.parametrize("kind", ["veth", "netkit"])
def test_a_pods_interface_counts_if_it_has_an_address(kind):
    """Containers that are nodes have such interfaces as their NICs."""
    pod = other(kind=kind)
    assert programs(pod) == []
    assert programs(pod, own(3, "fe80::1/64")) == []
    assert programs(pod, own(3, "192.0.2.1/24")) == [FenceProgram.ARP]
    assert programs(pod, own(3, "2001:db8::1/64")) == [FenceProgram.ARP]


def test_what_has_no_ethernet_frames_has_no_programs():
    tunnel = other(mac=b"")
    assert programs(tunnel, own(3, "10.0.0.1/24")) == []
    assert wanted_programs(frozenset({3}), (tunnel,), ()) == {}


def test_parts_of_a_bridge_are_left_alone():
    bridge = Link(4, "br0", MAC, kind="bridge")
    part = other(master=4)
    found = wanted_programs(frozenset({4}), (bridge, part), ())
    assert {hook.link for hook in found} == {4}


def test_parts_of_a_bond_that_announces_may_send_arp_past_it():
    bond = Link(4, "bond0", MAC, kind="bond")
    part = other(master=4)
    found = wanted_programs(frozenset({4}), (bond, part), ())
    assert found[Hook(3, is_egress=True)] is FenceProgram.ARP
    idle = wanted_programs(frozenset({2}), (ETH0, bond, part), ())
    assert Hook(3, is_egress=True) not in idle


@pytest.mark.parametrize("subnet", ["192.0.2.{}/24", "2001:db8::{}/64"], ids=["v4", "v6"])
def test_a_second_interface_in_the_subnet_announces(subnet):
    addresses = (own(2, subnet.format(1)), own(3, subnet.format(2)))
    assert announcing_links({2}, (ETH0, other()), addresses) == {2, 3}


@pytest.mark.parametrize(
    ("link", "address"),
    [
        (other(), "198.51.100.1/24"),
        (other(), "192.0.2.7/32"),
        (other(mac=b""), "192.0.2.7/24"),
        (other(kind="dummy"), "192.0.2.7/24"),
    ],
    ids=["another subnet", "one address", "no Ethernet", "dummy"],
)
def test_others_do_not(link, address):
    addresses = (own(2, "192.0.2.1/24"), own(3, address))
    assert announcing_links({2}, (ETH0, link), addresses) == {2}


def test_the_same_link_local_subnet_is_no_segment():
    addresses = (own(2, "fe80::1/64"), own(3, "fe80::2/64"))
    assert announcing_links({2}, (ETH0, other()), addresses) == {2}


def test_a_host_address_is_no_segment():
    addresses = (own(2, "192.0.2.1/32"), own(3, "192.0.2.1/32"))
    assert announcing_links({2}, (ETH0, other()), addresses) == {2}
