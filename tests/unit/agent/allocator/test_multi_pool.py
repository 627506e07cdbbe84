# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Services with an address of each range: they follow the nodes that can announce the ranges."""

from __future__ import annotations

import asyncio
from ipaddress import ip_network

import pytest

from purelb.core.api import codec
from purelb.core.model import Lease
from purelb.core.names import MULTI_POOL_ANNOTATION
from purelb_agent.runtime import clock
from tests.support.agent.allocator import AllocatorWorld, group_body

RANGES = {
    4: ("v4pools", "10.0.{0}.{1}", "10.0.{0}.0/24"),
    6: ("v6pools", "fd00:{0}::{1}", "fd00:{0}::/64"),
}
FAMILIES = pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])


def address(version, number, host=1):
    """The address of this host number in the n-th subnet."""
    return RANGES[version][1].format(number, host)


def multi_group(version, *, last=1):
    """A group with two ranges in two subnets: one address, and addresses up to `last`."""
    field, _address, subnet = RANGES[version]
    entries = [
        {
            "pool": f"{address(version, number)}-{address(version, number, end)}",
            "subnet": subnet.format(number),
        }
        for number, end in ((1, 1), (2, last))
    ]
    return group_body("default", {"local": {field: entries, "multiPool": True}})


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


@FAMILIES
async def test_a_service_that_wants_one_address_gets_no_second_when_a_node_joins(version):
    async with AllocatorWorld().running(multi_group(version)) as world:
        join(world, "n1", version, 1)
        world.add_service("web", version=version, annotations={MULTI_POOL_ANNOTATION: "false"})
        await world.settle()
        join(world, "n2", version, 2)
        await world.settle()
        assert len(world.addresses("web")) == 1
        assert len(world.writes("web")) == 1


@FAMILIES
async def test_an_address_of_each_range_is_freed_with_the_service(version):
    async with AllocatorWorld().running(multi_group(version)) as world:
        join(world, "n1", version, 1)
        join(world, "n2", version, 2)
        world.add_service("first", version=version)
        await world.settle()
        world.add_service("second", version=version)
        await world.settle()
        assert world.addresses("second") == []
        world.delete("first")
        await world.settle()
        assert world.addresses("second") == [address(version, 1), address(version, 2)]


@FAMILIES
async def test_an_assignment_with_a_full_range_is_partial_and_reported(version):
    group = multi_group(version, last=2)
    async with AllocatorWorld().running(group) as world:
        join(world, "n1", version, 1)
        join(world, "n2", version, 2)
        world.add_service("first", version=version)
        await world.settle()
        world.add_service("second", version=version)
        await world.settle()
        assert world.addresses("first") == [address(version, 1), address(version, 2)]
        assert world.addresses("second") == [address(version, 2, 2)]
        assert world.events.reasons == ["AddressAssigned", "AddressAssigned", "MultiPoolPartial"]
        metric = "purelb_address_pool_multipool_partial_total"
        assert world.sample(metric, pool="default") == 1


@FAMILIES
async def test_a_range_goes_to_the_first_service_that_lacks_it_when_a_node_joins(version):
    async with AllocatorWorld().running(multi_group(version)) as world:
        join(world, "n1", version, 1)
        world.add_service("first", version=version)
        await world.settle()
        world.add_service("second", version=version)
        await world.settle()
        assert world.addresses("second") == []
        join(world, "n2", version, 2)
        await world.settle()
        assert world.addresses("first") == [address(version, 1), address(version, 2)]
        assert world.addresses("second") == []


@FAMILIES
async def test_a_range_is_announced_again_when_its_silent_node_renews(version):
    async with AllocatorWorld().running(multi_group(version)) as world:
        join(world, "n2", version, 2)
        await asyncio.sleep(16)
        join(world, "n1", version, 1)
        world.add_service("web", version=version)
        await world.settle()
        assert world.addresses("web") == [address(version, 1)]
        join(world, "n2", version, 2)
        await world.settle()
        assert world.addresses("web") == [address(version, 1), address(version, 2)]
