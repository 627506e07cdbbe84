# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: Leases, watches and the API, two faults at once, or merely slow."""

from __future__ import annotations

import itertools
from ipaddress import ip_address
from statistics import mean

import pytest

from purelb.core.election.election import rank
from purelb.core.names import DRAINING_TAINTS
from purelb.core.settings import LeaseTiming
from simulation import users
from simulation.api.way import Reach
from simulation.chance import stream
from simulation.manifests import KINDS
from tests.unit.simulation.schedules.story import (
    ASKED,
    DELIVERY,
    TAKEOVER,
    THREE,
    at_work,
    join,
    must,
    slow_writes,
    ways,
    won_by,
)


def test_a_lost_node_is_replaced():
    with at_work() as (cluster, history):
        lost = won_by(cluster, "n3", THREE)
        cluster.power_off(cluster.nodes["n3"])
        cluster.run(60)
        assert all(set(cluster.holders(a)) <= {"n1", "n2"} for a in lost)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


def lease_writes(cluster):
    return sum(cluster.api.writes[f"agent/{n}", KINDS["leases"]] for n in cluster.nodes)


def replaced(cluster, history, pass_time):
    """n3 is lost; return for how long, and how many Leases are written while it is alive."""
    won_by(cluster, "n3", THREE)
    before = lease_writes(cluster)
    pass_time(60)
    written = lease_writes(cluster) - before
    must(history.unheld() == 0, "an address has moved before")
    cluster.power_off(cluster.nodes["n3"])
    pass_time(60)
    must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
    return history.unheld(), written


# Seconds more, in the mean, that a node counts which is lost while it asks for promises.
_PROMISED = 1.0
# Of three nodes in a minute, by the default timing.
_WRITES = 3 * 60 / LeaseTiming().renew_period


# Between two renewals: of all moments in which a node may be lost.
PHASES = [0.8 * number for number in range(6)]
# A mean of six depends on whether one of them falls into a write: by up to 0.5 s.
_FINE_PHASES = [0.4 * number for number in range(12)]


@pytest.mark.parametrize("seconds", [0.4, 1.0, 1.6])
def test_a_lost_node_is_replaced_as_fast_while_writes_are_slow(seconds):
    usual, slow = [], []
    for phase in _FINE_PHASES:
        with at_work() as (cluster, history):
            cluster.run(phase)
            usual.append(replaced(cluster, history, cluster.run)[0])
        with at_work() as (cluster, history):
            cluster.run(phase)
            slow_writes(cluster, seconds)
            unheld, written = replaced(cluster, history, cluster.run)
            must(written < 1.5 * _WRITES, f"{written} Leases were written, and usually {_WRITES}")
            slow.append(unheld)
    # Its last renewal is seen later by that.
    later = 1.1 * seconds + DELIVERY
    must(max(slow) < LeaseTiming().duration + later, f"unheld for {max(slow):.1f} s")
    # One that is lost during a write may have been promised to count from then on.
    most = mean(usual) + later + _PROMISED
    must(mean(slow) < most, f"unheld for {mean(slow):.1f} s, usually for {mean(usual):.1f} s")


@pytest.mark.parametrize("seconds", [2.1, 3.5, 4.2, 5.0, 8.0])
def test_writes_that_are_slow_for_all_nodes_move_nothing(seconds):
    for phase in PHASES:
        with at_work() as (cluster, history):
            cluster.run(phase)
            slow_writes(cluster, seconds)
            cluster.run(60)
            must(history.unheld() == 0, f"unheld for {history.unheld():.1f} s")
            must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
            slow_writes(cluster, 0.01)
            cluster.run(30)
            # Who hears that another one can renew has to renew in time.
            must(history.unheld() < 1, f"afterwards unheld for {history.unheld():.1f} s")
            must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


@pytest.mark.parametrize("names", [("n1", "n2"), THREE], ids=["two", "three"])
def test_nodes_that_hold_by_agreement_do_not_dispute_what_they_announce(names):
    """Each believes that the Leases of the others have ended, as they are written so late."""
    for phase in PHASES[::3]:
        with at_work(names=names) as (cluster, _history):
            cluster.run(phase)
            slow_writes(cluster, 10)
            before = {name: cluster.way(f"agent/{name}").asked for name in names}
            cluster.run(60)
            asked = {name: cluster.way(f"agent/{name}").asked - before[name] for name in names}
            must(max(asked.values()) < 180, f"requests in a minute: {asked}")


def moved(history, address):
    """How often an address has moved."""
    had = [sorted(holders) for _seconds, holders in history.spans(address) if holders]
    return sum(one != other for one, other in itertools.pairwise(had))


