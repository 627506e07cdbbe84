# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Status, metrics and scope of ServiceGroups, next to the findings in test_pools."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from prometheus_client import CollectorRegistry

from purelb.core.allocation.allocations import Allocations
from purelb.core.allocation.ipam import Stats
from purelb.core.model import Service, ServiceKey
from purelb_agent.allocator.group_status import GroupStatus
from purelb_agent.allocator.metrics import AllocatorMetrics
from purelb_agent.allocator.pools import Pools
from tests.support.agent.allocator import (
    NAMESPACE,
    RecordedEvents,
    external_group,
    group_body,
    local_group,
)

FAMILIES = pytest.mark.parametrize(
    ("version", "family"), [(4, "IPv4"), (6, "IPv6")], ids=["v4", "v6"]
)
KEY = ServiceKey("default", "web")
FIRST = {4: "10.0.0.1", 6: "fd00::1"}


class Queue:
    """Stats of external groups, as the test sets them."""

    def __init__(self):
        self.known, self.followed = {}, []

    def follow(self, groups):
        self.followed = [group.name for group in groups]

    def stats(self, name):
        return self.known.get(name, (None, ""))


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def queue():
    return Queue()


@pytest.fixture
def events():
    return RecordedEvents()


@pytest.fixture
def wanted():
    return {}


@pytest.fixture
def pools(registry, queue, events, wanted, monkeypatch):
    metrics = AllocatorMetrics(registry)
    status = GroupStatus(None, metrics, namespace=NAMESPACE)
    monkeypatch.setattr(status, "want", wanted.__setitem__)
    return Pools(status, queue, events, metrics.pools, namespace=NAMESPACE)


def condition(status, kind):
    (found,) = [each for each in status["conditions"] if each["type"] == kind]
    return found["status"], found["reason"]


@FAMILIES
def test_use_is_in_status_and_metrics(pools, registry, wanted, version, family):
    pools.put(local_group(version=version, last=2))
    taken = Allocations()
    taken.hold(Service(KEY, families=(version,)), [ip_address(FIRST[version])])
    pools.report(taken)
    status = wanted["default"]
    assert (status[f"allocated{family}"], status[f"available{family}"]) == (1, 1)
    assert condition(status, "Ready") == ("True", "Accepted")
    assert condition(status, "Exhausted") == ("False", "AddressesFree")
    for metric, value in (("size", 2), ("addresses_in_use", 1)):
        labels = {"pool": "default"}
        assert registry.get_sample_value(f"purelb_address_pool_{metric}", labels) == value
    labels = {"pool": "default", "family": family}
    for metric in ("in_use", "free"):
        assert registry.get_sample_value(f"purelb_address_pool_family_addresses_{metric}", labels)


@FAMILIES
def test_a_full_pool_is_exhausted(pools, wanted, version, family):
    pools.put(local_group(version=version, last=1))
    taken = Allocations()
    taken.hold(Service(KEY, families=(version,)), [ip_address(FIRST[version])])
    pools.report(taken)
    assert condition(wanted["default"], "Exhausted") == ("True", "NoAddressFree")


def test_addresses_outside_the_pool_are_in_the_status_until_forgotten(pools, wanted):
    pools.put(local_group())
    service = Service(KEY)
    assert pools.note_out_of_pool(service, "default", (ip_address("10.9.9.9"),))
    assert not pools.note_out_of_pool(service, "default", (ip_address("10.9.9.9"),))
    pools.report(Allocations())
    assert condition(wanted["default"], "AddressesOutsidePool") == ("True", "KeptByServices")
    pools.forget(KEY)
    pools.report(Allocations())
    assert condition(wanted["default"], "AddressesOutsidePool") == ("False", "AllInPool")
    assert pools.note_out_of_pool(service, "default", (ip_address("10.9.9.9"),))
    assert not pools.note_out_of_pool(service, "default", ())


class TestExternalGroups:
    def test_they_are_followed(self, pools, queue):
        pools.put(external_group("leased"))
        pools.put(local_group())
        assert queue.followed == ["leased"]

    def test_nothing_is_reported_before_the_first_look(self, pools, wanted, events):
        pools.put(external_group())
        pools.report(Allocations())
        assert (wanted, events.recorded) == ({}, [])

    def test_stats_are_reported(self, pools, queue, wanted, registry):
        pools.put(external_group())
        queue.known["default"] = (Stats({4: 2, 6: 1}, {4: 2, 6: None}, ("10.0.0.1",)), "")
        pools.report(Allocations())
        status = wanted["default"]
        assert (status["allocatedIPv4"], status["availableIPv4"]) == (2, 0)
        assert "availableIPv6" not in status
        assert status["addresses"] == ["10.0.0.1"]
        assert condition(status, "Exhausted") == ("True", "NoAddressFree")
        labels = {"pool": "default", "family": "IPv6"}
        name = "purelb_address_pool_family_addresses_free"
        assert registry.get_sample_value(name, labels) is None

    def test_an_error_before_the_first_stats_is_a_condition_and_one_event(
        self, pools, queue, wanted, events
    ):
        pools.put(external_group())
        queue.known["default"] = (None, "down")
        pools.report(Allocations())
        pools.report(Allocations())
        assert condition(wanted["default"], "Ready") == ("False", "Unreachable")
        assert events.recorded == [("Unreachable", "default", "down")]

    def test_an_error_after_stats_keeps_them(self, pools, queue, wanted, events):
        pools.put(external_group())
        queue.known["default"] = (Stats({4: 2, 6: 1}, {4: 5, 6: None}), "down")
        pools.report(Allocations())
        assert wanted["default"]["availableIPv4"] == 3
        assert condition(wanted["default"], "Ready") == ("False", "Unreachable")
        assert events.reasons == ["Unreachable"]


class TestScope:
    METRIC = "purelb_servicegroups_out_of_scope"
    LABELS = ("namespace", "name", "type")

    def sample(self, registry, *values):
        return registry.get_sample_value(self.METRIC, dict(zip(self.LABELS, values, strict=True)))

    def test_a_group_in_another_namespace_is_only_counted(self, pools, registry, wanted):
        spec = {"local": {"v4pool": {"pool": "10.0.0.1-10.0.0.9", "subnet": "10.0.0.0/24"}}}
        other = group_body("a", spec, namespace="default")
        strange = group_body("b", {"other": {}}, namespace="default")
        pools.put(other)
        pools.put(strange)
        pools.report(Allocations())
        assert self.sample(registry, "default", "a", "local") == 1
        assert self.sample(registry, "default", "b", "") == 1
        assert (list(pools.groups.all), wanted) == ([], {})
        pools.drop(other)
        assert self.sample(registry, "default", "a", "local") is None

    def test_a_list_drops_the_groups_that_are_gone(self, pools, registry):
        pools.replace([local_group("a"), local_group("b", first=20, last=29)], asked_at=0.0)
        pools.report(Allocations())
        pools.replace([local_group("a")], asked_at=0.0)
        pools.report(Allocations())
        assert pools.listed
        assert list(pools.groups.all) == ["a"]
        metric = "purelb_address_pool_size"
        assert registry.get_sample_value(metric, {"pool": "b"}) is None
        assert registry.get_sample_value(metric, {"pool": "a"}) == 9

    def test_a_status_change_alone_wakes_but_looks_at_no_service(self, pools):
        changes, news = [], []
        pools.on_change = lambda: changes.append(1)
        pools.on_news = lambda: news.append(1)
        group = local_group()
        pools.put(group)
        pools.put({**group, "status": {"ipam": "Cluster"}})
        assert (len(changes), len(news)) == (1, 2)
