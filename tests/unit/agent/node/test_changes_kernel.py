# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What others change under an address that is held; the reconcile loop on the real kernel.

The rows are what DHCP clients, network managers, cloud agents and administrators do: they restart
an interface, take its addresses and routes away and add them again, put it below a bridge, or
replace it. Nothing of this ends the node's place in its subnets unless it lasts.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.support.agent.live_node import LiveNode, own_on
from tests.support.agent.namespaces import cable, can_make_namespaces
from tests.support.core.snapshots import NET4, NET6, OWN4, OWN6, VIP4, VIP6

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not can_make_namespaces(), reason="needs network namespaces"),
]
# Seconds from the end of a change until the addresses are where they belong.
SOON = 0.5
PEER_MAC = "02:00:00:00:00:99"
DEFAULTS = own_on("eth0")[2:]


@pytest.fixture
async def node():
    with cable() as namespace:
        made = LiveNode(namespace)
        # Duplicate address detection would take two seconds of each test.
        for name in ("default", "eth0"):
            made.set(f"ipv6/conf/{name}/dad_transmits", "0")
        made.ip(*own_on("eth0"))
        task = asyncio.create_task(made.reconciler.run())
        made.list_all()
        made.renew(seconds=1000)
        await made.until_on("eth0")
        await made.until_usable()
        yield made
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        made.kernel.close()


WITHOUT_DEFAULTS = tuple(command.replace("replace", "del") for command in DEFAULTS)


def down_and_up(node):
    node.ip("link set eth0 down")
    yield
    # The kernel has removed the IPv6 addresses and all routes.
    node.ip("link set eth0 up", own_on("eth0")[1], *DEFAULTS)


def flushed(node):
    """As systemd-networkd does with what it does not know, then its own are added."""
    node.ip("addr flush dev eth0 scope global")
    yield
    node.ip(*own_on("eth0"))


def own_replaced_later(node):
    """As a DHCP client does that lets its address go before it asks for another one."""
    node.ip(f"addr del {OWN4.address}/24 dev eth0", f"addr del {OWN6.address}/64 dev eth0")
    yield
    node.ip(f"addr add {OWN4.address + 40}/24 dev eth0", DEFAULTS[0])
    node.ip(f"addr add {OWN6.address + 40}/64 dev eth0 nodad")


def without_default_routes(node):
    node.ip(*WITHOUT_DEFAULTS)
    yield
    node.ip(*DEFAULTS)


def without_ipv6(node):
    node.set("ipv6/conf/eth0/disable_ipv6", "1")
    yield
    node.set("ipv6/conf/eth0/disable_ipv6", "0")
    node.ip(own_on("eth0")[1], DEFAULTS[1])


def other_settings(node):
    node.ip("link set eth0 mtu 1400", "link set eth0 txqueuelen 500", "link set eth0 alias lan")
    node.set("ipv4/conf/all/forwarding", "1")
    node.set("ipv6/conf/all/forwarding", "1")
    node.set("ipv4/conf/eth0/promote_secondaries", "1")
    yield
    node.ip("link set eth0 mtu 1500", "link set eth0 promisc on")


def other_routes(node):
    node.ip("route add 10.9.0.0/16 dev eth0", "route add fd99::/64 dev eth0")
    yield
    node.ip("route del 10.9.0.0/16 dev eth0", "route del fd99::/64 dev eth0")


@pytest.mark.parametrize(
    "change",
    [
        down_and_up,
        flushed,
        own_replaced_later,
        without_default_routes,
        without_ipv6,
        other_settings,
        other_routes,
    ],
    ids=lambda change: change.__name__,
)
async def test_a_short_change_leaves_the_lease_and_the_addresses_as_they_were(node, change):
    for _half in change(node):
        await asyncio.sleep(0.3)
    assert await node.until_on("eth0") < SOON
    await asyncio.sleep(0.2)
    assert set(node.lease) == {(NET4, NET6)}
    assert node.on() == {VIP4: ["eth0"], VIP6: ["eth0"]}


async def test_a_new_mac_is_announced(node):
    node.announcer.fresh.clear()
    node.ip(f"link set eth0 address {PEER_MAC}")
    await asyncio.sleep(0.3)
    (eth0,) = {link.index for link in node.interfaces.links if link.name == "eth0"}
    assert {(eth0, VIP4), (eth0, VIP6)} in node.announcer.fresh
    assert set(node.lease) == {(NET4, NET6)}


