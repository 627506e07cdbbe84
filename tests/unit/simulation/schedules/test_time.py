# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: machines that do not run, clocks, too little processor time, kernels."""

from __future__ import annotations

import pytest

from purelb.core.node import rtnetlink
from purelb.core.settings import LeaseTiming
from simulation.api.way import Reach
from simulation.node.netlink import Stop
from tests.unit.simulation.schedules.story import (
    ASKED,
    DELIVERY,
    TAKEOVER,
    THREE,
    at_work,
    must,
    ways,
    won_by,
)

SEEDS = range(1, 7)
HOUR = 3600.0
RENEW_PERIOD = LeaseTiming().renew_period
PPM = 1e-6


def reach(cluster, how):
    for way in ways(cluster):
        way.set_reach(how)


def held_by(cluster, name):
    return [address for address in cluster.addresses() if name in cluster.holders(address)]


def paused(seed, seconds, *, sets_wall_clock=False):
    """n1 is paused, and its addresses are taken over if that lasts; return the worst doubles."""
    with at_work(seed) as (cluster, history):
        node, own = cluster.nodes["n1"], won_by(cluster, "n1", THREE)
        cluster.pause(node)
        cluster.run(seconds)
        assert history.unheld() > 4
        taken = [address for address in own if cluster.holders(address)]
        assert taken == (own if seconds > 11 else [])
        cluster.resume(node, sets_wall_clock=sets_wall_clock)
        cluster.run(30)
        assert held_by(cluster, "n1") == own
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        return history.twice()


def test_a_virtual_machine_that_is_paused_for_5_s_continues_as_before():
    worst = max(paused(seed, 5) for seed in SEEDS)
    must(worst == 0, f"on two nodes for {worst:.1f} s")


@pytest.mark.parametrize("sets_wall_clock", [False, True])
def test_a_virtual_machine_that_was_paused_for_12_s_learns_it_by_its_next_renewal(sets_wall_clock):
    worst = max(paused(seed, 12, sets_wall_clock=sets_wall_clock) for seed in SEEDS)
    assert worst > DELIVERY, "nothing is to be seen here"
    must(worst < RENEW_PERIOD, f"on two nodes for {worst:.1f} s")


