# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.addresses import parse_range
from purelb.core.allocation.allocations import HeldAddresses
from purelb.core.allocation.groups import GroupChoice, Groups
from purelb.core.allocation.refusals import AllocationRefusedError, RefusalReason
from purelb.core.model import Service, ServiceGroup, ServiceKey

SUBNETS = {4: "10.0.0.0/24", 6: "fd00::/120"}
HOSTS = {4: "10.0.0.", 6: "fd00::"}


def pool(version, first, last):
    start = HOSTS[version]
    return parse_range(f"{start}{first}-{start}{last}", SUBNETS[version])


def group(name, *ranges, **more):
    return ServiceGroup(name, ranges=ranges, **more)


def service(namespace="shop", **more):
    return Service(ServiceKey(namespace, "web"), **more)


@pytest.mark.parametrize("version", [4, 6])
def test_a_range_of_any_group_has_an_address_whether_it_is_usable_or_not(version):
    mine, same = group("a", pool(version, 1, 9)), group("b", pool(version, 5, 20))
    groups = Groups([mine, same])
    assert groups.has_range_of(ip_address(f"{HOSTS[version]}5"))
    assert not groups.has_range_of(ip_address(f"{HOSTS[version]}30"))


def refused(groups, asking, shown=(), origin=None):
    with pytest.raises(AllocationRefusedError) as caught:
        groups.of(asking, HeldAddresses(shown, origin))
    return caught.value


def selected(groups, asking, shown=(), origin=None):
    choice = groups.of(asking, HeldAddresses(shown, origin))
    assert choice.ambiguous == ()
    return choice.group


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
class TestOverlap:
    def test_the_younger_of_two_is_not_used(self, version):
        young = group("a", pool(version, 15, 30), created="2026-02-01T00:00:00Z")
        old = group("b", pool(version, 10, 20), created="2026-01-01T00:00:00Z")
        groups = Groups([young, old])
        (overlap,) = groups.overlaps
        assert (overlap.later, overlap.earlier) == ("a", "b")
        assert (overlap.later_range, overlap.earlier_range) == (young.ranges[0], old.ranges[0])
        assert set(groups.usable) == {"b"}

    def test_of_two_of_one_age_the_name_decides(self, version):
        groups = Groups([group("b", pool(version, 10, 20)), group("a", pool(version, 20, 30))])
        assert set(groups.usable) == {"a"}

    def test_one_inside_another_is_found(self, version):
        groups = Groups(
            [
                group("a", pool(version, 10, 90)),
                group("b", pool(version, 20, 30)),
                group("c", pool(version, 40, 50)),
            ]
        )
        assert [(o.later, o.earlier) for o in groups.overlaps] == [("b", "a"), ("c", "a")]

    def test_overlap_with_an_unused_group_is_ignored(self, version):
        groups = Groups(
            [
                group("a", pool(version, 10, 20)),
                group("b", pool(version, 20, 30)),
                group("c", pool(version, 30, 40)),
            ]
        )
        assert set(groups.usable) == {"a", "c"}

    def test_a_group_that_overlaps_itself_is_not_used(self, version):
        groups = Groups([group("a", pool(version, 10, 20), pool(version, 20, 30))])
        assert [(o.later, o.earlier) for o in groups.overlaps] == [("a", "a")]

    def test_neighbours_do_not_overlap(self, version):
        groups = Groups([group("a", pool(version, 10, 19)), group("b", pool(version, 20, 30))])
        assert groups.overlaps == ()

    def test_naming_an_unused_group_is_refused(self, version):
        groups = Groups([group("a", pool(version, 10, 20)), group("b", pool(version, 20, 30))])
        problem = refused(groups, service(group="b"))
        assert problem.reason is RefusalReason.UNKNOWN_POOL
        assert "overlaps" in problem.message


def test_the_families_do_not_overlap():
    assert Groups([group("a", pool(4, 1, 9), pool(6, 1, 9))]).overlaps == ()


