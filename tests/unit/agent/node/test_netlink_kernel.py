# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The real kernel in a network namespace; test_netlink.py has its failures."""

from __future__ import annotations

import asyncio
import errno
from ipaddress import ip_network
from pathlib import Path

import pytest

from labkit.net.namespaces import ip_batch, netns
from purelb.core.model import InterfaceAddress
from purelb.core.node.plan import Put
from purelb_agent.node.netlink import Kernel
from purelb_agent.runtime import clock
from purelb_agent.runtime.netlink import NetlinkError
from tests.support.agent.namespaces import cable, can_make_namespaces
from tests.support.core.snapshots import VIP4, VIP6

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not can_make_namespaces(), reason="needs network namespaces"),
]
# In the namespace of the thread that opens it.
PROMOTES = Path("/proc/sys/net/ipv4/conf/eth0/promote_secondaries")
BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])


@pytest.fixture
def namespace():
    with cable() as name:
        yield name


@pytest.fixture
async def kernel(namespace):
    with netns(namespace):
        made = Kernel()
    yield made
    made.close()


@pytest.fixture
def eth0(kernel):
    return next(link for link in kernel.links() if link.name == "eth0")


def in_namespace(namespace, act):
    with netns(namespace):
        return act()


def put_of(vip, link, *, is_new=True, **changes):
    values = {"valid_lft": 60, "preferred_lft": 30, "no_prefix_route": True, "no_dad": True}
    return Put(link, vip, vip.max_prefixlen, is_new=is_new, **{**values, **changes})


def held_by(kernel, vip):
    return next((held for held in kernel.addresses() if held.address == vip), None)


def assert_ends(moment, began, seconds):
    """What was put since `began` ends after so many seconds; the kernel rounds them."""
    assert began + seconds - 2 <= moment <= clock.now() + seconds + 2


@BOTH
async def test_an_address_is_added_renewed_and_removed(kernel, eth0, vip):
    began = clock.now()
    kernel.put(put_of(vip, eth0.index))
    held = held_by(kernel, vip)
    assert_ends(held.expires_at, began, 60)
    assert_ends(held.preferred_until, began, 30)
    assert (held.link, held.prefixlen) == (eth0.index, vip.max_prefixlen)
    assert held.no_prefix_route
    assert not held.tentative
    began = clock.now()
    kernel.put(put_of(vip, eth0.index, valid_lft=600, preferred_lft=600, is_new=False))
    assert_ends(held_by(kernel, vip).expires_at, began, 600)
    kernel.remove(held)
    assert held_by(kernel, vip) is None
    kernel.remove(held)


@BOTH
async def test_an_address_without_lifetimes_never_expires(kernel, eth0, vip):
    kernel.put(put_of(vip, eth0.index, valid_lft=None, preferred_lft=None))
    held = held_by(kernel, vip)
    assert (held.expires_at, held.preferred_until) == (None, None)


@pytest.mark.parametrize("promotes", ["0", "1"])
async def test_no_other_address_goes_with_one_that_is_removed(kernel, namespace, eth0, promotes):
    in_namespace(namespace, lambda: PROMOTES.write_text(promotes))
    first, second = VIP4, VIP4 + 1
    mask = InterfaceAddress(eth0.index, first, 24)
    ip_batch(
        [f"addr add {first}/24 dev eth0", f"addr add {second}/24 dev eth0"], namespace=namespace
    )
    kernel.remove(mask)
    assert [h.address for h in kernel.addresses() if h.address.version == 4] == [second]
    kernel.remove(mask)
    assert in_namespace(namespace, PROMOTES.read_text).strip() == promotes


@pytest.mark.parametrize("mask", [24, 32])
async def test_an_address_on_a_link_that_is_gone_is_gone(kernel, mask):
    kernel.remove(InterfaceAddress(4711, VIP4, mask))


@BOTH
async def test_an_address_on_a_link_that_is_gone_is_refused(kernel, vip):
    with pytest.raises(NetlinkError) as raised:
        kernel.put(put_of(vip, 4711))
    assert raised.value.errno == errno.ENODEV


async def test_links_have_name_mac_state_and_default_metrics(kernel, namespace):
    ip_batch(
        [
            "addr add 198.18.0.1/24 dev eth0",
            "route add default via 198.18.0.254 dev eth0 metric 100",
            "route add default via 198.18.0.253 dev eth0 metric 50",
            "link set eth1 alias purelb",
        ],
        namespace=namespace,
    )
    links = {link.name: link for link in kernel.links()}
    assert links["eth0"].default_metrics == {4: 50}
    assert (links["eth0"].is_up, len(links["eth0"].mac)) == (True, 6)
    assert not links["lo"].is_up
    assert (links["eth0"].is_ours, links["eth1"].is_ours) == (False, True)


async def test_links_have_the_subnets_of_their_on_link_routes(kernel, eth0, namespace):
    news = asyncio.Queue()
    kernel.subscribe(news.put_nowait)
    ip_batch(
        [
            "addr add 192.0.2.7/32 dev eth0",
            "addr add 2001:db8:1::7/128 dev eth0 nodad",
            "addr add 198.18.0.1/24 dev eth0",
            "addr add 224.0.0.5/32 dev eth0 autojoin",
            "route add 192.0.2.0/26 dev eth0",
            "route add 2001:db8:1::/64 dev eth0 proto ra",
            "route add 203.0.113.0/24 via 198.18.0.254",
            "route add 10.1.0.0/16 dev eth0 proto bird",
            "route add 169.254.0.0/16 dev eth0 metric 1000",
            "route add 169.254.169.254 dev eth0",
            "route add 10.2.0.0/16 dev eth0 table 100",
        ],
        namespace=namespace,
    )
    near = {ip_network("192.0.2.0/26"), ip_network("2001:db8:1::/64")}
    links = {link.name: link for link in kernel.links()}
    assert links["eth0"].on_link == near
    assert not links["lo"].on_link
    ip_batch(["route del 192.0.2.0/26 dev eth0"], namespace=namespace)
    while not news.empty():
        news.get_nowait()
    ip_batch(["route add 192.0.2.0/25 dev eth0"], namespace=namespace)
    await asyncio.wait_for(news.get(), 5)


async def test_a_link_is_removed_once_and_a_link_of_its_name_is_kept(kernel, eth0):
    kernel.add_dummy("lo")
    assert not any(link.is_ours for link in kernel.links())
    kernel.remove_link(eth0)
    assert [link.name for link in kernel.links()] == ["lo"]
    kernel.remove_link(eth0)


@BOTH
async def test_changes_are_notified(kernel, eth0, namespace, vip):
    news = asyncio.Queue()
    kernel.subscribe(news.put_nowait)
    kernel.put(put_of(vip, eth0.index))
    added = await asyncio.wait_for(next_about(news, vip), 5)
    assert (added.address.link, added.is_gone) == (eth0.index, False)
    kernel.remove(added.address)
    removed = await asyncio.wait_for(next_about(news, vip), 5)
    assert removed.is_gone
    ip_batch(["link set eth0 down"], namespace=namespace)
    assert (await asyncio.wait_for(next_about(news, None), 5)).address is None


async def next_about(news, vip):
    while True:
        latest = await news.get()
        # The kernel also reports the addresses that it gives an interface by itself.
        about = latest.address and latest.address.address
        if about == vip:
            return latest
