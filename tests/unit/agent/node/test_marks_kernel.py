# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""That the real kernel keeps our mark, and that a plan leaves a node's own addresses alone."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from labkit.net.namespaces import ip_batch, netns
from purelb.core.election.right import HoldDeadline
from purelb.core.names import ADDRESS_PROTOCOL
from purelb.core.node.decisions import decide_vips
from purelb.core.node.plan import Put, plan
from purelb_agent.node.interfaces import Interfaces
from purelb_agent.node.metrics import NodeMetrics
from purelb_agent.node.netlink import Kernel, NetlinkError
from purelb_agent.runtime import clock
from tests.support.agent.namespaces import cable, can_make_namespaces
from tests.support.core.snapshots import OWN4, OWN6, VIP4, VIP6, service, snapshot

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not can_make_namespaces(), reason="needs network namespaces"),
]
BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
MASK = {4: 24, 6: 64}


class Machine:
    """A node in a namespace, with an own address in each subnet."""

    def __init__(self, namespace):
        self._namespace = namespace
        with netns(namespace):
            self.kernel = Kernel()
        self.ip(
            f"addr add {OWN4.address}/24 dev eth0", f"addr add {OWN6.address}/64 dev eth0 nodad"
        )
        self.interfaces = Interfaces(self.kernel, NodeMetrics(CollectorRegistry()).addresses)
        self.interfaces.read_links(0.0, max_age=30.0)
        self.links = {link.name: link for link in self.interfaces.links}

    def ip(self, *commands):
        ip_batch(list(commands), namespace=self._namespace)

    def has(self, vip):
        """What the kernel says of an address, without its remaining seconds."""
        return [
            replace(held, expires_at=None, preferred_until=None)
            for held in self.kernel.addresses()
            if held.address == vip
        ]

    def cycle(self, *services):
        """One cycle of a node that wins every election; returns the decisions."""
        now = clock.now()
        seen = snapshot(
            *services,
            links=(self.links["eth0"],),
            all_links=self.interfaces.links,
            addresses=self.interfaces.read_addresses(),
            put=self.interfaces.put,
            keeps_marks=self.interfaces.keeps_marks,
            hold_deadline=HoldDeadline(now + 7, now + 10),
        )
        made = decide_vips(seen)
        self.interfaces.apply(plan(made, seen, now=now))
        return made.by_address


@pytest.fixture
async def machine():
    with cable() as namespace:
        made = Machine(namespace)
        yield made
        made.kernel.close()


def put_of(vip, link, **changes):
    values = {"no_prefix_route": True, "no_dad": True, "is_new": True, **changes}
    return Put(link.index, vip, MASK[vip.version], 60, 60, **values)


@BOTH
async def test_the_mark_comes_back_after_a_put_and_after_a_refresh(machine, vip):
    for is_new in (True, False):
        machine.kernel.put(put_of(vip, machine.links["eth0"], is_new=is_new))
        assert [held.protocol for held in machine.has(vip)] == [ADDRESS_PROTOCOL]


@BOTH
async def test_a_change_by_hand_takes_the_mark_away_and_a_refresh_gives_it_again(machine, vip):
    machine.kernel.put(put_of(vip, machine.links["eth0"]))
    machine.ip(f"addr change {vip}/{MASK[vip.version]} dev eth0 valid_lft 60 preferred_lft 60")
    assert [held.protocol for held in machine.has(vip)] == [0]
    machine.kernel.put(put_of(vip, machine.links["eth0"], is_new=False))
    assert [held.protocol for held in machine.has(vip)] == [ADDRESS_PROTOCOL]


@BOTH
async def test_a_new_address_that_is_there_already_is_refused(machine, vip):
    machine.ip(f"addr add {vip}/{MASK[vip.version]} dev eth0")
    before = machine.has(vip)
    with pytest.raises(NetlinkError) as raised:
        machine.kernel.put(put_of(vip, machine.links["eth0"]))
    assert raised.value.errno == errno.EEXIST
    assert machine.has(vip) == before


@BOTH
@pytest.mark.parametrize("link", ["eth0", "eth1"])
@pytest.mark.parametrize("mask", ["of the pool", "of its own"])
@pytest.mark.parametrize("life", ["", " valid_lft 3600 preferred_lft 3600 noprefixroute"])
async def test_the_nodes_own_address_in_a_pool_is_neither_taken_over_nor_removed(
    machine, vip, link, mask, life
):
    length = MASK[vip.version] if mask == "of the pool" else vip.max_prefixlen
    machine.ip(f"addr add {vip}/{length} dev {link} nodad{life}")
    before = machine.has(vip)
    for services in ([service(addresses=[vip])], []):
        made = machine.cycle(*services)
        assert [d.reason.value for d in made.values()] == ["foreignAddress"] * len(services)
        assert machine.has(vip) == before


@BOTH
async def test_our_own_address_is_put_refreshed_and_removed(machine, vip):
    for _cycle in range(2):
        machine.cycle(service(addresses=[vip]))
        assert [held.protocol for held in machine.has(vip)] == [ADDRESS_PROTOCOL]
    machine.cycle()
    assert machine.has(vip) == []


@BOTH
async def test_an_address_is_put_again_when_a_foreign_one_has_gone(machine, vip):
    machine.ip(f"addr add {vip}/{vip.max_prefixlen} dev eth0 nodad")
    machine.cycle(service(addresses=[vip]))
    machine.ip(f"addr del {vip}/{vip.max_prefixlen} dev eth0")
    machine.cycle(service(addresses=[vip]))
    assert [held.protocol for held in machine.has(vip)] == [ADDRESS_PROTOCOL]
