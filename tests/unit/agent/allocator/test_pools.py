# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Events about problems of ServiceGroups: once, and again when a problem comes back."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from purelb.core.allocation.allocations import Allocations
from purelb_agent.allocator.group_status import GroupStatus
from purelb_agent.allocator.metrics import AllocatorMetrics
from purelb_agent.allocator.pools import Pools
from purelb_agent.ipam.queue import IpamQueue

NAMESPACE = "purelb-system"
FAMILIES = {
    "v4": ("v4pool", "10.0.0.{}-10.0.0.{}", "10.0.0.0/24"),
    "v6": ("v6pool", "fd00::{}-fd00::{}", "fd00::/64"),
}


class Heard:
    """The events that were told, as kind of finding and group."""

    def __init__(self):
        self.events = []

    def record(self, about, reason, message, *, kind):
        self.events.append((reason, about.name))

    def since(self):
        """Those since the last time that they were asked for."""
        events, self.events = self.events, []
        return events


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def pools(heard):
    metrics = AllocatorMetrics(CollectorRegistry())
    status = GroupStatus(None, metrics, namespace=NAMESPACE)
    return Pools(status, IpamQueue(None), heard, metrics.pools, namespace=NAMESPACE)


@pytest.fixture(params=FAMILIES)
def family(request):
    return FAMILIES[request.param]


def group(name, spec, *, created=1):
    meta = {"name": name, "namespace": NAMESPACE, "uid": name}
    meta["creationTimestamp"] = f"2026-01-0{created}T00:00:00Z"
    return {"metadata": meta, "spec": spec}


def local(name, family, first, last, *, created=1):
    field, pool, subnet = family
    entry = {"pool": pool.format(first, last), "subnet": subnet}
    return group(name, {"local": {field: entry}}, created=created)


OVERLAP = [("PoolOverlaps", "young"), ("PoolOverlaps", "old")]


def test_overlap_that_comes_back_is_reported_again(pools, heard, family):
    pools.put(local("old", family, 1, 9))
    pools.put(local("young", family, 5, 15, created=2))
    pools.report(Allocations())
    assert heard.since() == OVERLAP
    pools.report(Allocations())
    assert heard.since() == []
    pools.put(local("young", family, 10, 15, created=2))
    pools.report(Allocations())
    assert heard.since() == []
    pools.put(local("young", family, 5, 15, created=2))
    pools.report(Allocations())
    assert heard.since() == OVERLAP


def test_overlap_of_a_recreated_group_is_reported_again(pools, heard, family):
    young = local("young", family, 5, 15, created=2)
    pools.put(local("old", family, 1, 9))
    pools.put(young)
    pools.report(Allocations())
    heard.since()
    pools.drop(young)
    pools.put(young)
    pools.report(Allocations())
    assert heard.since() == OVERLAP


def test_invalid_spec_that_comes_back_is_reported_again(pools, heard, family):
    wrong = local("group", family, 9, 1)
    for item, expected in (
        (wrong, [("InvalidSpec", "group")]),
        (wrong, []),
        (local("group", family, 1, 9), []),
        (wrong, [("InvalidSpec", "group")]),
    ):
        pools.put(item)
        pools.report(Allocations())
        assert heard.since() == expected
