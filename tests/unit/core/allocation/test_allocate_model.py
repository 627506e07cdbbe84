# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Random operations on Services and groups, against a model that only knows the rules' outcome."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from ipaddress import ip_address, ip_network
from itertools import combinations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from purelb.core.addresses import parse_range
from purelb.core.allocation.allocate import decide, origin_of, rebuild
from purelb.core.allocation.choice import Live
from purelb.core.allocation.groups import Groups
from purelb.core.allocation.outcomes import Assignment, Keep, Refusal, Release
from purelb.core.model import Service, ServiceGroup, ServiceKey

# On a busy machine, under coverage.
pytestmark = pytest.mark.timeout(60)
SUBNETS = ("10.0.1.0/24", "10.0.2.0/24", "fd00:1::/64", "fd00:2::/64")
POOLS = {
    "default": (
        "10.0.1.1-10.0.1.3",
        "10.0.2.1-10.0.2.2",
        "fd00:1::1-fd00:1::3",
        "fd00:2::1-fd00:2::2",
    ),
    "b": (
        "10.0.1.11-10.0.1.12",
        "10.0.2.11-10.0.2.11",
        "fd00:1::b-fd00:1::c",
        "fd00:2::b-fd00:2::b",
    ),
}
PORTS = [("TCP", 80), ("TCP", 443), ("UDP", 53)]
FAMILIES = st.sampled_from([(4,), (6,), (4, 6), (6, 4)])
NAMES = st.sampled_from([ServiceKey("shop" if i > 4 else "default", f"s{i}") for i in range(8)])
FENCES = st.fixed_dictionaries(
    {
        "namespaces": st.sets(st.sampled_from(["default", "shop"])).map(frozenset),
        "enforces": st.booleans(),
        "shares_across_namespaces": st.booleans(),
        "multi_pool": st.booleans(),
    }
)
ASKS = st.fixed_dictionaries(
    {
        "sharing_key": st.sampled_from(["x", "x", "x", "y", None]),
        "ports": st.sets(st.sampled_from(PORTS), min_size=1, max_size=2).map(frozenset),
    },
    optional={
        "families": FAMILIES,
        "group": st.sampled_from([None, None, None, "default", "default", "b", "gone"]),
        "multi_pool": st.sampled_from([None, True, False]),
        "requires_dual_stack": st.booleans(),
        "explicit": st.sampled_from(
            [(), ("10.0.1.2",), ("fd00:1::2",), ("10.0.1.11", "fd00:1::b")]
        ).map(lambda texts: tuple(ip_address(text) for text in texts)),
        "is_load_balancer": st.sampled_from([True, True, True, False]),
        "asks_reevaluation": st.booleans(),
    },
)


def group(name, kept, **more):
    ranges = tuple(parse_range(POOLS[name][i], SUBNETS[i]) for i in range(4) if i in kept)
    return ServiceGroup(name, ranges=ranges, **more)


