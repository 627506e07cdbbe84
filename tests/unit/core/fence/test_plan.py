# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the fence is to guard, from what a node has and plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.fence.hooks import Hook
from purelb.core.fence.plan import plan_fence
from purelb.core.model import Link
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
    assert found.vips == {VIP4, VIP6}
    assert found.programs.keys() == ETH0_HOOKS
    assert found.open_links == ()


@BOTH
def test_what_is_to_go_is_guarded_until_it_is_gone(vip):
    assert fenced(snapshot(held=(on_eth0(vip),))).vips == {vip}


@BOTH
def test_nothing_of_others_is_guarded(vip):
    assert fenced(snapshot(held=(on_eth0(vip, protocol=0),))).vips == set()


@BOTH
def test_an_address_for_routing_is_not_guarded(vip):
    made = snapshot(service(), groups=(REMOTE_GROUP,), held=(on_dummy(vip),))
    assert fenced(made).vips == set()


def test_the_interface_of_an_older_configuration_is_guarded_as_long_as_it_has_addresses():
    old = Link(5, "eth5", b"\2\0\0\0\0\5")
    held = replace(on_eth0(VIP4), link=5)
    made = replace(snapshot(held=(held,)), all_links=(ETH0, old))
    hooks = plan_fence(made, planned(made), now=NOW).programs.keys()
    assert hooks == ETH0_HOOKS | {Hook(5, is_egress=False), Hook(5, is_egress=True)}


def test_an_interface_without_ethernet_is_a_gap():
    made = replace(snapshot(service()), links=(ETH0, TUNNEL), all_links=(ETH0, TUNNEL))
    assert plan_fence(made, planned(made), now=NOW).open_links == ("tun0",)


def test_it_stands_until_the_last_address_has_gone():
    """The kernel may be late, and the request that puts the address, too."""
    assert fenced(snapshot()).until == NOW + 3
    assert fenced(snapshot(held=(on_eth0(VIP4, lifetime=8.0),))).until == NOW + 8 + 3
    planned_for = fenced(snapshot(service(), hold_until=NOW + 21)).until
    assert planned_for == NOW + 20 + 3
    assert fenced(snapshot(held=(on_eth0(VIP4, lifetime=None),))).until == float("inf")
