# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.addresses import parse_range
from purelb.core.allocation.allocate import decide, rebuild
from purelb.core.allocation.allocations import Allocations
from purelb.core.allocation.groups import Groups
from purelb.core.allocation.outcomes import Assignment, Keep, Refusal, Release
from purelb.core.allocation.refusals import RefusalReason
from purelb.core.election.claims import claimed
from purelb.core.model import PoolType, ServiceGroup
from tests.support.core.builders import (
    DNS,
    FIRST,
    GROUPS,
    HTTP,
    NO_NODES,
    asked,
    new,
    ranges,
    taken,
)
from tests.support.core.snapshots import GROUP, VIP4, VIP6, service


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
class TestOneFamily:
    def test_gets_the_first_free_address(self, version):
        outcome = asked(new(families=(version,)))
        assert outcome == Assignment("default", (FIRST[version],), GROUP.pool_type, skip_dad=False)

    def test_skips_addresses_that_are_taken(self, version):
        busy = taken(FIRST[version], FIRST[version] + 1)
        outcome = decide(new(families=(version,)), GROUPS, busy, NO_NODES)
        assert outcome.addresses == (FIRST[version] + 2,)

    def test_unwritten_allocation_is_repeated(self, version):
        reserved = taken(FIRST[version] + 3, by="web")
        outcome = decide(new(families=(version,)), GROUPS, reserved, NO_NODES)
        assert outcome.addresses == (FIRST[version] + 3,)

    def test_is_refused_when_all_are_taken(self, version):
        everything = taken(*(FIRST[version] + i for i in range(10)))
        outcome = decide(new(families=(version,)), GROUPS, everything, NO_NODES)
        assert outcome.reason is RefusalReason.EXHAUSTED
        assert f"no free IPv{version} address: enlarge the pool" in outcome.message

    def test_is_refused_when_the_group_has_no_such_pool(self, version):
        other = replace(GROUP, ranges=tuple(r for r in GROUP.ranges if r.first.version != version))
        outcome = asked(new(families=(version,)), groups=Groups([other]))
        assert f"add a pool for IPv{version}" in outcome.message

    def test_gets_a_new_address_where_another_service_has_its(self, version):
        mine = replace(service(addresses=[FIRST[version]]), families=(version,))
        outcome = decide(mine, GROUPS, taken(FIRST[version]), NO_NODES)
        assert outcome.addresses == (FIRST[version] + 1,)

    def test_a_huge_pool_costs_no_more_than_a_small_one(self, version):
        subnet = "fd99::/64" if version == 6 else "10.0.0.0/8"
        huge = Groups([ServiceGroup("default", ranges=(parse_range(subnet, subnet),))])
        allocations = Allocations()
        for number in range(100):
            one = new(f"s{number}", families=(version,))
            allocations.hold(one, decide(one, huge, allocations, NO_NODES).addresses)
        assert len(allocations) == 100

    def test_keeps_addresses_outside_its_shrunken_pool(self, version):
        shrunk = replace(GROUP, ranges=ranges(version))
        mine = replace(service(addresses=[FIRST[version]]), families=(version,))
        assert asked(mine, groups=Groups([shrunk])) == Keep((FIRST[version],))
        moved = asked(replace(mine, asks_reevaluation=True), groups=Groups([shrunk]))
        assert moved.addresses == (ranges(version)[0].first,)


class TestDualStack:
    def test_gets_an_address_of_each_family_in_the_services_order(self):
        assert asked(new(families=(6, 4))).addresses == (VIP6, VIP4)

    def test_preferred_dual_stack_accepts_one_family(self):
        only6 = Groups([replace(GROUP, ranges=GROUP.ranges[1:])])
        assert asked(new(), groups=only6).addresses == (VIP6,)

    def test_gets_nothing_if_it_requires_both_and_one_is_missing(self):
        only6 = Groups([replace(GROUP, ranges=GROUP.ranges[1:])])
        assert isinstance(asked(new(requires_dual_stack=True), groups=only6), Refusal)

    def test_refused_dual_stack_keeps_the_first_family(self):
        only4 = Groups([replace(GROUP, ranges=GROUP.ranges[:1])])
        single = replace(service(addresses=[VIP4]), requires_dual_stack=True)
        assert asked(single, groups=only4).keeps == (VIP4,)

    def test_keeps_its_address_when_a_family_is_added(self):
        single = replace(service(addresses=[VIP4 + 5]), families=(4, 6))
        assert asked(single).addresses == (VIP4 + 5, VIP6)

    @pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
    def test_gives_one_back_when_a_family_is_removed(self, version):
        single = replace(service(addresses=[VIP4, VIP6]), families=(version,))
        assert asked(single).addresses == (FIRST[version],)


