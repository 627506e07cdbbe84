# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.addresses import parse_range
from purelb.core.allocation.allocations import Allocations
from purelb.core.allocation.group_status import (
    Use,
    exhausted,
    merge_patch,
    outside_pool,
    ready,
    set_aside_of,
    status_body,
    use_of,
    use_of_external,
    use_of_unused,
)
from purelb.core.allocation.ipam import Stats
from purelb.core.model import ExternalSource, NetBoxSource, ServiceGroup, ServiceKey
from tests.support.core.snapshots import GROUP, VIP4, VIP6, service

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def held(*addresses):
    allocations = Allocations()
    allocations.hold(service(), addresses)
    return allocations


def body(group=GROUP, allocations=None, known=(), now=NOW, problem=None):
    use = use_of(group, allocations or Allocations())
    conditions = (ready(problem), exhausted(use), outside_pool({}))
    shown = [str(pool_range) for pool_range in group.ranges]
    return status_body(group, use, conditions, shown, known=dict(known), now=now)


def test_use_counts_used_and_free_addresses():
    status = body(allocations=held(VIP4, VIP4 + 1, VIP6))
    assert {k: v for k, v in status.items() if k != "conditions"} == {
        "announce": "Local",
        "ipam": "Cluster",
        "addresses": ["172.28.1.220-172.28.1.229", "fd28::220-fd28::229"],
        "allocatedIPv4": 2,
        "availableIPv4": 8,
        "allocatedIPv6": 1,
        "availableIPv6": 9,
    }


def test_huge_pool_is_limited_to_the_field():
    huge = ServiceGroup("big", ranges=(parse_range("fd00::/60", "fd00::/60"),))
    assert body(huge)["availableIPv6"] == 2**63 - 1


def test_names_the_namespaces_in_order():
    bound = replace(GROUP, namespaces=frozenset({"b", "a"}))
    assert body(bound)["boundNamespaces"] == ["a", "b"]


@pytest.mark.parametrize(("version", "first"), [(4, VIP4), (6, VIP6)], ids=["v4", "v6"])
def test_a_family_with_nothing_left_is_named(version, first):
    use = use_of(GROUP, held(*(first + i for i in range(10))))
    assert f"All IPv{version} addresses are in use" in exhausted(use).message
    assert not exhausted(use_of(GROUP, Allocations())).is_true


def test_of_a_group_that_is_not_used_only_its_own_addresses_count():
    allocations = Allocations()
    allocations.hold(service(), (VIP4,), group="other")
    allocations.hold(service("own"), (VIP4 + 1, VIP6), group=GROUP.name)
    use = use_of_unused(GROUP, allocations)
    assert use == Use({4: 1, 6: 1}, {4: 0, 6: 0})
    assert not exhausted(use).is_true


def test_a_condition_keeps_its_time_until_its_status_changes():
    first = body()
    again = body(known=first, now=LATER)
    assert again == first
    refused = body(known=first, now=LATER, problem=("PoolOverlaps", "x overlaps y"))
    times = {c["type"]: c["lastTransitionTime"] for c in refused["conditions"]}
    assert times == {"Ready": LATER, "Exhausted": NOW, "AddressesOutsidePool": NOW}
    assert refused["conditions"][0]["status"] == "False"


def test_services_with_addresses_outside_are_named_up_to_a_few():
    strays = {ServiceKey("default", f"s{i}"): (VIP4 + i, VIP6) for i in range(7)}
    condition = outside_pool(strays)
    assert condition.is_true
    assert "default/s0 (172.28.1.220, fd28::220)" in condition.message
    assert "and 2 more" in condition.message
    assert "and" not in outside_pool(dict(list(strays.items())[:5])).message.partition(". Put")[0]


def test_only_what_differs_is_written():
    known = {"announce": "Local", "allocatedIPv4": 1, "boundNamespaces": ["a"]}
    wanted = {"announce": "Local", "allocatedIPv4": 2}
    assert merge_patch(known, wanted) == {"allocatedIPv4": 2, "boundNamespaces": None}
    assert merge_patch(wanted, wanted) == {}


@pytest.mark.parametrize(
    ("source", "name"),
    [(NetBoxSource("https://netbox", "web"), "NetBox"), (ExternalSource("acme", "/s"), "acme")],
    ids=["netbox", "external"],
)
def test_use_of_an_external_pool(source, name):
    use = use_of_external(Stats({4: 3}, {4: 3, 6: None}, ("10.0.0.1/24",)))
    group = replace(GROUP, source=source)
    status = status_body(group, use, [exhausted(use)], ("10.0.0.1/24",), known={}, now=NOW)
    assert (status["ipam"], status["addresses"]) == (name, ["10.0.0.1/24"])
    assert (status["allocatedIPv4"], status["availableIPv4"]) == (3, 0)
    assert (status["allocatedIPv6"], "availableIPv6" in status) == (0, False)
    assert "All IPv4 addresses" in exhausted(use).message


class TestSetAside:
    def test_is_false_without_any(self):
        condition = set_aside_of(GROUP, held(VIP4))
        assert (condition.is_true, condition.reason) == (False, "NoDuplicates")

    def test_says_how_many_and_names_the_first_of_this_group(self):
        allocations = held(VIP4)
        found = [VIP6, VIP4, *(VIP4 + n for n in range(1, 9)), VIP4 - 100]
        allocations.set_aside(found)
        condition = set_aside_of(GROUP, allocations)
        assert (condition.is_true, condition.reason) == (True, "OtherHostsAnswer")
        named = ", ".join(str(VIP4 + n) for n in range(5))
        assert condition.message.startswith("10 addresses are given only to a Service")
        assert f"have them: {named} and 5 more. Take" in condition.message
        allocations.set_aside([VIP6])
        assert f"have them: {VIP6}. Take" in set_aside_of(GROUP, allocations).message
