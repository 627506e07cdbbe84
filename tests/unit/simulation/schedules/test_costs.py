# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: for how long addresses are on no node, as docs/failures.md says it."""

from __future__ import annotations

import pytest

from simulation.api.way import Reach
from tests.unit.simulation.schedules.story import THREE, at_work, must

TWO = THREE[:2]
SIZES = pytest.mark.parametrize("names", [TWO, THREE], ids=len)
# The API is gone for so long; the first round of answers in an outage is on its way before it.
OUTAGE, BEFORE = 109, 12
# A Lease, a read and a question; with a request to the API that is lost.
LEASE = 11
# What a frozen agent leaves, the kernel removes before its Lease ends.
FROZEN = 2.5


def reach(cluster, how, names):
    for name in names:
        cluster.way(f"agent/{name}").set_reach(how)


def off(cluster, history):
    """Return for how long each address was on no node, of those that were for 0.1 s."""
    gone = {
        address: sum(seconds for seconds, holders in history.spans(address) if not holders)
        for address in cluster.addresses()
    }
    return {address: seconds for address, seconds in gone.items() if seconds > 0.1}


def on(cluster, name):
    return {address for address in cluster.addresses() if name in cluster.holders(address)}


def lose(cluster):
    cluster.power_off(cluster.nodes["n1"])
    cluster.run(40)


def suspend(cluster):
    cluster.suspend(cluster.nodes["n1"])
    cluster.run(60)
    cluster.resume(cluster.nodes["n1"])
    cluster.run(40)


def freeze(cluster):
    cluster.nodes["n1"].agent.freeze()
    cluster.run(60)
    cluster.nodes["n1"].agent.thaw()
    cluster.run(40)


@SIZES
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize(("fault", "most"), [(lose, LEASE), (suspend, LEASE), (freeze, FROZEN)])
def test_one_node_costs_its_own_addresses_the_end_of_its_lease(fault, most, seed, names):
    with at_work(seed, names) as (cluster, history):
        had = on(cluster, "n1")
        fault(cluster)
        gone = off(cluster, history)
        must(gone.keys() == had, f"others than those of n1: {gone.keys() ^ had}")
        must(max(gone.values()) < most, f"on no node for {max(gone.values()):.1f} s")


@SIZES
@pytest.mark.parametrize("seed", range(1, 3))
def test_a_node_that_is_lost_with_the_api_costs_its_addresses_and_those_of_a_minority(seed, names):
    """Of two nodes the other one is no majority; of three the others are."""
    with at_work(seed, names) as (cluster, history):
        had = on(cluster, "n1")
        reach(cluster, Reach.DROPPED, names[1:])
        cluster.power_off(cluster.nodes["n1"])
        cluster.run(BEFORE + OUTAGE)
        cluster.power_on(cluster.nodes["n1"])
        reach(cluster, Reach.WHOLE, names)
        cluster.run(40)
        gone = off(cluster, history)
        must(gone.keys() == (had if names == THREE else {*cluster.addresses()}), f"{gone.keys()}")
        longest = max(gone.values())
        assert longest > OUTAGE
        must(longest < BEFORE + OUTAGE + 3, f"on no node for {longest:.1f} s")


@SIZES
@pytest.mark.parametrize("which", ["one", "all"])
@pytest.mark.parametrize("seed", range(1, 3))
def test_agents_that_are_killed_in_an_outage_cost_their_addresses_until_it_ends(seed, which, names):
    """They are started again at once, and then do not know what was agreed on."""
    with at_work(seed, names) as (cluster, history):
        cluster.run_kubelets()
        had = on(cluster, "n1") if which == "one" else {*cluster.addresses()}
        reach(cluster, Reach.DROPPED, names)
        cluster.run(BEFORE)
        for name in names if which == "all" else ["n1"]:
            cluster.kill_agent(cluster.nodes[name])
        cluster.run(OUTAGE)
        reach(cluster, Reach.WHOLE, names)
        cluster.run(40)
        gone = off(cluster, history)
        must(gone.keys() == had, f"others than those of killed agents: {gone.keys() ^ had}")
        must(max(gone.values()) < OUTAGE, f"on no node for {max(gone.values()):.1f} s")
