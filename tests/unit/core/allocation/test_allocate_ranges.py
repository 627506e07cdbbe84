# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Groups of several ranges: an address of each, or of the one with the fewest in use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.allocation.allocate import decide
from purelb.core.allocation.allocations import Allocations
from purelb.core.allocation.choice import Live
from purelb.core.allocation.groups import Groups
from purelb.core.allocation.outcomes import Keep
from purelb.core.allocation.refusals import RefusalReason
from purelb.core.model import PoolType, ServiceGroup
from tests.support.core.builders import NO_NODES, asked, given_before, live, new, ranges, taken


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
class TestMultiPool:
    def groups(self, version, **more):
        return Groups([ServiceGroup("default", ranges=ranges(version), multi_pool=True, **more)])

    def one(self, version, **more):
        return new(families=(version,), **more)

    def test_gets_one_of_each_range_that_has_nodes(self, version):
        outcome = asked(self.one(version), groups=self.groups(version), live=live(version, 1, 3))
        assert outcome.addresses == tuple(ranges(version)[i].first for i in (0, 2))
        assert (outcome.is_multi, outcome.partial) == (True, ())

    def test_a_range_that_gains_its_first_node_is_filled_in(self, version):
        groups = self.groups(version)
        before = asked(self.one(version), groups=groups, live=live(version, 3))
        running = given_before(self.one(version), before)
        after = asked(running, groups=groups, live=live(version, 1, 3))
        assert after.addresses == tuple(ranges(version)[i].first for i in (0, 2))

    def test_a_range_that_loses_its_nodes_keeps_its_address(self, version):
        groups = self.groups(version)
        running = given_before(
            self.one(version), asked(self.one(version), groups=groups, live=live(version, 1, 2))
        )
        assert asked(running, groups=groups, live=live(version, 1)) == Keep()

    def test_remote_ranges_have_nodes_if_there_is_any(self, version):
        groups = self.groups(version, pool_type=PoolType.REMOTE)
        outcome = asked(self.one(version), groups=groups, live=Live(has_nodes=True))
        assert len(outcome.addresses) == 3

    def test_waits_for_a_first_node(self, version):
        outcome = asked(self.one(version), groups=self.groups(version))
        assert outcome.reason is RefusalReason.MULTIPOOL_REFUSED
        assert "as soon as there is one" in outcome.message

    def test_a_range_with_nothing_left_is_named(self, version):
        full = taken(*(ranges(version)[0].first + i for i in range(2)))
        outcome = decide(self.one(version), self.groups(version), full, live(version, 1, 2))
        assert (outcome.addresses, outcome.partial) == (
            (ranges(version)[1].first,),
            (ranges(version)[0],),
        )

    def test_is_refused_when_no_range_has_any_left(self, version):
        full = taken(*(ranges(version)[0].first + i for i in range(2)))
        outcome = decide(self.one(version), self.groups(version), full, live(version, 1))
        assert outcome.reason is RefusalReason.EXHAUSTED

    def test_the_service_overrides_the_group_both_ways(self, version):
        no = self.one(version, multi_pool=False)
        outcome = asked(no, groups=self.groups(version), live=live(version, 1, 2))
        assert len(outcome.addresses) == 1
        plain = Groups([ServiceGroup("default", ranges=ranges(version))])
        yes = self.one(version, multi_pool=True)
        assert len(asked(yes, groups=plain, live=live(version, 1, 2)).addresses) == 2

    def test_only_the_services_own_word_takes_addresses_away(self, version):
        yes = self.one(version)
        groups = self.groups(version)
        running = given_before(yes, asked(yes, groups=groups, live=live(version, 1, 2)))
        plain = Groups([ServiceGroup("default", ranges=ranges(version))])
        assert asked(running, groups=plain) == Keep()
        outcome = asked(replace(running, multi_pool=False), groups=plain)
        assert outcome.addresses == (ranges(version)[0].first,)

    def test_addresses_that_are_asked_for_come_from_their_ranges(self, version):
        wanted = ranges(version)[1].first + 1
        one = self.one(version, explicit=(wanted,))
        outcome = asked(one, groups=self.groups(version), live=live(version, 1, 2))
        assert outcome.addresses == (ranges(version)[0].first, wanted)

    def test_one_of_a_range_goes_when_another_one_of_it_is_asked_for(self, version):
        groups, nodes = self.groups(version), live(version, 1, 2)
        running = given_before(
            self.one(version), asked(self.one(version), groups=groups, live=nodes)
        )
        wanted = ranges(version)[1].first + 1
        outcome = asked(replace(running, explicit=(wanted,)), groups=groups, live=nodes)
        assert outcome.addresses == (ranges(version)[0].first, wanted)

    def test_excludes_a_group_that_balances(self, version):
        balanced = Groups([ServiceGroup("default", ranges=ranges(version), balance_pools=True)])
        outcome = asked(self.one(version, multi_pool=True), groups=balanced)
        assert outcome.reason is RefusalReason.MULTIPOOL_REFUSED


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
def test_balanced_pools_take_turns(version):
    groups = Groups([ServiceGroup("default", ranges=ranges(version), balance_pools=True)])
    allocations, got = Allocations(), []
    for number in range(6):
        one = new(f"s{number}", families=(version,))
        outcome = decide(one, groups, allocations, NO_NODES)
        allocations.hold(one, outcome.addresses)
        got.append(outcome.addresses[0])
        assert outcome.is_balanced
    first, second, third = (r.first for r in ranges(version))
    assert got == [first, second, third, first + 1, second + 1, third + 1]
