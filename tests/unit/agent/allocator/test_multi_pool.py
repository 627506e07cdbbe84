# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Services with an address of each range: they follow the nodes that can announce the ranges."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from purelb.core.api import codec
from purelb.core.model import Lease
from purelb_agent.runtime import clock
from tests.support.agent.allocator import AllocatorWorld, group_body

RANGES = {
    4: ("v4pools", "10.0.{0}.1-10.0.{0}.1", "10.0.{0}.0/24"),
    6: ("v6pools", "fd00:{0}::1-fd00:{0}::1", "fd00:{0}::/64"),
}
FAMILIES = pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])


def multi_group(version):
    """A group with two ranges of one address each, in two subnets."""
    field, pool, subnet = RANGES[version]
    entries = [{"pool": pool.format(n), "subnet": subnet.format(n)} for n in (1, 2)]
    return group_body("default", {"local": {field: entries, "multiPool": True}})


def address(version, number):
    return RANGES[version][1].format(number).partition("-")[0]


def join(world, node, version, number):
    """A node with a live Lease in the n-th subnet."""
    subnet = (ip_network(RANGES[version][2].format(number)),)
    lease = Lease(
        node=node, subnets=subnet, duration=15.0, holder=node, renew_time=clock.wall_time()
    )
    world.controller.leases.put(codec.lease_body(lease, namespace="purelb-system"))


@FAMILIES
async def test_a_service_gets_an_address_of_each_range_that_nodes_announce(version):
    async with AllocatorWorld().running(multi_group(version)) as world:
        join(world, "n1", version, 1)
        world.add_service("web", version=version)
        await world.settle()
        assert world.addresses("web") == [address(version, 1)]
        join(world, "n2", version, 2)
        await world.settle()
        assert world.addresses("web") == [address(version, 1), address(version, 2)]
        metric = "purelb_address_pool_multipool_allocations_total"
        assert world.sample(metric, pool="default") == 2

    async with AllocatorWorld().running(multi_group(version)) as world:
        join(world, "n1", version, 1)
        world.add_service("first", version=version)
        await world.settle()
        world.delete("first")
        await world.settle()
        world.add_service("first", version=version)
        await world.settle()
        join(world, "n2", version, 2)
        world.change("first", {"metadata": {"annotations": {"purelb.io/multi-pool": None}}})
        explicit = {"purelb.io/addresses": address(version, 2)}
        world.add_service("second", version=version, annotations=explicit)
        await world.settle()
        assert world.controller.is_ready


@FAMILIES
async def test_an_assignment_with_a_full_range_is_partial_and_reported(version):
    group = multi_group(version)
    async with AllocatorWorld().running(group) as world:
        join(world, "n1", version, 1)
        world.add_service("first", version=version)
        await world.settle()
        world.add_service("second", version=version)
        join(world, "n2", version, 2)
        await world.settle()
        given = world.addresses("first") + world.addresses("second")
        assert sorted(given) == sorted([address(version, 1), address(version, 2)])
