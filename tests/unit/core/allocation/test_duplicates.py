# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which addresses are avoided because nodes list them as another host's."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.allocation.duplicates import listed_duplicates
from purelb.core.election.counting import Counting
from purelb.core.model import Lease
from tests.support.core.snapshots import NET4, NET6


@pytest.mark.parametrize("net", [NET4, NET6], ids=["v4", "v6"])
class TestListedDuplicates:
    def counting(self, *leases):
        counting = Counting()
        for lease in leases:
            counting = counting.observe(lease, now=0.0)
        return counting

    def listed(self, counting, now):
        return listed_duplicates(counting.with_duplicates(now))

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
