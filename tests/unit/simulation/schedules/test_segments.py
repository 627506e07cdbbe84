# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: racks with a subnet each; only nodes that share one matter to each other.

The rack of `n1` and `n2` is the smaller one; its subnets are dual-stack.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial

import pytest

from purelb.core.names import SERVICE_GROUP_ANNOTATION
from simulation import users
from simulation.api.way import Reach
from simulation.chance import stream
from simulation.history import History
from tests.unit.simulation.schedules.story import TAKEOVER, at_work, must

RACK, OTHERS = ("n1", "n2"), ("n3", "n4", "n5")
SEEDS = pytest.mark.parametrize("seed", range(1, 5))
NO_API = pytest.mark.parametrize("reach", [Reach.REFUSED, Reach.DROPPED], ids=str)


@contextmanager
def racks(seed):
    """A cluster whose Services have addresses of the first rack."""
    with at_work(seed, (*RACK, *OTHERS)) as (cluster, _history):
        others = [cluster.nodes[name] for name in OTHERS]
        users.connect_other_segment(cluster, *others)
        for node in others:
            users.label(cluster, node, rack="other")
        users.configure(cluster, "default", local={"localInterface": "eth0"})
        users.configure(
            cluster, "other", local={"localInterface": "eth1"}, labels={"rack": "other"}
        )
        cluster.run(20)
        assert all(holder(cluster, a) in RACK for a in cluster.addresses())
        yield cluster, History(cluster)


def holder(cluster, address):
    (found,) = cluster.holders(address)
    return found


def lose_api(cluster, reach):
    for name in RACK:
        cluster.way(f"agent/{name}").set_reach(reach)


def regain_api(cluster, name):
    cluster.way(f"agent/{name}").set_reach(Reach.WHOLE)


def must_be_on_one(history):
    must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")


@SEEDS
@NO_API
def test_a_rack_that_alone_loses_the_api_keeps_its_addresses(seed, reach):
    with racks(seed) as (cluster, history):
        lose_api(cluster, reach)
        cluster.run(60)
        must(history.unheld() == 0, f"unheld for {history.unheld():.1f} s")
        regain_api(cluster, "n1")
        cluster.run(15)
        assert {holder(cluster, a) for a in cluster.addresses()} == {"n1"}
        regain_api(cluster, "n2")
        cluster.run(15)
        assert {holder(cluster, a) for a in cluster.addresses()} == set(RACK)
        must_be_on_one(history)


@SEEDS
@NO_API
@pytest.mark.parametrize("answers", RACK)
def test_a_node_that_comes_to_the_subnet_meanwhile_asks_before_it_takes(seed, reach, answers):
    """It believed long ago that their Leases have ended, and reaches one of them only."""
    with racks(seed) as (cluster, history):
        lose_api(cluster, reach)
        cluster.run(40)
        (silent,) = set(RACK) - {answers}
        cluster.cut("n5", silent)
        users.label(cluster, cluster.nodes["n5"], rack="first")
        cluster.run(30)
        must_be_on_one(history)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        assert {holder(cluster, a) for a in cluster.addresses()} == {"n5"}


@pytest.mark.parametrize("seed", range(1, 9))
def test_all_addresses_return_after_a_power_failure_with_a_node_in_two_subnets(seed):
    """`n2` holds addresses of a subnet that the others are not in, while they ask it."""
    with at_work(seed) as (cluster, _history):
        between = cluster.nodes["n2"]
        users.put_group(cluster, "others", other4="172.28.2.200-172.28.2.250")
        users.configure(cluster, "default", local={"localInterface": "^eth"})
        for number in range(12):
            users.add_service(
                cluster, f"o{number}", annotations={SERVICE_GROUP_ANNOTATION: "others"}
            )
        users.connect_other_segment(cluster, between)
        cluster.run(20)
        for node in cluster.nodes.values():
            cluster.power_off(node)
        cluster.run(30)
        chance = stream(seed, "boots")
        for node in cluster.nodes.values():
            cluster.power_on(node)
            cluster.timeline.after(chance.uniform(0, 20), partial(cluster.start_agent, node))
        cluster.run(180)
        given = cluster.addresses()
        assert len(given) == 32
        nowhere = [address for address in given if not cluster.holders(address)]
        must(not nowhere, f"{len(nowhere)} of {len(given)} addresses are on no node")
