# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.addresses import parse_range
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.allocate import (
    decide,
    rebuild,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.choice import Live
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.claims import claimed
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.groups import Groups
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.ledger import Ledger
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.model import (
    PoolType,
    Service,
    ServiceGroup,
    ServiceKey,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.outcomes import (
    Assignment,
    Keep,
    Refusal,
    Release,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.refusals import (
    RefusalReason,
)
from worlds import GROUP, VIP4, VIP6, service

GROUPS = Groups([GROUP])
FIRST = {4: VIP4, 6: VIP6}
NOBODY = Live()
HTTP, DNS = ("TCP", 80), ("UDP", 53)
# Three ranges of each family, the n-th in a subnet of its own.
SUBNETS = {4: "10.0.{}.0/24", 6: "fd00:{}::/64"}
SPANS = {4: "10.0.{0}.10-10.0.{0}.11", 6: "fd00:{0}::10-fd00:{0}::11"}


def new(name="web", families=(4, 6), **more):
    return Service(ServiceKey("default", name), families=families, **more)


def taken(*addresses, by="other"):
    ledger = Ledger()
    ledger.hold(new(by), addresses)
    return ledger


def asked(one, *others, groups=GROUPS, live=NOBODY):
    """The outcome for one Service while others have what they show."""
    return decide(one, groups, rebuild([one, *others]), live)


def ranges(version):
    return tuple(
        parse_range(SPANS[version].format(n), SUBNETS[version].format(n)) for n in (1, 2, 3)
    )


def live(version, *numbers):
    subnets = frozenset(ip_network(SUBNETS[version].format(n)) for n in numbers)
    return Live(subnets, has_nodes=bool(numbers))


def given_before(one, assignment):
    """The Service as it is once the assignment has been written."""
    return replace(
        one,
        addresses=assignment.addresses,
        allocated_by_us=True,
        allocated_from=assignment.group,
        pool_type=assignment.pool_type,
        skip_dad=assignment.skip_dad,
    )


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
class TestOneFamily:
    def test_gets_the_first_free_address(self, version):
        outcome = asked(new(families=(version,)))
        assert outcome == Assignment("default", (FIRST[version],), GROUP.pool_type, skip_dad=False)

    def test_skips_addresses_that_are_taken(self, version):
        busy = taken(FIRST[version], FIRST[version] + 1)
        outcome = decide(new(families=(version,)), GROUPS, busy, NOBODY)
        assert outcome.addresses == (FIRST[version] + 2,)

    def test_gets_again_what_was_given_to_it_and_does_not_show_yet(self, version):
        reserved = taken(FIRST[version] + 3, by="web")
        outcome = decide(new(families=(version,)), GROUPS, reserved, NOBODY)
        assert outcome.addresses == (FIRST[version] + 3,)

    def test_is_refused_when_all_are_taken(self, version):
        everything = taken(*(FIRST[version] + i for i in range(10)))
        outcome = decide(new(families=(version,)), GROUPS, everything, NOBODY)
        assert outcome.reason is RefusalReason.EXHAUSTED
        assert f"no free IPv{version} address: enlarge the pool" in outcome.message

    def test_is_refused_when_the_group_has_no_such_pool(self, version):
        other = replace(GROUP, ranges=tuple(r for r in GROUP.ranges if r.first.version != version))
        outcome = asked(new(families=(version,)), groups=Groups([other]))
        assert f"add a pool for IPv{version}" in outcome.message

    def test_gets_a_new_address_where_another_service_has_its(self, version):
        mine = replace(service(addresses=[FIRST[version]]), families=(version,))
        outcome = decide(mine, GROUPS, taken(FIRST[version]), NOBODY)
        assert outcome.addresses == (FIRST[version] + 1,)

    def test_a_huge_pool_costs_no_more_than_a_small_one(self, version):
        subnet = "fd99::/64" if version == 6 else "10.0.0.0/8"
        huge = Groups([ServiceGroup("default", ranges=(parse_range(subnet, subnet),))])
        ledger = Ledger()
        for number in range(100):
            one = new(f"s{number}", families=(version,))
            ledger.hold(one, decide(one, huge, ledger, NOBODY).addresses)
        assert len(ledger) == 100

    def test_keeps_what_its_shrunken_pool_does_not_hold_any_more(self, version):
        shrunk = replace(GROUP, ranges=ranges(version))
        mine = replace(service(addresses=[FIRST[version]]), families=(version,))
        assert asked(mine, groups=Groups([shrunk])) == Keep((FIRST[version],))
        moved = asked(replace(mine, asks_reevaluation=True), groups=Groups([shrunk]))
        assert moved.addresses == (ranges(version)[0].first,)


class TestDualStack:
    def test_gets_an_address_of_each_family_in_the_services_order(self):
        assert asked(new(families=(6, 4))).addresses == (VIP6, VIP4)

    def test_gets_what_there_is_if_it_only_prefers_both(self):
        only6 = Groups([replace(GROUP, ranges=GROUP.ranges[1:])])
        assert asked(new(), groups=only6).addresses == (VIP6,)

    def test_gets_nothing_if_it_requires_both_and_one_is_missing(self):
        only6 = Groups([replace(GROUP, ranges=GROUP.ranges[1:])])
        assert isinstance(asked(new(requires_dual_stack=True), groups=only6), Refusal)

    def test_goes_on_with_what_it_has_if_the_other_one_cannot_be_had(self):
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


class TestWhoIsServed:
    def test_a_service_that_has_what_it_should_is_left_alone(self):
        assert asked(service()) == Keep()

    @pytest.mark.parametrize("name", [None, "purelb.io/purelbv2", "purelb.io/purelb-v2"])
    def test_our_classes_are_served(self, name):
        assert isinstance(asked(new(load_balancer_class=name)), Assignment)

    def test_one_without_a_class_is_left_alone_where_only_ours_are_claimed(self):
        classes = claimed(unclassed=False)
        assert decide(new(), GROUPS, Ledger(), NOBODY, classes=classes) == Keep()
        named = new(load_balancer_class="purelb.io/purelbv2")
        assert isinstance(decide(named, GROUPS, Ledger(), NOBODY, classes=classes), Assignment)

    def test_what_another_purelb_gave_it_stays_where_only_ours_are_claimed(self):
        classes = claimed(unclassed=False)
        marked_alike = replace(service(), allocated_by_us=True, load_balancer_class=None)
        assert decide(marked_alike, GROUPS, Ledger(), NOBODY, classes=classes) == Keep()
        was = replace(marked_alike, is_load_balancer=False)
        assert decide(was, GROUPS, Ledger(), NOBODY, classes=classes) == Release()

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
    def test_but_not_one_that_another_service_has(self, version):
        ledger = taken(FIRST[version])
        outcome = decide(service(), Groups(), ledger, NOBODY)
        assert outcome.reason is RefusalReason.UNKNOWN_POOL
        assert outcome.keeps == (FIRST[10 - version],)

    def test_another_group_is_taken_when_the_service_names_it(self):
        blue = ServiceGroup("blue", ranges=ranges(4) + ranges(6))
        outcome = asked(service(group="blue"), groups=Groups([GROUP, blue]))
        assert outcome.addresses == (ranges(4)[0].first, ranges(6)[0].first)

    def test_the_old_addresses_stay_while_the_new_group_refuses(self):
        outcome = asked(service(group="blue"))
        assert (outcome.reason, outcome.keeps) == (RefusalReason.UNKNOWN_POOL, (VIP4, VIP6))

    def test_marks_that_somebody_removed_are_written_again(self):
        bare = replace(service(), allocated_by_us=False, allocated_from=None)
        assert asked(bare).addresses == (VIP4, VIP6)


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
class TestExplicit:
    def test_gets_what_it_asks_for(self, version):
        outcome = asked(new(families=(version,), explicit=(FIRST[version] + 4,)))
        assert outcome.addresses == (FIRST[version] + 4,)

    def test_the_other_family_comes_from_the_same_group(self, version):
        outcome = asked(new(explicit=(FIRST[version] + 4,)))
        assert outcome.addresses == tuple(FIRST[v] + 4 * (v == version) for v in (4, 6))

    def test_moves_when_it_asks_for_another_one(self, version):
        running = service(explicit=(FIRST[version] + 4,))
        assert asked(running).addresses == tuple(FIRST[v] + 4 * (v == version) for v in (4, 6))

    def test_is_left_alone_once_it_has_it(self, version):
        mine = (FIRST[version] + 4,)
        one = new(families=(version,), explicit=mine)
        assert asked(given_before(one, asked(one))) == Keep()

    @pytest.mark.parametrize(
        ("more", "reason", "words"),
        [
            ({"explicit": 99}, "unknown_pool", "has no range with"),
            ({"explicit": 1}, "sharing_key_conflict", "Service default/other has it"),
            ({"explicit": 1, "sharing_key": "x"}, "sharing_key_conflict", "allow-shared-ip"),
            ({"malformed": ("1.2.3",)}, "invalid_address", "'1.2.3' is no IP address"),
            ({"explicit": 4, "other_family": True}, "invalid_address", "spec.ipFamilies"),
            ({"explicit": 4, "second": 5}, "multipool_refused", "ask for one only"),
            (
                {"explicit": 4, "second": 5, "multi_pool": True},
                "multipool_pool_mismatch",
                "is the second of",
            ),
        ],
        ids=["outside", "taken", "key", "garbage", "family", "two", "two-of-one-range"],
    )
    def test_is_told_why_it_cannot_have_it(self, version, more, reason, words):
        settings = dict(more)
        offsets = [settings.pop(n) for n in ("explicit", "second") if n in settings]
        family = 10 - version if settings.pop("other_family", False) else version
        explicit = tuple(FIRST[version] + offset for offset in offsets)
        asking = new(families=(family,), explicit=explicit, **settings)
        outcome = decide(asking, GROUPS, taken(FIRST[version] + 1), NOBODY)
        assert (outcome.reason.value, words in outcome.message) == (reason, True), outcome

    def test_an_address_that_its_pool_has_lost_stays(self, version):
        shrunk = Groups([replace(GROUP, ranges=ranges(4) + ranges(6))])
        assert asked(service(explicit=(FIRST[version],)), groups=shrunk) == Keep((VIP4, VIP6))


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
class TestSharing:
    def other(self, version, **more):
        one = new("other", families=(version,), sharing_key="x", ports=frozenset({HTTP}), **more)
        return given_before(one, asked(one))

    def test_services_with_one_key_get_one_address(self, version):
        mine = new(families=(version,), sharing_key="x", ports=frozenset({DNS}))
        assert asked(mine, self.other(version)).addresses == (FIRST[version],)

    def test_not_on_the_same_port(self, version):
        mine = new(families=(version,), sharing_key="x", ports=frozenset({HTTP, DNS}))
        assert asked(mine, self.other(version)).addresses == (FIRST[version] + 1,)
        asking = replace(mine, explicit=(FIRST[version],))
        outcome = asked(asking, self.other(version))
        assert outcome.reason is RefusalReason.PORT_CONFLICT
        assert "Service default/other listens on 80/TCP" in outcome.message

    def test_not_with_another_key(self, version):
        mine = new(families=(version,), sharing_key="y", ports=frozenset({DNS}))
        assert asked(mine, self.other(version)).addresses == (FIRST[version] + 1,)

    def test_who_adds_a_port_that_the_other_has_moves_away(self, version):
        mine = new(families=(version,), sharing_key="x", ports=frozenset({DNS}))
        running = given_before(mine, asked(mine, self.other(version)))
        ledger = rebuild([running, self.other(version)])
        changed = replace(running, ports=frozenset({HTTP}))
        assert decide(changed, GROUPS, ledger, NOBODY).addresses == (FIRST[version] + 1,)

    def test_who_insists_on_an_address_that_it_cannot_share_any_more_loses_it(self, version):
        mine = new(families=(version,), sharing_key="x", ports=frozenset({DNS}))
        running = given_before(mine, asked(mine, self.other(version)))
        ledger = rebuild([running, self.other(version)])
        changed = replace(running, ports=frozenset({HTTP}), explicit=(FIRST[version],))
        outcome = decide(changed, GROUPS, ledger, NOBODY)
        assert (outcome.reason, outcome.keeps) == (RefusalReason.PORT_CONFLICT, ())


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
    ledger, got = Ledger(), []
    for number in range(6):
        one = new(f"s{number}", families=(version,))
        outcome = decide(one, groups, ledger, NOBODY)
        ledger.hold(one, outcome.addresses)
        got.append(outcome.addresses[0])
        assert outcome.is_balanced
    first, second, third = (r.first for r in ranges(version))
    assert got == [first, second, third, first + 1, second + 1, third + 1]


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

    def test_leaves_a_group_that_is_gone(self):
        groups = Groups([replace(GROUP, ranges=ranges(4) + ranges(6))])
        orphan = service(allocated_from="gone", asks_reevaluation=True)
        assert asked(orphan, groups=groups).addresses == (ranges(4)[0].first, ranges(6)[0].first)


class TestRebuild:
    def test_takes_what_services_say(self):
        ledger = rebuild([service("a", [VIP4]), service("b", [VIP6])])
        assert {a: ledger.holders(a)[0].name for a in (VIP4, VIP6)} == {VIP4: "a", VIP6: "b"}

    def test_who_claims_an_address_without_our_mark_comes_last(self):
        thief = replace(service("a", [VIP4]), allocated_by_us=False)
        ledger = rebuild([thief, service("b", [VIP4])])
        assert ledger.holders(VIP4) == (service("b").key,)

    def test_who_shares_an_address_has_it_too(self):
        both = [
            service(name, [VIP4], sharing_key="x", ports=frozenset({port}))
            for name, port in (("a", HTTP), ("b", DNS))
        ]
        assert len(rebuild(both).holders(VIP4)) == 2

    def test_a_service_that_is_no_load_balancer_takes_nothing(self):
        assert len(rebuild([replace(service(), is_load_balancer=False)])) == 0


def test_a_service_without_any_range_left_for_a_family_names_it():
    empty = Groups([ServiceGroup("default", ranges=(GROUP.ranges[0],))])
    everything = taken(*(VIP4 + i for i in range(10)))
    outcome = decide(new(), empty, everything, NOBODY)
    assert "no free IPv4 and IPv6 address: add a pool" in outcome.message


def test_an_address_may_be_asked_for_of_a_pool_that_holds_it():
    asking = new(families=(4,), explicit=(ip_address("172.28.1.229"),))
    assert asked(asking).addresses == (ip_address("172.28.1.229"),)
