# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A healthy cluster on simulated time: the real programs do what they should, and as often."""

from __future__ import annotations

import json

import pytest

from purelb.core.election.election import rank
from simulation.api.server import Request
from simulation.chance import stream
from simulation.cluster import simulated
from simulation.manifests import KINDS
from simulation.time.timeline import MICROSECONDS

NAMES = ("n1", "n2", "n3")
# Seconds: two allocators start, and one waits for a whole duration of the lock.
STARTED = 25.0
# An agent renews its Lease every five seconds, a leader its lock every two.
RENEWALS, LOCKS = 1 / 5, 1 / 2
SETTLED = 2.0


class Holders:
    """Who had each address since when; notices an address on two nodes."""

    def __init__(self, cluster):
        self.cluster, self.changes, self.twice = cluster, [], []
        for node in cluster.nodes.values():
            node.kernel.changed = lambda place, name=node.name: self.changed(place[1], name)

    def changed(self, address, name):
        holders = self.cluster.holders(address)
        self.changes.append((self.cluster.timeline.now, str(address), name, tuple(holders)))
        if len(holders) > 1:
            self.twice.append(self.changes[-1])


def assert_in_order(cluster):
    """Every address of a Service is on its winner alone, every other one is nowhere."""
    given = cluster.addresses()
    assert {a: cluster.holders(a) for a in given} == {a: [rank(NAMES, a)[0]] for a in given}
    held = {place[1] for node in cluster.nodes.values() for place in node.kernel.held}
    own = {address for node in cluster.nodes.values() for address in node.addresses}
    assert held - own == set(given)


def started(cluster, services=0):
    cluster.start()
    cluster.run(STARTED)
    for number in range(services):
        cluster.add_service(f"s{number}")
    cluster.run(SETTLED)
    return Holders(cluster)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.thorough) for n in (2, 3))]
)
def test_an_hour_of_services_that_come_and_go(seed):
    with simulated(seed) as cluster:
        holders = started(cluster, services=20)
        assert len(cluster.addresses()) == 40
        chance, there, made = stream(seed, "users"), [f"s{n}" for n in range(20)], 20
        before = dict(cluster.api.writes)
        began = cluster.timeline.now
        while cluster.timeline.now < began + 3600 * MICROSECONDS:
            if there and chance.random() < len(there) / 40:
                cluster.drop("services", "default", there.pop(chance.randrange(len(there))))
            else:
                there.append(f"s{made}")
                cluster.add_service(there[-1])
                made += 1
            cluster.run(SETTLED)
            assert_in_order(cluster)
            assert len(cluster.addresses()) == 2 * len(there)
            cluster.run(chance.uniform(1, 40))
        assert holders.twice == []
        seconds = (cluster.timeline.now - began) / MICROSECONDS
        rates = {
            key: (count - before.get(key, 0)) / seconds
            for key, count in cluster.api.writes.items()
            if key[1] == KINDS["leases"]
        }
        for name in NAMES:
            assert rates[f"agent/{name}", KINDS["leases"]] == pytest.approx(RENEWALS, rel=0.05)
        assert sum(rates.values()) == pytest.approx(3 * RENEWALS + LOCKS, rel=0.05)


def test_hosts_of_the_segment_know_the_holder():
    with simulated(1) as cluster:
        started(cluster, services=5)
        for address in cluster.addresses():
            cluster.segment.ask(cluster.host, address)
        known = {address: mac[-1] for address, mac in cluster.host.neighbors.items()}
        assert known == {a: int(rank(NAMES, a)[0][1:]) for a in cluster.addresses()}


def trace(seed):
    with simulated(seed) as cluster:
        holders = started(cluster, services=5)
        cluster.run(120)
        return holders.changes, cluster.api.objects.version, cluster.timeline.now


def test_a_seed_repeats_itself_and_another_one_differs():
    assert trace(7) == trace(7)
    assert trace(7) != trace(8)


def test_a_node_that_leaves_hands_over_and_takes_back_what_it_wins():
    with simulated(4) as cluster:
        started(cluster, services=10)
        node = cluster.nodes["n2"]
        cluster.stop_agent(node)
        cluster.run(5)
        assert node.agent.has_ended
        given = cluster.addresses()
        assert {a: cluster.holders(a) for a in given} == {
            a: [rank(("n1", "n3"), a)[0]] for a in given
        }
        assert cluster.find("leases", "purelb-system", "purelb-node-n2") is None
        cluster.start_agent(node)
        cluster.run(10)
        assert_in_order(cluster)


def test_a_killed_agent_loses_its_addresses_by_the_kernel_before_others_take_them():
    with simulated(5) as cluster:
        holders = started(cluster, services=10)
        node = cluster.nodes["n2"]
        cluster.kill_agent(node)
        cluster.run(20)
        given = cluster.addresses()
        assert {a: cluster.holders(a) for a in given} == {
            a: [rank(("n1", "n3"), a)[0]] for a in given
        }
        assert holders.twice == []
        cluster.start_agent(node)
        cluster.run(20)
        assert_in_order(cluster)


@pytest.mark.parametrize(
    ("user", "status"), [("agent/n1", 403), ("allocator/a", 403), ("agent/n2", 200), ("jane", 200)]
)
def test_an_agent_may_not_write_the_lease_of_another_node(user, status):
    with simulated(6) as cluster:
        started(cluster)
        path = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases/purelb-node-n2"
        patch = json.dumps({"spec": {"leaseDurationSeconds": 600}}).encode()
        assert cluster.api.answer(Request(user, "PATCH", path, {}, patch))[0] == status
