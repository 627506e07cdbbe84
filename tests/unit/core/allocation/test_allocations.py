# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.addresses import parse_address, parse_range
from purelb.core.allocation.allocations import (
    AddressTakenError,
    AllocationConflict,
    Allocations,
)
from purelb.core.api.codec import service_of
from purelb.core.model import Service, ServiceKey

RANGES = {
    4: parse_range("10.0.0.10-10.0.0.19", "10.0.0.0/24"),
    6: parse_range("fd00::10-fd00::19", "fd00::/64"),
}
HTTP, DNS = ("TCP", 80), ("UDP", 53)
# In the place of a Service's number: the addresses of Nodes.
NODES = 6


def service(name, sharing_key=None, ports=(HTTP,), namespace="default"):
    return Service(
        ServiceKey(namespace, name),
        sharing_key=sharing_key,
        ports=frozenset(ports),
        families=(4, 6),
    )


def conflict(allocations, address, asking, *, across=False):
    return allocations.conflict(ip_address(address), asking, across_namespaces=across)


def shareable(allocations, pool_range, asking):
    return allocations.shareable(pool_range, asking, across_namespaces=False)


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
        assert conflict(allocations, address, service("b")) == AllocationConflict(service("a").key)
        assert conflict(allocations, address, service("a")) is None

    @pytest.mark.parametrize(
        ("key", "ports", "expected"),
        [
            ("x", [DNS], None),
            ("x", [HTTP, DNS], AllocationConflict(service("a").key, (HTTP,))),
            ("y", [DNS], AllocationConflict(service("a").key)),
            (None, [DNS], AllocationConflict(service("a").key)),
        ],
        ids=["other-ports", "same-port", "other-key", "no-key"],
    )
    def test_equals_share_it_on_other_ports(self, address, key, ports, expected):
        allocations = Allocations()
        allocations.hold(service("a", "x"), [ip_address(address)])
        assert conflict(allocations, address, service("b", key, ports)) == expected

    def test_another_namespace_shares_it_only_where_that_is_said(self, address):
        allocations = Allocations()
        allocations.hold(service("a", "x"), [ip_address(address)])
        far = service("b", "x", [DNS], namespace="shop")
        assert conflict(allocations, address, far) == AllocationConflict(service("a").key)
        assert conflict(allocations, address, far, across=True) is None
        # Who shares it already is not cut off when that is said no longer.
        allocations.hold(far, [ip_address(address)])
        assert conflict(allocations, address, far) is None

    def test_what_the_later_one_asks_never_moves_the_earlier_one(self, address):
        allocations = Allocations()
        first, second = service("a", "x"), service("b", "x", [DNS])
        for each in (first, second):
            allocations.hold(each, [ip_address(address)])
        for changed in (service("b", "x", [HTTP]), service("b", "y", [DNS]), service("b")):
            allocations.hold(changed, [ip_address(address)])
            assert conflict(allocations, address, changed).holder == first.key
            assert conflict(allocations, address, first) is None

    def test_what_the_earlier_one_asks_moves_the_later_one(self, address):
        allocations = Allocations()
        first, second = service("a", "x"), service("b", "x", [DNS])
        for each in (first, second, service("a", "x", [HTTP, DNS])):
            allocations.hold(each, [ip_address(address)])
        assert conflict(allocations, address, second).ports == (DNS,)
        assert allocations.holders(ip_address(address)) == (first.key, second.key)

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
        assert shareable(allocations, one, service("c", "x")) == one.first
        allocations.release(second.key)
        assert allocations.lowest_free(one) == one.first
        assert shareable(allocations, one, service("c", "x")) is None

    def test_the_lowest_that_fits_is_offered(self, address):
        one = RANGES[ip_address(address).version]
        allocations = Allocations()
        allocations.hold(service("a", "x"), [one.first])
        allocations.hold(service("b", "x"), [one.first + 2])
        allocations.hold(service("c", "x", [DNS]), [one.first + 1])
        assert shareable(allocations, one, service("d", "x")) == one.first + 1
        assert shareable(allocations, one, service("d")) is None

    def test_the_lowest_conflict_is_named_if_none_fits(self, address):
        one = RANGES[ip_address(address).version]
        allocations = Allocations()
        allocations.hold(service("b", "x"), [one.first + 1])
        allocations.hold(service("a", "x"), [one.first])
        clash = AllocationConflict(service("a").key, (HTTP,))
        assert shareable(allocations, one, service("c", "x")) == clash
        assert shareable(allocations, one, service("c", "x", namespace="shop")) is None

    def test_one_that_a_node_has_by_now_is_offered_to_no_other(self, address):
        allocations = Allocations()
        allocations.hold(service("a", "x"), [ip_address(address)])
        allocations.exclude_nodes([ip_address(address)])
        one = RANGES[ip_address(address).version]
        assert shareable(allocations, one, service("b", "x", [DNS])) is None
        # The Service that has it keeps it, and may change its ports.
        allocations.hold(service("a", "x", [DNS]), [ip_address(address)])
        assert allocations.in_use(one) == 1

    def test_new_terms_count_from_when_they_are_held(self, address):
        one = RANGES[ip_address(address).version]
        allocations = Allocations()
        allocations.hold(service("a", "x"), [one.first])
        allocations.hold(service("a", None), [one.first])
        assert conflict(allocations, one.first, service("b", "x", [DNS])) is not None