@pytest.mark.parametrize("how", [Reach.REFUSED, Reach.DROPPED])
@pytest.mark.parametrize("seconds", [5, 12])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_virtual_machine_that_is_paused_while_no_node_reaches_the_api_continues(
    seed, seconds, how
):
    with at_work(seed) as (cluster, history):
        own = won_by(cluster, "n1", THREE)
        reach(cluster, how)
        cluster.run(2)
        cluster.pause(cluster.nodes["n1"])
        cluster.run(seconds)
        assert not any(cluster.holders(address) for address in own)
        cluster.resume(cluster.nodes["n1"])
        cluster.run(30)
        reach(cluster, Reach.WHOLE)
        cluster.run(30)
        must(history.unheld() < seconds + DELIVERY, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


@pytest.mark.parametrize("seconds", [5, 12])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_machine_that_slept_knows_that_its_right_has_ended(seed, seconds):
    with at_work(seed) as (cluster, history):
        own = won_by(cluster, "n1", THREE)
        cluster.suspend(cluster.nodes["n1"])
        cluster.run(seconds)
        assert history.unheld() > 4
        cluster.resume(cluster.nodes["n1"])
        cluster.run(30)
        assert held_by(cluster, "n1") == own
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")


def slept(seed):
    """n1 sleeps for 20 s, and for 3 s more it hears nothing from the API; return the worst doubles.

    TCP repeats what was sent to it meanwhile some time after it resumes.
    """
    with at_work(seed) as (cluster, history):
        node, own = cluster.nodes["n1"], won_by(cluster, "n1", THREE)
        cluster.suspend(node)
        cluster.way("agent/n1").set_reach(Reach.DROPPED)
        cluster.run(20)
        assert all(cluster.holders(address) for address in own)
        cluster.resume(node)
        cluster.run(3)
        cluster.way("agent/n1").set_reach(Reach.WHOLE)
        cluster.run(30)
        assert held_by(cluster, "n1") == own
        return history.twice()


# Between two renewals.
@pytest.mark.parametrize("phase", range(5))
def test_a_machine_that_slept_for_a_moment_renews_in_time(phase):
    with at_work() as (cluster, history):
        own = won_by(cluster, "n1", THREE)
        # While it can, as its right lasts.
        cluster.run(0.8 * phase)
        cluster.suspend(cluster.nodes["n1"])
        cluster.run(2.5)
        cluster.resume(cluster.nodes["n1"])
        cluster.run(15)
        moved = [a for a in own for _seconds, on in history.spans(a) if not on <= {"n1"}]
        must(not moved, f"{moved} moved to another node")
        must(history.unheld() < 2.5 + ASKED, f"on no node for {history.unheld():.2f} s")


def test_a_machine_that_slept_answers_no_more_before_it_hears_from_others():
    worst = max(map(slept, SEEDS))
    must(worst == 0, f"on two nodes for {worst:.1f} s")


@pytest.mark.parametrize(
    ("seed", "how"),
    [
        *((seed, Reach.REFUSED) for seed in (1, 2, 3)),
        *((seed, Reach.DROPPED) for seed in (1, 2, 3)),
    ],
)
def test_a_machine_that_slept_while_no_node_reaches_the_api_answers_no_more(seed, how):
    with at_work(seed) as (cluster, history):
        own = won_by(cluster, "n1", THREE)
        reach(cluster, how)
        cluster.run(2)
        cluster.suspend(cluster.nodes["n1"])
        cluster.run(12)
        cluster.resume(cluster.nodes["n1"])
        cluster.run(30)
        # No node can know that it has gone, so none may take its addresses.
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
        must(not any(cluster.holders(address) for address in own), "it holds without a right")
        reach(cluster, Reach.WHOLE)
        cluster.run(30)
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
        must(history.unheld(since=44) < TAKEOVER, f"unheld for {history.unheld(since=44):.1f} s")


def test_a_machine_that_slept_withdraws_also_while_its_kernel_does_not_answer():
    for seed in SEEDS:
        with at_work(seed) as (cluster, history):
            node = cluster.nodes["n1"]
            cluster.suspend(node)
            cluster.run(12)
            node.kernel.is_unreadable = True
            cluster.resume(node)
            cluster.run(2)
            must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
            assert not held_by(cluster, "n1")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_agents_are_replaced_by_nodes_whose_clocks_go_at_other_rates(seed):
    with at_work(seed) as (cluster, history):
        for name, ppm in zip(THREE, (500, -500, 0), strict=True):
            cluster.nodes[name].machine.set_rate(1 + ppm * PPM)
        cluster.run(300)
        for name in THREE:
            cluster.kill_agent(cluster.nodes[name])
            cluster.run(40)
            assert not held_by(cluster, name)
            cluster.start_agent(cluster.nodes[name])
            cluster.run(40)
            assert held_by(cluster, name) == won_by(cluster, name, THREE)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_step_of_a_wall_clock_moves_nothing(seed):
    with at_work(seed) as (cluster, history):
        for hours in (1, -1, -1, 1):
            cluster.nodes["n1"].machine.wall.step(hours * HOUR)
            cluster.nodes["n2"].machine.wall.step(-hours * HOUR)
            cluster.run(30)
        moved = [a for a in cluster.addresses() if len(history.spans(a)) != 1]
        must(not moved, f"{len(moved)} addresses have moved")


@pytest.mark.parametrize("seconds", [0.05, 0.2])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_lost_node_is_replaced_by_nodes_without_processor_time(seed, seconds):
    with at_work(seed) as (cluster, history):
        lost = won_by(cluster, "n3", THREE)
        for node in cluster.nodes.values():
            node.agent.pass_seconds = seconds
        cluster.run(60)
        must(history.unheld() == 0, f"unheld for {history.unheld():.1f} s")
        cluster.power_off(cluster.nodes["n3"])
        cluster.run(60)
        assert all(set(cluster.holders(a)) <= {"n1", "n2"} for a in lost)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


def stopped(seed, kind):
    """n1 is stopped for 30 s after a request; return how many addresses it adds that others have.

    They go in its next cycle: here at the same moment, as code takes no time.
    """
    with at_work(seed) as (cluster, history):
        node, doubles = cluster.nodes["n1"], []
        note = node.kernel.changed

        def changed(place):
            note(place)
            if len(cluster.holders(place[1])) > 1:
                doubles.append(place)

        node.kernel.changed = changed
        assert len(won_by(cluster, "n1", THREE)) > 1
        node.kernel.stop = Stop(1, kind, 30)
        cluster.run(10)
        assert node.kernel.stop is None
        assert cluster.timeline.now > history.began + 30_000_000
        return len(doubles)


@pytest.mark.parametrize("kind", [rtnetlink.RTM_GETADDR, rtnetlink.RTM_NEWADDR])
def test_an_agent_that_is_stopped_while_it_refreshes_adds_nothing_that_others_have(kind):
    worst = max(stopped(seed, kind) for seed in SEEDS)
    must(worst == 0, f"{worst} addresses were added that other nodes have")


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_dump_without_the_own_address_withdraws_nothing(seed, version):
    with at_work(seed) as (cluster, _history):
        node, gone = cluster.nodes["n1"], []
        (own,) = (address for address in node.addresses if address.version == version)
        held = [a for a in won_by(cluster, "n1", THREE) if a.version == version]
        note = node.kernel.changed

        def changed(place):
            note(place)
            gone.extend([place[1]] if place not in node.kernel.held else [])

        node.kernel.changed = changed
        node.kernel.interrupted_dumps, node.kernel.dumps_lack = 3, own
        cluster.run(30)
        assert node.kernel.interrupted_dumps == 0
        assert held
        must(not gone, f"{len(gone)} of {len(held)} addresses were withdrawn")


@pytest.mark.parametrize("dumps", [1, 3])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_dump_without_an_address_of_a_service_leaves_it(seed, dumps):
    with at_work(seed) as (cluster, history):
        node = cluster.nodes["n1"]
        for vip in won_by(cluster, "n1", THREE)[:2]:
            node.kernel.interrupted_dumps, node.kernel.dumps_lack = dumps, vip
            cluster.run(30)
            assert node.kernel.interrupted_dumps == 0
        moved = [a for a in cluster.addresses() if len(history.spans(a)) != 1]
        must(not moved, f"{len(moved)} addresses have moved")


@pytest.mark.parametrize("version", [4, 6])
def test_an_agent_that_leaves_withdraws_also_what_a_dump_lacks(version):
    with at_work() as (cluster, history):
        node = cluster.nodes["n1"]
        vip = next(a for a in won_by(cluster, "n1", THREE) if a.version == version)
        node.kernel.interrupted_dumps, node.kernel.dumps_lack = 1, vip
        cluster.stop_agent(node)
        cluster.run(30)
        assert node.kernel.interrupted_dumps == 0
        assert cluster.holders(vip) != ["n1"]
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_agent_puts_back_what_went_while_its_news_were_lost(seed):
    with at_work(seed) as (cluster, history):
        node, own = cluster.nodes["n1"], won_by(cluster, "n1", THREE)
        places = [place for place in node.kernel.held if place[1] in own]
        node.agent.freeze()
        node.kernel.lost_news = len(places)
        for place in places:
            node.kernel.remove_address(place)
        assert node.kernel.lost_news == 0
        cluster.run(0.5)
        node.agent.thaw()
        cluster.run(31)
        assert history.unheld() >= 0.5
        must(held_by(cluster, "n1") == own, "not all addresses have come back")
        must(history.unheld() < 31, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