class Allocator(RuleBasedStateMachine):
    """Services change at will, writes are lost and repeated, the process restarts."""

    @initialize(asks=st.lists(ASKS, min_size=4, max_size=8))
    def begin(self, asks):
        keys = (ServiceKey("default", f"s{i}") for i in range(len(asks)))
        self.services = {key: self.new(key, **ask) for key, ask in zip(keys, asks, strict=False)}
        self.groups = {name: group(name, range(4)) for name in POOLS}
        self.allocations = rebuild([], Groups())
        self.live = Live(frozenset(map(ip_network, SUBNETS)), has_nodes=True)

    def new(self, key, **more):
        return replace(Service(key, ports=frozenset(PORTS[:1])), **more)

    @rule(key=NAMES, more=ASKS)
    def change(self, key, more):
        self.services[key] = replace(self.services.get(key) or self.new(key), **more)

    @rule(key=NAMES, is_lost=st.booleans())
    def decide_one(self, key, is_lost):
        service = self.services.get(key)
        if service is None:
            self.allocations.release(key)
            return
        outcome = decide(service, Groups(self.groups.values()), self.allocations, self.live)
        self.check(service, outcome)
        if isinstance(outcome, Assignment):
            both = {*outcome.addresses, *self.allocations.of(key)}
            self.allocations.hold(service, both, outcome.group)
            if not is_lost:
                self.write(service, outcome)
        elif isinstance(outcome, Refusal):
            self.services[key] = replace(service, addresses=outcome.keeps)
            self.allocations.hold(service, outcome.keeps)
        elif isinstance(outcome, Keep):
            own = self.allocations.unclaimed(service, service.addresses)
            origin = origin_of(service, Groups(self.groups.values()), self.allocations)
            self.allocations.hold(service, own, origin)
        else:
            self.services[key] = replace(
                service, addresses=(), allocated_by_us=False, allocated_from=None, pool_type=None
            )
            self.allocations.release(key)

    def write(self, service, outcome):
        written = replace(
            service,
            addresses=outcome.addresses,
            allocated_by_us=True,
            allocated_from=outcome.group,
            pool_type=outcome.pool_type,
            skip_dad=outcome.skip_dad,
            asks_reevaluation=False,
        )
        self.services[service.key] = written
        self.allocations.hold(service, outcome.addresses, outcome.group)
        again = decide(written, Groups(self.groups.values()), self.allocations, self.live)
        assert isinstance(again, Keep), "a second look changes nothing"

    def check(self, service, outcome):
        """What any outcome has to respect."""
        if isinstance(outcome, Assignment):
            versions = [a.version for a in outcome.addresses]
            assert set(versions) <= set(service.families)
            assert not service.requires_dual_stack or set(versions) == set(service.families)
            assert set(service.explicit) <= set(outcome.addresses)
            pool = self.groups[outcome.group]
            fresh = (
                set(outcome.addresses) - set(service.addresses) - self.allocations.of(service.key)
            )
            assert all(pool.range_of(a) for a in fresh)
            assert not fresh or self.may_give(pool, service.key.namespace)
            assert self.allocations.unclaimed(service, outcome.addresses) == outcome.addresses
            holders = {h.namespace for a in fresh for h in self.allocations.holders(a)}
            assert pool.shares_across_namespaces or holders <= {service.key.namespace}
        elif isinstance(outcome, Release):
            assert not service.is_load_balancer

    def may_give(self, pool, namespace):
        """The contract's words on fences, literally."""
        fences = [g.namespaces for g in self.groups.values() if g.enforces]
        fenced = frozenset().union(*fences)
        if namespace in fenced:
            return namespace in pool.namespaces
        return namespace in pool.namespaces or not (pool.enforces or pool.namespaces & fenced)

    @rule(key=NAMES, name=st.sampled_from([*sorted(POOLS), "gone", None]), ours=st.booleans())
    def forge(self, key, name, ours):
        """A tenant writes the annotations of the programs."""
        if key in self.services:
            self.services[key] = replace(
                self.services[key], allocated_from=name, allocated_by_us=ours
            )

    @rule(key=NAMES)
    def delete(self, key):
        self.services.pop(key, None)
        self.allocations.release(key)

    @rule(name=st.sampled_from(sorted(POOLS)), kept=st.sets(st.integers(0, 3)), fence=FENCES)
    def redefine(self, name, kept, fence):
        self.groups[name] = group(name, kept, **fence)

    @rule(name=st.sampled_from(sorted(POOLS)))
    def remove_group(self, name):
        self.groups.pop(name, None)

    @rule(subnets=st.sets(st.sampled_from(SUBNETS)))
    def nodes_change(self, subnets):
        self.live = Live(frozenset(map(ip_network, subnets)), has_nodes=bool(subnets))

    @rule()
    def restart(self):
        self.allocations = rebuild(self.services.values(), Groups(self.groups.values()))

    @rule()
    def settle(self):
        """Once all have been looked at, what Services show is what is taken, and nobody's twice."""
        for _round in range(len(self.services) + 2):
            for key in list(self.services):
                self.decide_one(key, is_lost=False)
        holders = defaultdict(list)
        for service in self.services.values():
            assert self.allocations.of(service.key) == set(service.addresses)
            for address in service.addresses:
                holders[address].append(service)
        assert len(self.allocations) == len(holders)
        for services in holders.values():
            for one, other in combinations(services, 2):
                assert one.sharing_key is not None
                assert one.sharing_key == other.sharing_key
                assert not one.ports & other.ports

    @invariant()
    def free_addresses_are_those_that_no_node_has(self):
        for pool in self.groups.values():
            for one in pool.ranges:
                every = [one.first + i for i in range(one.size)]
                free = [a for a in every if not self.allocations.holders(a)]
                assert self.allocations.lowest_free(one) == (free[0] if free else None)
                assert self.allocations.in_use(one) == len(every) - len(free)


Allocator.TestCase.settings = settings(
    max_examples=50,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # under coverage, on a busy machine
)
TestAllocator = Allocator.TestCase