@pytest.mark.parametrize("seconds", [2.5, 3.5, 5.0, 8.0])
def test_a_node_whose_writes_alone_are_slow_loses_its_addresses_once_at_most(seconds):
    for phase in PHASES:
        with at_work() as (cluster, history):
            won = won_by(cluster, "n1", THREE)
            cluster.run(phase)
            slow_writes(cluster, seconds, of=("n1",))
            cluster.run(60)
            moves = max(moved(history, address) for address in won)
            must(moves <= 1, f"an address has moved {moves} times")
            must(history.unheld() < ASKED, f"unheld for {history.unheld():.2f} s")
            must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_lost_node_is_replaced_as_fast_while_the_api_flaps(seed):
    with at_work(seed) as (cluster, history):

        def flap(seconds):
            for _flap in range(seconds // 10):
                for reach in (Reach.REFUSED, Reach.WHOLE):
                    for way in ways(cluster):
                        way.set_reach(reach)
                    cluster.run(5)

        unheld, written = replaced(cluster, history, flap)
        must(unheld < LeaseTiming().duration, f"unheld for {unheld:.1f} s")
        must(written < 1.5 * _WRITES, f"{written} Leases were written, and usually {_WRITES}")


@pytest.mark.parametrize("old", [1, 2, 3, 5])
def test_a_node_that_joins_while_no_other_reaches_the_api_takes_nothing(old):
    names = tuple(f"n{number + 1}" for number in range(old))
    with at_work(names=names) as (cluster, history):
        for way in ways(cluster):
            way.set_reach(Reach.REFUSED)
        cluster.run(2)
        join(cluster, history, "new")
        won_by(cluster, "new", (*names, "new"))
        cluster.run(60)
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


@pytest.mark.parametrize("seed", range(1, 5))
def test_an_outage_for_all_moves_nothing(seed):
    with at_work(seed) as (cluster, history):
        for way in ways(cluster):
            way.set_reach(Reach.DROPPED)
        cluster.run(120)
        for way in ways(cluster):
            way.set_reach(Reach.WHOLE)
        cluster.run(60)
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
        must(history.unheld() == 0, f"unheld for {history.unheld():.1f} s")


@pytest.mark.parametrize("reach", [Reach.REFUSED, Reach.DROPPED])
def test_a_node_that_is_cut_off_from_the_api_is_replaced_and_returns(reach):
    with at_work() as (cluster, history):
        won_by(cluster, "n2", THREE)
        cluster.way("agent/n2").set_reach(reach)
        cluster.run(60)
        assert not any("n2" in cluster.holders(a) for a in cluster.addresses())
        cluster.way("agent/n2").set_reach(Reach.WHOLE)
        cluster.run(30)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")
        given = cluster.addresses()
        assert {a: cluster.holders(a) for a in given} == {a: [rank(THREE, a)[0]] for a in given}


def test_a_lease_that_is_lost_while_a_change_of_it_waits_is_not_asked_for_without_a_pause():
    with at_work() as (cluster, _history):
        node, way = cluster.nodes["n1"], cluster.way("agent/n1")
        way.set_reach(Reach.REFUSED)
        cluster.run(15)
        assert not any("n1" in cluster.holders(a) for a in cluster.addresses())
        node.kernel.add_address(2, ip_address("172.28.9.1"), 24)
        before = way.asked
        cluster.run(30)
        # Six watches are restarted every 0.75 s, and events and annotations are tried again.
        must(way.asked - before < 30 * 20, f"{way.asked - before} requests in 30 s")
        way.set_reach(Reach.WHOLE)
        cluster.run(10)
        lease = cluster.find("leases", "purelb-system", "purelb-node-n1")
        assert "172.28.9.0/24" in lease["metadata"]["annotations"]["purelb.io/subnets"]


def relayed(seed):
    """n1 and n2 lose the API, and n1 does not hear from n3; return the worst double holding."""
    with at_work(seed) as (cluster, history):
        draw = stream(seed, "peers that are far")
        cluster.network.delay = lambda: draw.uniform(0.0005, 0.01)
        for name in ("n1", "n2"):
            cluster.way(f"agent/{name}").set_reach(Reach.DROPPED)
        cluster.network.cut.add(frozenset({"n1", "n3"}))
        cluster.run(60)
        return history.twice()


def test_that_a_node_can_renew_is_passed_on():
    worst = max(map(relayed, range(1, 13)))
    must(worst == 0, f"on two nodes for {worst:.1f} s")


@pytest.mark.parametrize("seed", range(1, 5))
def test_what_a_frozen_agent_reads_late_ends_no_outage(seed):
    with at_work(seed) as (cluster, history):
        frozen = cluster.nodes["n3"].agent
        frozen.freeze()
        cluster.run(12)
        for way in ways(cluster):
            way.set_reach(Reach.DROPPED)
        # Meanwhile the others say to it, and read nowhere else, that they can renew.
        cluster.run(10)
        frozen.thaw()
        cluster.run(40)
        unheld = history.unheld(since=12)
        must(unheld == 0, f"on no node for {unheld:.1f} s")


def joined(seed, fault):
    """n4 joins 0.4 s after n3 stopped seeing; return the worst double holding."""
    with at_work(seed) as (cluster, history):
        if fault == "frozen":
            cluster.nodes["n3"].agent.freeze()
        else:
            cluster.way("agent/n3").set_reach(Reach.DROPPED)
        cluster.run(0.4)
        join(cluster, history, "n4")
        cluster.run(30)
        return history.twice()


@pytest.mark.parametrize("fault", ["frozen", "cut off"])
def test_a_node_that_joins_waits_for_a_holder_that_does_not_see_it(fault):
    worst = max(joined(seed, fault) for seed in range(1, 7))
    must(worst == 0, f"on two nodes for {worst:.1f} s")


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_agent_that_starts_next_to_a_dead_node_waits_no_longer_than_the_others(seed):
    with at_work(seed) as (cluster, history):
        dead = won_by(cluster, "n3", THREE)
        cluster.power_off(cluster.nodes["n3"])
        cluster.run(3)
        cluster.restart_container(cluster.nodes["n1"])
        cluster.run(30)
        unheld = {"n1": 0.0, "n2": 0.0}
        for address in dead:
            (name,) = cluster.holders(address)
            gone = sum(seconds for seconds, holders in history.spans(address) if not holders)
            unheld[name] = max(unheld[name], gone)
        must(0 < unheld["n1"] < unheld["n2"] + 2.5, f"by name, unheld for {unheld}")
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


def test_a_taint_moves_nothing_before_the_holder_has_seen_it():
    with at_work() as (cluster, history):
        won_by(cluster, "n1", THREE)
        cluster.way("agent/n1").stall(KINDS["nodes"])
        users.taint(cluster, cluster.nodes["n1"], DRAINING_TAINTS[0])
        cluster.run(60)
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


def test_a_service_that_is_new_keeps_its_addresses_while_two_nodes_have_them():
    with at_work() as (cluster, _history):
        for number in range(6):
            cluster.add_service(f"new{number}")
        cluster.run(5)
        before = cluster.addresses()
        assert any(before[a].startswith("new") for a in won_by(cluster, "n1", THREE))
        cluster.way("agent/n1").stall(KINDS["nodes"])
        users.taint(cluster, cluster.nodes["n1"], DRAINING_TAINTS[0])
        cluster.run(20)
        moved = [name for address, name in before.items() if address not in cluster.addresses()]
        must(not moved, f"{len(moved)} addresses are no Service's any more")


def test_a_watch_whose_server_is_stopped_is_restarted():
    with at_work() as (cluster, _history):
        before = set(cluster.addresses())
        cluster.way("agent/n1").silence(KINDS["services"])
        for number in range(10):
            cluster.add_service(f"late{number}")
        cluster.run(20)
        late = [a for a in won_by(cluster, "n1", THREE) if a not in before]
        assert late
        cluster.run(600)
        must(all(cluster.holders(a) == ["n1"] for a in late), "an address is unheld for 600 s")


@pytest.mark.parametrize(
    "seconds",
    [
        1.5,
        4.0,
        8.0,
    ],
)
def test_a_node_whose_watch_stands_still_takes_nothing_while_its_lists_are_slow(seconds):
    with at_work() as (cluster, history):
        way = cluster.way("agent/n1")
        way.stall(KINDS["leases"])
        way.slow = lambda method, kind: (
            (seconds, 0.0) if method == "GET" and kind == KINDS["leases"] else (0.0, 0.0)
        )
        cluster.run(60)
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


def relisted(seed):
    """n1 returns, and n4 joins while the list that n1 asked for is on its way; see `twice`."""
    with at_work(seed) as (cluster, history):
        way = cluster.way("agent/n1")
        way.set_reach(Reach.REFUSED)
        cluster.run(15)
        way.slow = lambda method, kind: (
            0.0,
            1.5 if method == "GET" and kind == KINDS["leases"] else 0.0,
        )
        node = cluster.add_node("n4")
        history.follow(node)
        cluster.run(6.5)
        # It waits for ten seconds, as it does not know whether n1 is live.
        cluster.start_agent(node)
        cluster.run(8.5)
        way.set_reach(Reach.WHOLE)
        cluster.run(20)
        return history.twice()


def test_a_list_takes_nothing_back_that_the_watch_has_brought():
    worst = max(relisted(seed) for seed in range(1, 5))
    must(worst == 0, f"on two nodes for {worst:.1f} s")
