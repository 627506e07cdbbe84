# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.addresses import parse_range
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.allocate import (
    Assignment,
    Keep,
    Refusal,
    RefusalReason,
    Release,
    Taken,
    decide,
    overlapping,
    rebuild,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.model import (
    PoolType,
    Service,
    ServiceGroup,
    ServiceKey,
)
from worlds import GROUP, VIP4, VIP6, service

GROUPS = {"default": GROUP}
FIRST = {4: VIP4, 6: VIP6}


def new(name="web", families=(4, 6), **more):
    return Service(ServiceKey("default", name), families=families, **more)


def taken(*addresses, by="other"):
    return Taken(dict.fromkeys(addresses, ServiceKey("default", by)))


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
class TestOneFamily:
    def test_gets_the_first_free_address(self, version):
        outcome = decide(new(families=(version,)), GROUPS, Taken())
        assert outcome == Assignment("default", (FIRST[version],), GROUP.pool_type, skip_dad=False)

    def test_skips_addresses_that_are_taken(self, version):
        busy = taken(FIRST[version], FIRST[version] + 1)
        outcome = decide(new(families=(version,)), GROUPS, busy)
        assert outcome.addresses == (FIRST[version] + 2,)

    def test_gets_again_what_was_given_to_it_and_does_not_show_yet(self, version):
        given_before = taken(FIRST[version] + 3, by="web")
        outcome = decide(new(families=(version,)), GROUPS, given_before)
        assert outcome.addresses == (FIRST[version] + 3,)

    def test_is_refused_when_all_are_taken(self, version):
        everything = taken(*(FIRST[version] + i for i in range(10)))
        outcome = decide(new(families=(version,)), GROUPS, everything)
        assert outcome.reason is RefusalReason.EXHAUSTED
        assert f"no free IPv{version} address: enlarge the pool" in outcome.message

    def test_is_refused_when_the_group_has_no_such_pool(self, version):
        other = replace(GROUP, ranges=tuple(r for r in GROUP.ranges if r.first.version != version))
        outcome = decide(new(families=(version,)), {"default": other}, Taken())
        assert f"add a pool for IPv{version}" in outcome.message

    def test_gets_a_new_address_where_another_service_has_its(self, version):
        mine = replace(service(addresses=[FIRST[version]]), families=(version,))
        outcome = decide(mine, GROUPS, taken(FIRST[version]))
        assert outcome.addresses == (FIRST[version] + 1,)

    def test_takes_a_64_bit_pool_as_fast_as_a_small_one(self, version):
        subnet = "fd99::/64" if version == 6 else "10.0.0.0/8"
        huge = {"default": ServiceGroup("default", ranges=(parse_range(subnet, subnet),))}
        outcome = decide(new(families=(version,)), huge, Taken())
        assert len(outcome.addresses) == 1


class TestDualStack:
    def test_gets_an_address_of_each_family_in_the_services_order(self):
        assert decide(new(families=(6, 4)), GROUPS, Taken()).addresses == (VIP6, VIP4)

    def test_gets_what_there_is_if_it_only_prefers_both(self):
        only6 = replace(GROUP, ranges=GROUP.ranges[1:])
        assert decide(new(), {"default": only6}, Taken()).addresses == (VIP6,)

    def test_gets_nothing_if_it_requires_both_and_one_is_missing(self):
        only6 = replace(GROUP, ranges=GROUP.ranges[1:])
        outcome = decide(new(requires_dual_stack=True), {"default": only6}, Taken())
        assert isinstance(outcome, Refusal)

    def test_keeps_its_address_when_a_family_is_added(self):
        single = replace(service(addresses=[VIP4 + 5]), families=(4, 6))
        assert decide(single, GROUPS, Taken()).addresses == (VIP4 + 5, VIP6)

    def test_gives_one_back_when_a_family_is_removed(self):
        single = replace(service(addresses=[VIP4, VIP6]), families=(6,))
        assert decide(single, GROUPS, Taken()).addresses == (VIP6,)


class TestWhoIsServed:
    def test_a_service_that_has_what_it_should_is_left_alone(self):
        assert decide(service(), GROUPS, rebuild([service()])) == Keep()

    @pytest.mark.parametrize("name", [None, "purelb.io/purelbv2", "purelb.io/purelb-v2"])
    def test_our_classes_are_served(self, name):
        assert isinstance(decide(new(load_balancer_class=name), GROUPS, Taken()), Assignment)

    def test_another_class_is_left_alone(self):
        assert decide(new(load_balancer_class="example.com/other"), GROUPS, Taken()) == Keep()

    def test_another_type_is_left_alone(self):
        assert decide(new(is_load_balancer=False), GROUPS, Taken()) == Keep()

    def test_a_service_that_is_no_load_balancer_any_more_gives_all_back(self):
        former = replace(service(), is_load_balancer=False)
        assert decide(former, GROUPS, Taken()) == Release()

    def test_an_unknown_group_is_named_with_the_annotation_to_change(self):
        outcome = decide(new(group="blue"), GROUPS, Taken())
        assert outcome.reason is RefusalReason.UNKNOWN_POOL
        assert "ServiceGroup blue does not exist" in outcome.message
        assert "purelb.io/service-group" in outcome.message

    def test_an_address_of_a_remote_group_is_marked_as_such(self):
        remote = replace(GROUP, pool_type=PoolType.REMOTE)
        outcome = decide(new(), {"default": remote}, Taken())
        assert (outcome.addresses, outcome.pool_type) == ((VIP4, VIP6), PoolType.REMOTE)

    def test_an_address_is_kept_while_its_group_is_gone(self):
        assert decide(service(), {}, rebuild([service()])) == Keep()


class TestTaken:
    def test_is_rebuilt_from_what_services_say(self):
        state = rebuild([service("a", [VIP4]), service("b", [VIP6])])
        assert {str(a): k.name for a, k in state.holders.items()} == {
            "172.28.1.220": "a",
            "fd28::220": "b",
        }

    def test_who_claims_an_address_without_our_mark_comes_last(self):
        thief = replace(service("a", [VIP4]), allocated_by_us=False)
        assert rebuild([thief, service("b", [VIP4])]).holders[VIP4].name == "b"

    def test_lists_what_a_service_has(self):
        assert rebuild([service()]).of(service().key) == {VIP4, VIP6}

    def test_a_service_that_is_no_load_balancer_takes_nothing(self):
        former = replace(service(), is_load_balancer=False)
        assert rebuild([former]).holders == {}

    def test_counts_what_is_in_use_in_a_group(self):
        outside = ip_address("10.0.0.1")
        assert taken(VIP4, VIP6, outside).in_use(GROUP) == 2


def test_groups_that_overlap_are_found_whichever_way_round():
    inner = ServiceGroup("a", ranges=(parse_range("172.28.1.224-172.28.1.225", "172.28.1.0/24"),))
    apart = ServiceGroup("b", ranges=(parse_range("172.28.1.10-172.28.1.20", "172.28.1.0/24"),))
    assert overlapping([GROUP, inner, apart]) == [("a", "default")]


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["make", "drop"])), max_size=40)
)
def test_no_two_services_ever_have_one_address(steps):
    state, services = Taken(), {}
    for name, step in steps:
        key = ServiceKey("default", name)
        if step == "drop":
            services.pop(name, None)
            state = state.with_service(key, ())
        elif name not in services:
            outcome = decide(new(name), GROUPS, state)
            assert isinstance(outcome, Assignment)
            services[name] = outcome.addresses
            state = state.with_service(key, outcome.addresses)
        given_out = [a for addresses in services.values() for a in addresses]
        assert len(given_out) == len(set(given_out))
        assert set(given_out) == set(state.holders)
