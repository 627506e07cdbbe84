# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""That the real kernel keeps our mark, and that a plan leaves a node's own addresses alone."""

from __future__ import annotations

import errno

import pytest

from purelb.core.names import ADDRESS_PROTOCOL
from purelb.core.node.plan import Put
from purelb_agent.runtime.netlink import NetlinkError
from tests.support.agent.namespaces import cable, can_make_namespaces
from tests.support.agent.node_in_namespace import Machine
from tests.support.core.snapshots import VIP4, VIP6, service

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not can_make_namespaces(), reason="needs network namespaces"),
]
BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
MASK = {4: 24, 6: 64}


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
