# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which addresses are avoided because nodes list them as another host's."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.addresses import parse_range
from purelb.core.allocation.allocations import Allocations
from purelb.core.allocation.duplicates import listed_duplicates, set_aside
from purelb.core.holding.counting import Counting
from purelb.core.model import Lease
from tests.support.core.snapshots import NET4, NET6, service


@pytest.mark.parametrize("net", [NET4, NET6], ids=["v4", "v6"])
class TestListedDuplicates:
    def counting(self, *leases):
        counting = Counting()
        for lease in leases:
            counting = counting.observe(lease, now=0.0)
        return counting

    def listed(self, counting, now):
        return listed_duplicates(counting.renewed(now))

    def lease(self, node, net, *addresses):
        return Lease(node, (net,), holder=node, epoch="e", duration=10.0, duplicates=addresses)

    def test_are_those_of_live_nodes_each_with_the_first(self, net):
        one, other = self.lease("n1", net, net[5], net[6]), self.lease("n2", net, net[5])
        found = self.listed(self.counting(one, other, self.lease("n3", net)), 1.0)
        assert found == {net[5]: "n1", net[6]: "n1"}

    def test_end_with_the_lease(self, net):
        lease = self.lease("n1", net, net[5])
        counting = self.counting(lease)
        assert self.listed(counting, 9.9) == {net[5]: "n1"}
        assert self.listed(counting, 10.0) == {}
        released = counting.observe(replace(lease, holder=""), now=1.0)
        assert self.listed(released, 1.0) == {}

    def test_a_node_speaks_of_its_own_subnets_only(self, net):
        far = ip_address("203.0.113.1" if net.version == 4 else "2001:db8:ffff::1")
        lease = self.lease("n1", net, far)
        assert self.listed(self.counting(lease), 1.0) == {}
        assert self.listed(self.counting(replace(lease, subnets=())), 1.0) == {}


@pytest.mark.parametrize("net", [NET4, NET6], ids=["v4", "v6"])
class TestSetAside:
    """Of each range a quarter at most, and never so much that no other address is free."""

    def found(self, net, *numbers):
        return {net[number]: "n1" for number in numbers}

    def aside(self, net, found, *, last, used=(), nodes=(), before=()):
        taken = Allocations()
        for number in used:
            taken.hold(service(f"s{number}"), [net[number]])
        taken.exclude_nodes([net[number] for number in nodes])
        taken.set_aside(before)
        ranges = [parse_range(f"{net[1]}-{net[last]}", str(net))]
        chosen = set_aside(found, ranges, taken, before)
        return [int(address) - int(net.network_address) for address in chosen]

    def test_the_lowest_of_many_come_first(self, net):
        everything = self.found(net, *range(9, 0, -1))
        assert self.aside(net, everything, last=8) == [1, 2]
        assert self.aside(net, everything, last=3) == [1]

    def test_those_from_before_stay(self, net):
        assert self.aside(net, self.found(net, 1, 2, 7), last=8, before=[net[7]]) == [7, 1]

    def test_a_pool_of_one_keeps_its_address(self, net):
        assert self.aside(net, self.found(net, 1), last=1) == []
        assert self.aside(net, self.found(net, 1), last=1, used=[1]) == []

    @pytest.mark.parametrize(
        ("used", "nodes", "expected"),
        [
            pytest.param((1, 2), (), [3], id="one more is free"),
            pytest.param((1, 2, 4), (), [], id="it is the last free one"),
            pytest.param((1, 2), (4,), [], id="the other one is a node's"),
            pytest.param((1, 2, 3), (), [3], id="its Service can get another one"),
            pytest.param((1, 2, 3, 4), (), [], id="its Service cannot"),
        ],
    )
    def test_another_one_must_be_free(self, net, used, nodes, expected):
        found = self.found(net, 3)
        assert self.aside(net, found, last=4, used=used, nodes=nodes) == expected
        again = self.aside(net, found, last=4, used=used, nodes=nodes, before=[net[3]])
        assert again == expected

    def test_those_of_services_are_set_aside_for_as_many_good_ones_as_are_free(self, net):
        everything = self.found(net, *range(1, 9))
        used = tuple(range(1, 9))
        assert self.aside(net, everything, last=9, used=used) == [1]
        assert self.aside(net, everything, last=10, used=used) == [1, 2]
        assert self.aside(net, everything, last=9, used=used[:7]) == [1]

    def test_of_no_range_is_none(self, net):
        assert self.aside(net, self.found(net, 9), last=8) == []
