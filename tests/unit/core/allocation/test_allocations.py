# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.addresses import parse_range
from purelb.core.allocation.allocations import AllocationConflict, Allocations
from purelb.core.model import Service, ServiceKey

RANGES = {
    4: parse_range("10.0.0.10-10.0.0.19", "10.0.0.0/24"),
    6: parse_range("fd00::10-fd00::19", "fd00::/64"),
}
HTTP, DNS = ("TCP", 80), ("UDP", 53)


def service(name, sharing_key=None, ports=(HTTP,)):
    return Service(
        ServiceKey("default", name),
        sharing_key=sharing_key,
        ports=frozenset(ports),
        families=(4, 6),
    )


def filled(version, *offsets):
    allocations = Allocations()
    for offset in offsets:
        allocations.hold(service(f"s{offset}"), [RANGES[version].first + offset])
    return allocations


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
class TestLowestFree:
    @pytest.mark.parametrize(
        ("taken", "free"),
        [
            pytest.param([], 0, id="of-an-empty-range"),
            pytest.param([0, 1, 2], 3, id="after-those-in-a-row"),
            pytest.param([1, 2], 0, id="before-them"),
            pytest.param([0, 1, 3, 4, 9], 2, id="in-the-first-gap"),
            pytest.param(range(9), 9, id="the-last"),
            pytest.param(range(10), None, id="none-of-a-full-one"),
            pytest.param([-1, 0, 10, 11], 1, id="whatever-is-taken-around-it"),
        ],
    )
    def test_is_found(self, version, taken, free):
        one = RANGES[version]
        wanted = None if free is None else one.first + free
        assert filled(version, *taken).lowest_free(one) == wanted

    def test_counts_only_what_is_in_the_range(self, version):
        assert filled(version, -1, 0, 5, 10).in_use(RANGES[version]) == 2

    def test_an_address_that_was_left_is_free_again(self, version):
        allocations = filled(version, 0, 1, 2)
        assert allocations.release(service("s1").key) == {RANGES[version].first + 1}
        assert allocations.lowest_free(RANGES[version]) == RANGES[version].first + 1


@pytest.mark.parametrize("address", ["10.0.0.10", "fd00::10"], ids=["v4", "v6"])
class TestSharing:
    def test_service_without_a_key_conflicts_with_the_holder(self, address):
        allocations = Allocations()
        allocations.hold(service("a"), [ip_address(address)])
        assert allocations.conflict(ip_address(address), service("b")) == AllocationConflict(
            service("a").key
        )
        assert allocations.conflict(ip_address(address), service("a")) is None

    @pytest.mark.parametrize(
        ("key", "ports", "conflict"),
        [
            ("x", [DNS], None),
            ("x", [HTTP, DNS], AllocationConflict(service("a").key, (HTTP,))),
            ("y", [DNS], AllocationConflict(service("a").key)),
            (None, [DNS], AllocationConflict(service("a").key)),
        ],
        ids=["other-ports", "same-port", "other-key", "no-key"],
    )
    def test_equals_share_it_on_other_ports(self, address, key, ports, conflict):
        allocations = Allocations()
        allocations.hold(service("a", "x"), [ip_address(address)])
        assert allocations.conflict(ip_address(address), service("b", key, ports)) == conflict

    def test_it_stays_taken_until_the_last_has_left_it(self, address):
        one = RANGES[ip_address(address).version]
        allocations = Allocations()
        first, second = service("a", "x"), service("b", "x", [DNS])
        for each in (first, second):
            allocations.hold(each, [one.first])
        assert allocations.holders(one.first) == (first.key, second.key)
        assert (allocations.in_use(one), len(allocations)) == (1, 1)
        allocations.release(first.key)
        assert allocations.lowest_free(one) == one.first + 1
        assert allocations.shareable(one, service("c", "x")) == one.first
        allocations.release(second.key)
        assert allocations.lowest_free(one) == one.first
        assert allocations.shareable(one, service("c", "x")) is None

    def test_the_lowest_that_fits_is_offered(self, address):
        one = RANGES[ip_address(address).version]
        allocations = Allocations()
        allocations.hold(service("a", "x"), [one.first])
        allocations.hold(service("b", "x"), [one.first + 2])
        allocations.hold(service("c", "x", [DNS]), [one.first + 1])
        assert allocations.shareable(one, service("d", "x")) == one.first + 1
        assert allocations.shareable(one, service("d")) is None

    def test_new_terms_count_from_when_they_are_held(self, address):
        one = RANGES[ip_address(address).version]
        allocations = Allocations()
        allocations.hold(service("a", "x"), [one.first])
        allocations.hold(service("a", None), [one.first])
        assert allocations.conflict(one.first, service("b", "x", [DNS])) is not None


def test_releasing_an_unknown_service_changes_nothing():
    allocations = Allocations()
    assert allocations.release(service("a").key) == frozenset()
    assert allocations.hold(service("a"), []) == frozenset()
    assert len(allocations) == 0


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
@given(steps=st.lists(st.tuples(st.integers(0, 5), st.sets(st.integers(-2, 12), max_size=3))))
def test_agrees_with_a_search_from_the_first_address_on(version, steps):
    one, allocations, naive = RANGES[version], Allocations(), {}
    for name, offsets in steps:
        allocations.hold(service(f"s{name}"), [one.first + offset for offset in offsets])
        naive[name] = offsets
        taken = set().union(*naive.values())
        free = next((one.first + i for i in range(10) if i not in taken), None)
        assert allocations.lowest_free(one) == free
        assert allocations.in_use(one) == len(taken & set(range(10)))
