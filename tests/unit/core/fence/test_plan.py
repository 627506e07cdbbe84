# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the fence is to guard, from what a node has and plans."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.fence.hooks import Hook
from purelb.core.fence.plan import plan_fence
from purelb.core.fence.programs import ANYWHERE, ELSEWHERE
from purelb.core.model import InterfaceAddress, Link
from tests.support.core.snapshots import (
    DUMMY,
    ETH0,
    NOW,
    REMOTE_GROUP,
    VIP4,
    VIP6,
    on_dummy,
    on_eth0,
    planned,
    service,
    snapshot,
)

BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
ETH0_HOOKS = {Hook(2, is_egress=False), Hook(2, is_egress=True)}
TUNNEL = Link(7, "tun0")


def fenced(made):
    made = replace(made, all_links=(*made.links, DUMMY), dummies=frozenset({DUMMY.index}))
    return plan_fence(made, planned(made), now=NOW)


def test_what_is_planned_is_guarded_before_it_is_there():
    found = fenced(snapshot(service()))
    assert found.vips == {VIP4: 2, VIP6: 2}
    assert found.programs.keys() == ETH0_HOOKS
    assert found.open_links == ()


@BOTH
def test_what_is_to_go_is_guarded_until_it_is_gone(vip):
    assert fenced(snapshot(held=(on_eth0(vip),))).vips == {vip: 2}


@BOTH
def test_nothing_of_others_is_guarded(vip):
    assert fenced(snapshot(held=(on_eth0(vip, protocol=0),))).vips == {}


@BOTH
def test_an_address_for_routing_is_not_guarded(vip):
    made = snapshot(service(), groups=(REMOTE_GROUP,), held=(on_dummy(vip),))
    assert fenced(made).vips == {}


def test_the_interface_of_an_older_configuration_is_guarded_as_long_as_it_has_addresses():
    old = Link(5, "eth5", b"\2\0\0\0\0\5")
    held = replace(on_eth0(VIP4), link=5)
    made = replace(snapshot(held=(held,)), all_links=(ETH0, old))
    hooks = plan_fence(made, planned(made), now=NOW).programs.keys()
    assert hooks == ETH0_HOOKS | {Hook(5, is_egress=False), Hook(5, is_egress=True)}


def test_an_interface_without_ethernet_is_a_gap():
    made = replace(snapshot(service()), links=(ETH0, TUNNEL), all_links=(ETH0, TUNNEL))
    assert plan_fence(made, planned(made), now=NOW).open_links == ("tun0",)


def test_it_stands_until_the_next_cycle():
    assert fenced(snapshot()).until == NOW + 40 + 3


def test_it_stands_until_the_last_address_has_gone():
    """The kernel may be late, and the request that puts the address, too."""
    assert fenced(snapshot(held=(on_eth0(VIP4, lifetime=80.0),))).until == NOW + 80 + 3
    planned_for = fenced(snapshot(service(), hold_until=NOW + 61)).until
    assert planned_for == NOW + 60 + 3
    assert fenced(snapshot(held=(on_eth0(VIP4, lifetime=None),))).until == float("inf")


@pytest.mark.parametrize("kind", ["vlan", "bond", "macvlan", "ipvlan", "team"])
def test_frames_of_some_interfaces_leave_by_others_too(kind):
    eth0 = replace(ETH0, kind=kind)
    made = snapshot(service(), links=(eth0,))
    assert fenced(made).vips == {VIP4: ANYWHERE, VIP6: ANYWHERE}


def test_what_another_node_is_to_have_is_not_answered():
    """Of IPv6, an interface answers for its own addresses only."""
    nodes = ("n1", "n2", "n3")
    made = [fenced(snapshot(service(), members=nodes, node=node)) for node in nodes]
    assert sorted(one.vips[VIP4] for one in made) == [ELSEWHERE, ELSEWHERE, 2]
    lost = fenced(snapshot(service(), hold_deadline=None))
    assert lost.vips == {VIP4: ELSEWHERE}


def test_a_copy_of_the_service_proxy_is_not_answered():
    proxy = Link(8, "kube-ipvs0", b"\2\0\0\0\0\x08", kind="dummy")
    copy = InterfaceAddress(8, VIP4, 32)
    made = snapshot(service(), hold_deadline=None, held=(copy,), all_links=(ETH0, proxy))
    assert plan_fence(made, planned(made), now=NOW).vips == {VIP4: ELSEWHERE}


def test_the_nodes_own_address_is_answered_whatever_service_has_it():
    own = on_eth0(VIP4, protocol=0, lifetime=None)
    assert fenced(snapshot(service(), hold_deadline=None, held=(own,))).vips == {}
    known = snapshot(service(), hold_deadline=None, known=frozenset({VIP4}))
    assert fenced(known).vips == {}


def test_addresses_of_this_node_come_first_where_not_all_fit(monkeypatch):
    monkeypatch.setattr("purelb.core.fence.plan.MOST_VIPS", 1)
    other = service("other", addresses=[ip_address("172.28.1.225")])
    made = fenced(snapshot(service(), other, hold_deadline=None, held=(on_eth0(VIP6),)))
    assert made.vips == {VIP6: 2}


def test_an_address_for_routing_is_everywhere():
    made = snapshot(service(), groups=(REMOTE_GROUP,), hold_deadline=None)
    assert fenced(made).vips == {}