class TestServedServices:
    def test_correct_service_is_kept(self):
        assert asked(service()) == Keep()

    @pytest.mark.parametrize("name", [None, "purelb.io/purelbv2", "purelb.io/purelb-v2"])
    def test_our_classes_are_served(self, name):
        assert isinstance(asked(new(load_balancer_class=name)), Assignment)

    def test_one_without_a_class_is_left_alone_where_only_ours_are_claimed(self):
        classes = claimed(unclassed=False)
        assert decide(new(), GROUPS, Allocations(), NO_NODES, classes=classes) == Keep()
        named = new(load_balancer_class="purelb.io/purelbv2")
        assert isinstance(
            decide(named, GROUPS, Allocations(), NO_NODES, classes=classes), Assignment
        )

    def test_what_another_purelb_gave_it_stays_where_only_ours_are_claimed(self):
        classes = claimed(unclassed=False)
        marked_alike = replace(service(), allocated_by_us=True, load_balancer_class=None)
        assert decide(marked_alike, GROUPS, Allocations(), NO_NODES, classes=classes) == Keep()
        was = replace(marked_alike, is_load_balancer=False)
        assert decide(was, GROUPS, Allocations(), NO_NODES, classes=classes) == Release()

    def test_another_class_is_left_alone(self):
        assert asked(new(load_balancer_class="example.com/other")) == Keep()

    def test_another_type_is_left_alone(self):
        assert asked(new(is_load_balancer=False)) == Keep()

    def test_a_service_that_is_no_load_balancer_any_more_gives_all_back(self):
        assert asked(replace(service(), is_load_balancer=False)) == Release()

    def test_an_unknown_group_is_named_with_the_annotation_to_change(self):
        outcome = asked(new(group="blue"))
        assert outcome.reason is RefusalReason.UNKNOWN_POOL
        assert "ServiceGroup blue does not exist" in outcome.message
        assert "purelb.io/service-group" in outcome.message

    def test_an_address_of_a_remote_group_is_marked_as_such(self):
        remote = Groups([replace(GROUP, pool_type=PoolType.REMOTE)])
        outcome = asked(new(), groups=remote)
        assert (outcome.addresses, outcome.pool_type) == ((VIP4, VIP6), PoolType.REMOTE)

    def test_addresses_are_kept_while_their_group_is_gone(self):
        assert asked(service(), groups=Groups()) == Keep((VIP4, VIP6))

    @pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
    def test_address_of_another_service_is_not_kept(self, version):
        allocations = taken(FIRST[version])
        outcome = decide(service(), Groups(), allocations, NO_NODES)
        assert outcome.reason is RefusalReason.UNKNOWN_POOL
        assert outcome.keeps == (FIRST[10 - version],)

    def test_another_group_is_taken_when_the_service_names_it(self):
        blue = ServiceGroup("blue", ranges=ranges(4) + ranges(6))
        outcome = asked(service(group="blue"), groups=Groups([GROUP, blue]))
        assert outcome.addresses == (ranges(4)[0].first, ranges(6)[0].first)

    def test_the_old_addresses_stay_while_the_new_group_refuses(self):
        outcome = asked(service(group="blue"))
        assert (outcome.reason, outcome.keeps) == (RefusalReason.UNKNOWN_POOL, (VIP4, VIP6))

    def test_removed_annotations_are_written_again(self):
        bare = replace(service(), allocated_by_us=False, allocated_from=None)
        assert asked(bare).addresses == (VIP4, VIP6)


class TestExternalTrafficPolicy:
    def test_becomes_cluster_on_a_local_pool(self):
        assert asked(new(is_external_local=True)).sets_cluster
        assert asked(service(is_external_local=True)).sets_cluster

    def test_stays_where_the_service_allows_it(self):
        assert not asked(new(is_external_local=True, allows_local=True)).sets_cluster

    def test_stays_on_a_remote_pool(self):
        remote = Groups([replace(GROUP, pool_type=PoolType.REMOTE)])
        assert not asked(new(is_external_local=True), groups=remote).sets_cluster