@pytest.mark.parametrize("kind", ["bridge", "macvlan"])
async def test_addresses_follow_the_nodes_own_to_an_interface_above_and_back(node, kind):
    """As a hypervisor's or a network manager's bridge that takes the cable over."""
    if kind == "bridge":
        node.ip("link add above type bridge", "link set above up")
    node.ip("addr flush dev eth0 scope global")
    if kind == "bridge":
        node.ip("link set eth0 master above")
    else:
        node.ip("link add above link eth0 type macvlan mode bridge", "link set above up")
    node.ip(*own_on("above"))
    assert await node.until_on("above") < SOON
    node.ip("link del above", *own_on("eth0"))
    assert await node.until_on("eth0") < SOON
    await asyncio.sleep(0.2)
    assert set(node.lease) == {(NET4, NET6)}


async def test_an_interface_that_is_made_again_gets_the_addresses(node):
    node.ip("link del eth0")
    await asyncio.sleep(0.3)
    assert node.on() == {VIP4: [], VIP6: []}
    assert node.lease[-1] == ()
    node.ip(
        "link add eth0 type veth peer name eth1",
        "link set eth0 up",
        "link set eth1 up",
        *own_on("eth0"),
    )
    assert await node.until_on("eth0") < SOON
    await asyncio.sleep(0.2)
    assert node.lease[-1] == (NET4, NET6)


async def test_a_change_that_lasts_gives_the_addresses_up(node):
    node.ip(*WITHOUT_DEFAULTS)
    await asyncio.sleep(2.5)
    assert node.on() == {VIP4: ["eth0"], VIP6: ["eth0"]}
    await asyncio.sleep(1.0)
    assert node.on() == {VIP4: [], VIP6: []}
    assert node.lease[-1] == ()


async def test_an_address_with_the_mask_of_one_host_is_in_the_subnet_of_its_route(node):
    """As hosters configure a node, and DHCPv6 with a router advertisement."""
    node.ip(
        "addr flush dev eth0 scope global",
        f"addr add {OWN4.address}/32 dev eth0",
        f"addr add {OWN6.address}/128 dev eth0 nodad",
        f"route add {NET4} dev eth0",
        f"route add {NET6} dev eth0 proto ra",
        *DEFAULTS,
    )
    assert await node.until_on("eth0") < SOON
    await asyncio.sleep(0.2)
    assert set(node.lease[-1]) >= {NET4, NET6}
    node.ip(f"route del {NET4} dev eth0", f"route del {NET6} dev eth0")
    await asyncio.sleep(3.5)
    assert node.on() == {VIP4: [], VIP6: []}
    assert not {NET4, NET6} & {*node.lease[-1]}


async def test_addresses_stay_in_a_prefix_that_is_replaced_until_the_own_address_ends(node):
    """As router advertisements and DHCP do that announce another prefix: preferred lifetime 0."""
    node.ip(
        f"addr change {OWN4.address}/24 dev eth0 preferred_lft 0 valid_lft 3600",
        f"addr change {OWN6.address}/64 dev eth0 preferred_lft 0 valid_lft 3600",
        "addr add 10.9.0.1/24 dev eth0",
        "addr add 2001:db8:9::1/64 dev eth0 nodad",
    )
    await asyncio.sleep(3.5)
    assert node.on() == {VIP4: ["eth0"], VIP6: ["eth0"]}
    assert {NET4, NET6} < {*node.lease[-1]}
    assert node.renewer.said.deprecated == (NET4, NET6)
    node.ip(f"addr del {OWN4.address}/24 dev eth0", f"addr del {OWN6.address}/64 dev eth0")
    await asyncio.sleep(0.5)
    # Lost for a moment is lost as it was: the allocator must not take it for a lasting one.
    assert node.renewer.said.deprecated == (NET4, NET6)
    await asyncio.sleep(3.0)
    assert node.on() == {VIP4: [], VIP6: []}
    assert not {NET4, NET6} & {*node.lease[-1]}
    assert node.renewer.said.deprecated == ()


async def test_a_prefix_with_another_preferred_address_is_not_replaced(node):
    """As with temporary addresses: the older ones are deprecated every day."""
    node.ip(f"addr add {OWN6.address + 9}/64 dev eth0 nodad preferred_lft 0 valid_lft 3600")
    await asyncio.sleep(0.3)
    assert node.renewer.said.deprecated == ()
    assert set(node.lease) == {(NET4, NET6)}
