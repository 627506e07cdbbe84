# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""That our addresses do no harm to the node that has them, with any settings; real kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.addresses import parse_range
from purelb.core.node.plan import Put
from tests.support.agent.namespaces import cable, can_make_namespaces
from tests.support.agent.node_in_namespace import Machine
from tests.support.core.snapshots import GROUP, OWN4, OWN6, REMOTE_GROUP, VIP4, VIP6, service

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not can_make_namespaces(), reason="needs network namespaces"),
]
PROMOTES = pytest.mark.parametrize("promotes", ["0", "1"])
VIPS = {4: [VIP4 + n for n in range(3)], 6: [VIP6 + n for n in range(3)]}
# The upper half of the node's subnet, as a pool may name its subnet.
HALF4, HALF6 = "172.28.1.128/25", "fd28::200/120"
HALF = replace(
    GROUP,
    ranges=(
        parse_range("172.28.1.220-172.28.1.229", HALF4),
        parse_range("fd28::220-fd28::229", HALF6),
    ),
)
# Own addresses of the node in that half.
INSIDE4, INSIDE6 = VIP4 - 20, VIP6 - 16


@pytest.fixture
async def machine():
    with cable() as namespace:
        made = Machine(namespace)
        yield made
        made.kernel.close()


def services(*numbers):
    return [service(f"web-{n}", addresses=[VIPS[4][n], VIPS[6][n]]) for n in numbers]


def on(machine, name="eth0"):
    """The addresses on an interface, in the order of the kernel, without link-local ones."""
    index = machine.links[name].index
    held = (h for h in machine.kernel.addresses() if h.link == index)
    return [h.address for h in held if not h.address.is_link_local]


def added_inside(machine):
    machine.ip(
        f"addr add {INSIDE4}/25 dev eth0",
        f"addr add {INSIDE6}/120 dev eth0 nodad",
    )


def left_by_an_agent_before(machine, number):
    """Put the addresses of a Service as agents before did: with the mask of the pool's subnet."""
    for vip, mask in ((VIPS[4][number], 25), (VIPS[6][number], 120)):
        index = machine.links["eth0"].index
        put = Put(index, vip, mask, 60, 0, no_prefix_route=True, no_dad=True, is_new=True)
        machine.kernel.put(put)


def own_routes(machine):
    """The routes of the node's subnets, without lifetimes."""
    return [machine.asks(f"-{v} route show dev eth0 table main proto kernel") for v in (4, 6)]


@PROMOTES
async def test_the_first_service_that_goes_takes_nothing_along(machine, promotes):
    machine.set("ipv4/conf/all/promote_secondaries", "0")
    machine.set("ipv4/conf/eth0/promote_secondaries", promotes)
    routes = own_routes(machine)
    machine.cycle(*services(0, 1, 2), groups=(HALF,))
    added_inside(machine)
    before = on(machine)
    machine.cycle(*services(1, 2), groups=(HALF,))
    assert on(machine) == [a for a in before if a not in {VIPS[4][0], VIPS[6][0]}]
    machine.cycle(groups=(HALF,))
    assert set(on(machine)) == {OWN4.address, OWN6.address, INSIDE4, INSIDE6}
    machine.ip(f"addr del {INSIDE4}/25 dev eth0", f"addr del {INSIDE6}/120 dev eth0")
    assert own_routes(machine) == routes


@PROMOTES
async def test_what_agents_before_left_is_replaced_and_takes_nothing_along(machine, promotes):
    machine.set("ipv4/conf/eth0/promote_secondaries", promotes)
    for number in (0, 1):
        left_by_an_agent_before(machine, number)
    added_inside(machine)
    machine.cycle(*services(0, 1), groups=(HALF,))
    assert {h.prefixlen for n in (0, 1) for v in (4, 6) for h in machine.has(VIPS[v][n])} == {
        32,
        128,
    }
    assert {INSIDE4, INSIDE6, OWN4.address, OWN6.address} < set(on(machine))


@PROMOTES
async def test_on_the_dummy_interface_each_goes_alone(machine, promotes):
    """There, addresses have the mask of their pool, which routing daemons announce."""
    machine.set("ipv4/conf/eth1/promote_secondaries", promotes)
    dummy = {"dummy": machine.links["eth1"], "dummies": frozenset({machine.links["eth1"].index})}
    dummy["groups"] = (REMOTE_GROUP,)
    machine.cycle(*services(0, 1, 2), **dummy)
    for left in ((1, 2), (2,), ()):
        machine.cycle(*services(*left), **dummy)
        expected = {VIPS[v][n] for v in (4, 6) for n in left}
        assert set(on(machine, "eth1")) == expected
    assert machine.interfaces.held == frozenset()


@PROMOTES
@pytest.mark.parametrize("first", ["add", "del"])
async def test_a_new_own_address_comes_before_ours(machine, promotes, first):
    """As DHCP clients replace it: the new one first, or the old one first."""
    machine.set("ipv4/conf/eth0/promote_secondaries", promotes)
    machine.ip("route add default via 172.28.1.1 dev eth0")
    machine.cycle(*services(0, 1))
    new, old = OWN4.address + 1, OWN4.address
    change = [f"addr add {new}/24 dev eth0", f"addr del {old}/24 dev eth0"]
    machine.ip(*(change if first == "add" else reversed(change)))
    if first == "add" and promotes == "0":
        machine.ip(f"addr add {new}/24 dev eth0")  # it went with the old one
    for _cycle in range(2):
        machine.cycle(*services(0, 1))
        assert [a for a in on(machine) if a.version == 4] == [new, *VIPS[4][:2]]
    assert f"src {new}" in machine.asks("route get 172.28.1.77")
    assert "172.28.1.0/24" in own_routes(machine)[0]


async def test_the_route_of_a_subnet_goes_with_its_last_own_address(machine):
    """With the mask of the subnet, ours would keep the route of a subnet that the node left."""
    machine.cycle(*services(0))
    machine.ip(f"addr del {OWN4.address}/24 dev eth0", f"addr del {OWN6.address}/64 dev eth0")
    assert own_routes(machine) == ["", "fe80::/64 metric 256 pref medium\n"]


async def test_an_own_address_that_equals_ours_stays_when_ours_goes(machine):
    machine.cycle(*services(0))
    machine.ip(f"addr add {VIPS[4][0]}/24 dev eth0")
    machine.cycle(*services(0))
    (own,) = machine.has(VIPS[4][0])
    assert (own.prefixlen, own.protocol) == (24, 0)