def test_releasing_an_unknown_service_changes_nothing():
    allocations = Allocations()
    assert allocations.release(service("a").key) == frozenset()
    assert allocations.hold(service("a"), []) == frozenset()
    assert len(allocations) == 0


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
@given(steps=st.lists(st.tuples(st.integers(0, 6), st.sets(st.integers(-2, 12), max_size=3))))
def test_agrees_with_a_search_from_the_first_address_on(version, steps):
    one, allocations, naive, excluded = RANGES[version], Allocations(), {}, set()
    for name, offsets in steps:
        others = set().union(*(held for other, held in naive.items() if other != name))
        wanted = [one.first + offset for offset in offsets]
        if name == NODES:
            allocations.exclude_nodes(wanted)
            excluded = offsets
            assert all(allocations.is_excluded(address) for address in wanted)
        elif offsets & others:
            with pytest.raises(AddressTakenError):
                allocations.hold(service(f"s{name}"), wanted)
        else:
            allocations.hold(service(f"s{name}"), wanted)
            naive[name] = offsets
        taken = excluded.union(*naive.values())
        free = next((one.first + i for i in range(10) if i not in taken), None)
        assert allocations.lowest_free(one) == free
        assert allocations.in_use(one) == len(taken & set(range(10)))


class TestOrigin:
    def test_is_the_group_that_gave_the_addresses_until_they_are_gone(self):
        allocations, one, held = Allocations(), service("a"), [RANGES[4].first]
        allocations.hold(one, held, "blue")
        allocations.hold(one, held)
        assert allocations.group_of(one.key) == "blue"
        allocations.hold(one, [])
        assert allocations.group_of(one.key) is None
        allocations.hold(one, held, "red")
        allocations.release(one.key)
        assert allocations.group_of(one.key) is None


def spellings(number):
    """Texts of one IPv4 or IPv6 number that an API server may hold."""
    if number.version == 4:
        octets = str(number).split(".")
        return st.one_of(
            st.lists(st.integers(0, 3), min_size=4, max_size=4).map(
                lambda zeros: ".".join("0" * z + o for z, o in zip(zeros, octets, strict=True))
            ),
            st.sampled_from(["::ffff:", "::FFFF:", "0:0:0:0:0:ffff:"]).map(
                lambda prefix: prefix + str(number)
            ),
            st.just(f"::ffff:{int(number) >> 16:x}:{int(number) & 0xFFFF:x}"),
            st.sampled_from([" {}", "{}\t", "{}\n"]).map(lambda form: form.format(number)),
        )
    embedded = str(ip_address(int(number) & 0xFFFFFFFF))
    return st.one_of(
        st.sampled_from([str(number), number.exploded, str(number).upper(), f"{number} "]),
        st.sampled_from([f"{number}%eth0", f"{number}%1"]),
        st.just(":".join(number.exploded.split(":")[:6]) + ":" + embedded),
    )


NUMBERS = st.one_of(
    st.integers(0, 2**32 - 1).map(ip_address),
    # Not the IPv4-mapped ones, which are IPv4.
    st.integers(2**48, 2**128 - 1).map(ip_address),
)


@given(number=NUMBERS, data=st.data())
def test_a_number_that_is_held_is_not_entered_again_however_it_is_spelled(number, data):
    shown, asked = data.draw(spellings(number)), data.draw(spellings(number))
    holder = {
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"type": "LoadBalancer"},
        "status": {"loadBalancer": {"ingress": [{"ip": shown}]}},
    }
    record = service_of(holder)
    assert record.addresses == (number,)
    allocations = Allocations()
    allocations.hold(record, record.addresses)
    try:
        wanted = parse_address(asked)
    except ValueError:
        return  # No Service can ask for it in this spelling.
    assert conflict(allocations, wanted, service("b")) is not None
    with pytest.raises(AddressTakenError):
        allocations.hold(service("b"), [wanted])
    assert allocations.holders(number) == (record.key,)