class TestGroupSelection:
    def test_named_group_is_selected(self):
        groups = Groups([group("default"), group("blue")])
        assert selected(groups, service(group="blue")).name == "blue"

    def test_group_of_the_namespace_is_selected(self):
        groups = Groups([group("default"), group("blue", namespaces=frozenset({"shop"}))])
        assert selected(groups, service()).name == "blue"
        assert selected(groups, service("other")).name == "default"

    def test_default_group_is_selected_or_refused(self):
        problem = refused(Groups(), service())
        assert problem.reason is RefusalReason.UNKNOWN_POOL
        assert "ServiceGroup default does not exist" in problem.message

    def test_of_several_that_serve_it_the_marked_one(self):
        shop = frozenset({"shop"})
        marked = group("red", namespaces=shop, is_namespace_default=True)
        groups = Groups([group("blue", namespaces=shop), marked])
        assert selected(groups, service()) == marked

    @pytest.mark.parametrize("marked", [False, True], ids=["none-marked", "two-marked"])
    def test_several_without_one_mark_leave_the_default_group(self, marked):
        more = {"namespaces": frozenset({"shop"}), "is_namespace_default": marked}
        groups = Groups([group("blue", **more), group("red", **more), group("default")])
        assert groups.of(service(), HeldAddresses()) == GroupChoice(
            group("default"), ("blue", "red")
        )

    @pytest.mark.parametrize("marked", [False, True], ids=["none-marked", "two-marked"])
    def test_several_without_one_mark_are_refused_behind_a_fence(self, marked):
        more = {"namespaces": frozenset({"shop"}), "is_namespace_default": marked}
        groups = [group("blue", enforces=True, **more), group("red", **more), group("default")]
        problem = refused(Groups(groups), service())
        assert problem.reason is RefusalReason.AMBIGUOUS_NAMESPACE_DEFAULT
        assert "blue, red all serve namespace shop" in problem.message
        assert "none sets namespaceDefault, or more than one does" in problem.message

    @pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
    def test_the_one_with_the_address_that_is_asked_for(self, version):
        one = pool(version, 10, 20)
        groups = Groups([group("default"), group("blue", one)])
        assert selected(groups, service(explicit=(one.first,))).name == "blue"

    def test_the_ordinary_one_if_none_has_that_address(self):
        asked = service(explicit=(ip_address("192.0.2.1"),))
        assert selected(Groups([group("default")]), asked).name == "default"


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
class TestRunningService:
    def test_stays_when_another_group_begins_to_serve_its_namespace(self, version):
        one = pool(version, 10, 20)
        groups = Groups([group("old", one), group("new", namespaces=frozenset({"shop"}))])
        assert selected(groups, service(), (one.first,), "old").name == "old"
        again = service(asks_reevaluation=True)
        assert selected(groups, again, (one.first,), "old").name == "new"

    def test_keeps_its_group_without_the_range(self, version):
        groups = Groups([group("default"), group("old", pool(version, 10, 20))])
        gone = pool(version, 30, 40).first
        assert selected(groups, service(), (gone,), "old").name == "old"

    def test_follows_its_address_to_another_group(self, version):
        one = pool(version, 10, 20)
        groups = Groups([group("default"), group("renamed", one)])
        assert selected(groups, service(), (one.first,), "old").name == "renamed"

    def test_follows_the_requested_address(self, version):
        one, other = pool(version, 10, 20), pool(version, 30, 40)
        groups = Groups([group("old", one), group("blue", other)])
        asking = service(explicit=(other.first,))
        assert selected(groups, asking, (one.first,), "old").name == "blue"
        satisfied = service(explicit=(one.first,))
        assert selected(groups, satisfied, (one.first,), "old").name == "old"

    def test_takes_the_ordinary_one_if_its_own_is_gone_altogether(self, version):
        groups = Groups([group("default")])
        gone = pool(version, 1, 2).first
        assert selected(groups, service(), (gone,), "old").name == "default"


class TestFence:
    CLOSED = group("blue", namespaces=frozenset({"shop"}), enforces=True)
    SHARED = group("red", namespaces=frozenset({"shop", "office"}))

    def test_outside_nothing_comes_from_a_group_that_serves_the_inside(self):
        groups = Groups([self.CLOSED, self.SHARED, group("default")])
        for one in (self.CLOSED, self.SHARED):
            problem = groups.denial(one, "other")
            assert problem.reason is RefusalReason.NAMESPACE_DENIED
            assert f"ServiceGroup {one.name} is reserved for other namespaces" in problem.message
            assert "shop" not in problem.message
            assert "which are" in problem.detail
            assert "shop" in problem.detail
        assert groups.denial(self.SHARED, "office") is None

    def test_inside_nothing_comes_from_elsewhere(self):
        groups = Groups([self.CLOSED, self.SHARED, group("default")])
        problem = groups.denial(groups.all["default"], "shop")
        assert problem.reason is RefusalReason.NAMESPACE_DENIED
        assert "get addresses from ServiceGroup blue or red only" in problem.message
        assert groups.denial(self.CLOSED, "shop") is None
        assert groups.denial(self.SHARED, "shop") is None

    def test_without_one_any_namespace_is_served(self):
        open_group = group("blue", namespaces=frozenset({"shop"}))
        assert Groups([open_group]).denial(open_group, "other") is None

    def test_stands_while_its_group_is_not_used(self):
        one = pool(4, 10, 20)
        overlapping = replace(self.CLOSED, ranges=(one,), created="2026-02-01T00:00:00Z")
        groups = Groups([overlapping, group("default", one, created="2026-01-01T00:00:00Z")])
        assert "blue" not in groups.usable
        problem = groups.denial(selected(groups, service()), "shop")
        assert problem.reason is RefusalReason.NAMESPACE_DENIED