class TestReevaluation:
    def test_is_written_even_if_nothing_else_changes(self):
        outcome = asked(service(asks_reevaluation=True))
        assert outcome.addresses == (VIP4, VIP6)

    def test_moves_to_the_group_that_serves_the_namespace_now(self):
        blue = ServiceGroup("blue", ranges=ranges(4) + ranges(6), namespaces=frozenset({"default"}))
        groups = Groups([GROUP, blue])
        assert asked(service(), groups=groups) == Keep()
        assert asked(service(asks_reevaluation=True), groups=groups).group == "blue"

    def test_leaves_a_deleted_group(self):
        groups = Groups([replace(GROUP, ranges=ranges(4) + ranges(6))])
        orphan = service(allocated_from="gone", asks_reevaluation=True)
        assert asked(orphan, groups=groups).addresses == (ranges(4)[0].first, ranges(6)[0].first)


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
class TestFences:
    """A group of another namespace; the ledger says what the Service has of it, if anything."""

    GROUPS = Groups([replace(GROUP, namespaces=frozenset({"shop"}), enforces=True)])

    def test_no_annotation_gets_a_new_address(self, version):
        for forged in ({}, {"allocated_by_us": True, "allocated_from": "default"}):
            asking = new(families=(version,), group="default", **forged)
            outcome = asked(asking, groups=self.GROUPS)
            assert (outcome.reason, outcome.keeps) == (RefusalReason.NAMESPACE_DENIED, ())

    def test_what_the_service_has_stays_and_gets_no_companion(self, version):
        mine = replace(service(addresses=[FIRST[version]]), families=(version,))
        assert asked(mine, groups=self.GROUPS) == Keep()
        more = asked(replace(mine, families=(4, 6)), groups=self.GROUPS)
        assert more.reason is RefusalReason.NAMESPACE_DENIED
        assert more.keeps == (FIRST[version],)

    def test_a_denial_says_nothing_else_about_the_group(self, version):
        wrong = new(families=(version,), group="default", explicit=(FIRST[version] + 99,))
        assert asked(wrong, groups=self.GROUPS).reason is RefusalReason.NAMESPACE_DENIED

    def test_groups_that_leave_open_which_one_are_passed_on(self, version):
        serving = [
            ServiceGroup(name, namespaces=frozenset({"default"})) for name in ("red", "blue")
        ]
        outcome = asked(new(families=(version,)), groups=Groups([GROUP, *serving]))
        assert (outcome.group, outcome.ambiguous) == ("default", ("blue", "red"))


class TestRebuild:
    def test_rebuild_reads_the_status(self):
        allocations = rebuild([service("a", [VIP4]), service("b", [VIP6])], GROUPS)
        assert {a: allocations.holders(a)[0].name for a in (VIP4, VIP6)} == {VIP4: "a", VIP6: "b"}

    def test_unmarked_service_comes_last(self):
        thief = replace(service("a", [VIP4]), allocated_by_us=False)
        allocations = rebuild([thief, service("b", [VIP4])], GROUPS)
        assert allocations.holders(VIP4) == (service("b").key,)

    def test_shared_address_belongs_to_both(self):
        both = [
            service(name, [VIP4], sharing_key="x", ports=frozenset({port}))
            for name, port in (("a", HTTP), ("b", DNS))
        ]
        assert len(rebuild(both, GROUPS).holders(VIP4)) == 2

    def test_a_service_that_is_no_load_balancer_takes_nothing(self):
        assert len(rebuild([new(is_load_balancer=False, addresses=(VIP4,))], GROUPS)) == 0

    def test_one_that_was_a_load_balancer_has_its_addresses_until_they_are_released(self):
        assert len(rebuild([replace(service(), is_load_balancer=False)], GROUPS)) == 2


def test_a_service_without_any_range_left_for_a_family_names_it():
    empty = Groups([ServiceGroup("default", ranges=(GROUP.ranges[0],))])
    everything = taken(*(VIP4 + i for i in range(10)))
    outcome = decide(new(), empty, everything, NO_NODES)
    assert "no free IPv4 and IPv6 address: add a pool" in outcome.message
