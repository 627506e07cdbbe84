# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: agents restart, or are lost, after the range of what they hold is gone."""

from __future__ import annotations

from contextlib import contextmanager
from ipaddress import ip_address

import pytest

from purelb.core.election.election import rank
from purelb.core.names import ALLOCATED_BY, ALLOCATED_BY_ANNOTATION, ALLOCATED_FROM_ANNOTATION
from simulation import users
from tests.unit.simulation.schedules.story import DELIVERY, TAKEOVER, THREE, at_work, must, won_by

SEEDS = pytest.mark.parametrize("seed", range(1, 4))
NEVER = (ip_address("172.28.1.77"), ip_address("fd28::77"))


@contextmanager
def former_ranges(seed=1, names=THREE, *, after=10):
    """A cluster whose ServiceGroup has had other ranges for a while."""
    with at_work(seed, names) as (cluster, history):
        assert {address.version for address in won_by(cluster, "n1", names)} == {4, 6}
        users.put_group(
            cluster, "default", v4="172.28.1.100-172.28.1.120", v6="fd28::100-fd28::1ff"
        )
        cluster.run(after)
        yield cluster, history


def boot(cluster, node):
    cluster.power_on(node)
    cluster.start_agent(node)


def must_be_in_order(cluster, names=THREE):
    strayed = [a for a in cluster.addresses() if cluster.holders(a) != rank(names, a)[:1]]
    must(not strayed, f"{len(strayed)} addresses are not where they belong")


# Before the Leases say what is in no pool any more, and after that.
@pytest.mark.parametrize("after", [1, 10])
def test_an_agent_that_starts_again_keeps_what_was_given_from_former_ranges(after):
    with former_ranges(after=after) as (cluster, history):
        cluster.restart_container(cluster.nodes["n1"])
        cluster.run(30)
        must_be_in_order(cluster)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.heard_twice() < DELIVERY, f"on two nodes for {history.heard_twice():.2f} s")


@SEEDS
def test_what_a_lost_node_had_from_former_ranges_is_taken_over_and_given_back(seed):
    with former_ranges(seed) as (cluster, history):
        # Those that take over have started after the ranges had changed.
        for name in ("n2", "n3"):
            cluster.restart_container(cluster.nodes[name])
            cluster.run(10)
        cluster.power_off(cluster.nodes["n1"])
        cluster.run(40)
        must_be_in_order(cluster, ("n2", "n3"))
        boot(cluster, cluster.nodes["n1"])
        cluster.run(40)
        must_be_in_order(cluster)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")


@SEEDS
def test_a_rolling_restart_keeps_what_was_given_from_former_ranges(seed):
    with former_ranges(seed) as (cluster, history):
        for _round in range(2):
            for name in THREE:
                users.restart_agent(cluster, cluster.nodes[name])
                cluster.run(20)
            must_be_in_order(cluster)
        must(history.unheld() < 1, f"unheld for {history.unheld():.1f} s")
        must(history.heard_twice() < DELIVERY, f"on two nodes for {history.heard_twice():.2f} s")


@pytest.mark.parametrize("names", [("n1",), THREE], ids=len)
def test_a_cluster_that_loses_power_keeps_what_was_given_from_former_ranges(names):
    with former_ranges(names=names) as (cluster, _history):
        for node in cluster.nodes.values():
            cluster.power_off(node)
        cluster.run(60)
        for node in cluster.nodes.values():
            boot(cluster, node)
        cluster.run(40)
        must_be_in_order(cluster, names)


def write_service(cluster, name, addresses):
    """Write a Service with addresses as a thief does who has the allocator's token."""
    annotations = {ALLOCATED_BY_ANNOTATION: ALLOCATED_BY, ALLOCATED_FROM_ANNOTATION: "default"}
    users.add_service(cluster, name, families=("IPv4", "IPv6"), annotations=annotations)
    body = cluster.find("services", "default", name)
    status = {"loadBalancer": {"ingress": [{"ip": str(address)} for address in addresses]}}
    cluster.put("services", "default", name, {**body, "status": status})


def test_what_the_service_did_not_have_in_a_range_is_announced_by_no_node():
    with former_ranges() as (cluster, _history):
        # Allocators would give both Services other addresses.
        users.kill_leader(cluster)
        cluster.run(20)
        users.kill_leader(cluster)
        taken = [address for address, name in cluster.addresses().items() if name == "s0"]
        cluster.drop("services", "default", "s0")
        write_service(cluster, "thief", taken)
        write_service(cluster, "stray", NEVER)
        assert set(cluster.addresses()) >= {*taken, *NEVER}
        for name in THREE:
            cluster.run(10)
            assert not any(map(cluster.holders, (*taken, *NEVER)))
            cluster.restart_container(cluster.nodes[name])
        cluster.run(30)
        assert not any(map(cluster.holders, (*taken, *NEVER)))
        others = set(cluster.addresses()) - {*taken, *NEVER}
        must(others and all(map(cluster.holders, others)), "addresses are on no node")
