# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: frames and questions that get lost, directions that are cut, two halves."""

from __future__ import annotations

import pytest

from purelb.core.names import DRAINING_TAINTS
from simulation import users
from simulation.api.way import Reach
from simulation.invariants import misled
from simulation.node.hosts import Host
from tests.unit.simulation.schedules.story import (
    DELIVERY,
    TAKEOVER,
    THREE,
    at_work,
    must,
    ways,
    won_by,
)

# Seconds until a host that knows the wrong node has found the right one: an entry that was good for
# 45 s, and 8 s until it is given up; then it asks each second.
FOUND = 45 + 8 + 2


def use_all(cluster):
    """Let all hosts of the segment send to all addresses."""
    for host in cluster.segment.hosts:
        for address in cluster.addresses():
            cluster.segment.use(host, address)


def lose_everywhere(cluster, share):
    for paths in (cluster.segment.paths, cluster.network.paths):
        paths.lose_everywhere(share)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_lost_node_is_replaced_next_to_a_lossy_wire(seed):
    with at_work(seed) as (cluster, history):
        use_all(cluster)
        lost = won_by(cluster, "n3", THREE)
        lose_everywhere(cluster, 0.3)
        cluster.power_off(cluster.nodes["n3"])
        assert set(lost) <= {a for a in cluster.addresses() if not cluster.holders(a)}
        cluster.run(FOUND)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.heard_twice() == 0, f"on two nodes for {history.heard_twice():.1f} s")
        cluster.heal()
        cluster.run(FOUND)
        must(not misled(cluster), f"{misled(cluster)}")


def held_out(seed, share):
    """No node reaches the API for a while, and messages get lost: unheld, and on two nodes."""
    with at_work(seed) as (cluster, history):
        lose_everywhere(cluster, share)
        for way in ways(cluster):
            way.set_reach(Reach.DROPPED)
        cluster.run(70)
        for way in ways(cluster):
            way.set_reach(Reach.WHOLE)
        cluster.run(20)
        return history.unheld(), history.heard_twice()


@pytest.mark.parametrize(
    "share",
    [0.05, 0.3],
)
def test_an_outage_for_all_moves_nothing_next_to_a_lossy_wire(share):
    found = [held_out(seed, share) for seed in (2, 3)]
    must(max(twice for _unheld, twice in found) == 0, "on two nodes")
    worst = max(unheld for unheld, _twice in found)
    must(worst == 0, f"unheld for {worst:.1f} s")


@pytest.mark.parametrize("lost", [("n3", "n1"), ("n1", "n3")], ids=["replies", "questions"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_node_that_is_cut_off_from_the_api_and_does_not_hear_another_is_replaced(seed, lost):
    with at_work(seed) as (cluster, history):
        cluster.lose(*lost)
        won_by(cluster, "n1", THREE)
        cluster.way("agent/n1").set_reach(Reach.DROPPED)
        cluster.run(60)
        assert not any("n1" in cluster.holders(a) for a in cluster.addresses())
        cluster.heal()
        cluster.way("agent/n1").set_reach(Reach.WHOLE)
        cluster.run(30)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.heard_twice() == 0, f"on two nodes for {history.heard_twice():.2f} s")


def deaf(seed, lost):
    """n1 and n2 lose the API, and one direction between n1 and n3 is lost."""
    with at_work(seed) as (cluster, history):
        cluster.lose(*lost)
        for name in ("n1", "n2"):
            cluster.way(f"agent/{name}").set_reach(Reach.DROPPED)
        cluster.run(60)
        return history.heard_twice()


@pytest.mark.parametrize("lost", [("n3", "n1"), ("n1", "n3")], ids=["replies", "questions"])
def test_that_a_node_can_renew_is_passed_on_to_who_does_not_hear_it(lost):
    worst = max(deaf(seed, lost) for seed in range(1, 4))
    must(worst == 0, f"on two nodes for {worst:.1f} s")


# n1 does not hear that it is asked, until it reads it in the Leases of those that ask.
@pytest.mark.parametrize("divided", [3, 40])
@pytest.mark.parametrize("seed", range(1, 4))
def test_hosts_know_the_holder_after_the_halves_of_a_segment_have_joined(seed, divided):
    with at_work(seed) as (cluster, history):
        cluster.segment.hosts.append(Host("router"))
        use_all(cluster)
        moved = won_by(cluster, "n1", THREE)
        cluster.divide(("n1", "client"), ("n2", "n3", "router"))
        cluster.run(0.1)
        # No host on the side of n1 hears who has its addresses now.
        users.taint(cluster, cluster.nodes["n1"], DRAINING_TAINTS[0])
        cluster.run(divided)
        assert not any("n1" in cluster.holders(a) for a in moved)
        assert any(text.startswith("client") for text in misled(cluster))
        cluster.heal()
        cluster.run(FOUND)
        must(not misled(cluster), f"{misled(cluster)}")
        must(history.heard_twice() == 0, f"on two nodes for {history.heard_twice():.2f} s")


@pytest.mark.parametrize("seed", range(1, 4))
def test_hosts_know_the_holder_although_all_its_announcements_got_lost(seed):
    with at_work(seed) as (cluster, _history):
        for address in cluster.addresses():
            cluster.segment.ask(cluster.host, address)
        moved = won_by(cluster, "n1", THREE)
        for name in (*THREE[1:], "client"):
            cluster.lose("n1", name)
        users.taint(cluster, cluster.nodes["n1"], DRAINING_TAINTS[0])
        cluster.run(15)
        users.untaint(cluster, cluster.nodes["n1"], DRAINING_TAINTS[0])
        cluster.run(15)
        assert all(cluster.holders(a) == ["n1"] for a in moved)
        known, mac = cluster.host.neighbors, cluster.nodes["n1"].eth0.mac
        assert not any(known[a] == mac for a in moved)
        cluster.heal()
        cluster.run(36)
        wrong = [a for a in moved if known[a] != mac]
        must(not wrong, f"{len(wrong)} addresses are looked for at another node")


@pytest.mark.parametrize("seed", range(1, 4))
def test_each_half_serves_its_own_hosts_when_the_larger_one_has_lost_the_api(seed):
    with at_work(seed) as (cluster, history):
        cluster.segment.hosts.append(Host("router"))
        use_all(cluster)
        cluster.divide(("n1", "n2", "client"), ("n3", "router"))
        for name in ("n1", "n2"):
            cluster.way(f"agent/{name}").set_reach(Reach.DROPPED)
        cluster.run(60)
        assert history.twice() > 30
        must(history.heard_twice() == 0, f"a host heard two for {history.heard_twice():.1f} s")
        cluster.heal()
        for name in ("n1", "n2"):
            cluster.way(f"agent/{name}").set_reach(Reach.WHOLE)
        cluster.run(FOUND)
        must(history.heard_twice() < DELIVERY, f"on two nodes for {history.heard_twice():.2f} s")
        must(not misled(cluster), f"{misled(cluster)}")


@pytest.mark.parametrize("seed", range(1, 4))
def test_two_nodes_that_are_cut_from_each_other_continue_as_before(seed):
    with at_work(seed) as (cluster, history):
        before = {a: cluster.holders(a) for a in cluster.addresses()}
        cluster.cut("n1", "n2")
        cluster.run(60)
        assert {a: cluster.holders(a) for a in cluster.addresses()} == before
        for way in ways(cluster):
            way.set_reach(Reach.REFUSED)
        cluster.run(60)
        must(history.heard_twice() == 0, f"on two nodes for {history.heard_twice():.1f} s")
        must(history.unheld() == 0, f"unheld for {history.unheld():.1f} s")
