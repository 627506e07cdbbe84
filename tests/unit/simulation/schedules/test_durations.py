# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Leases whose duration the nodes choose: three seconds in a small cluster with exact fences."""

from __future__ import annotations

import pytest

from simulation.api.way import Reach
from simulation.cluster import simulated
from simulation.history import History
from simulation.shape import AUTO, LONG, Fenced, Shape
from tests.unit.simulation.schedules.story import ASKED, THREE, must, slow_writes


@pytest.mark.parametrize(
    ("fenced", "seconds"), [(Fenced.ALL, 3), (Fenced.NONE, 5)], ids=["exact", "no-fence"]
)
@pytest.mark.parametrize("phase", [0.0, 0.4, 0.8])
def test_a_lost_node_is_replaced_when_its_lease_ends(fenced, seconds, phase):
    with simulated(7, THREE, Shape(fenced=fenced, timing=AUTO)) as cluster:
        cluster.start()
        cluster.run(25)
        cluster.add_service("web")
        cluster.run(30 + phase)
        history = History(cluster)
        lost = {a: node for a in cluster.addresses() for node in cluster.holders(a)}
        victim = next(iter(lost.values()))
        cluster.power_off(cluster.nodes[victim])
        cluster.run(seconds + 0.5)
        for address, node in lost.items():
            (holder,) = cluster.holders(address)
            assert (holder == node) is (node != victim)
        assert history.twice() == 0
        cluster.run(60)
        assert all(len(cluster.holders(address)) == 1 for address in lost)


def unheld(timing, phase, trouble):
    """Return for how long addresses were on no node in a minute with this trouble from a phase on.

    None may ever be on two.
    """
    with simulated(7, THREE, Shape(timing=timing)) as cluster:
        cluster.start()
        cluster.run(25)
        for number in range(6):
            cluster.add_service(f"s{number}")
        cluster.run(30 + phase)
        history = History(cluster)
        trouble(cluster)
        cluster.run(60)
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
        assert all(len(cluster.holders(address)) == 1 for address in cluster.addresses())
        return history.unheld()


def slow(seconds):
    """Let all writes of agents take so long for half a minute."""

    def begin(cluster):
        slow_writes(cluster, seconds)
        cluster.run(30)
        slow_writes(cluster, 0.01)

    return begin


def stalled(seconds, names):
    """Let the API server not answer these nodes for so long."""

    def begin(cluster):
        for name in names:
            cluster.way(f"agent/{name}").set_reach(Reach.STOPPED)
        cluster.run(seconds)
        for name in names:
            cluster.way(f"agent/{name}").set_reach(Reach.WHOLE)

    return begin


OF_ALL = {
    **{f"writes-{seconds}": slow(seconds) for seconds in (0.4, 1.0, 1.5, 2.0)},
    **{f"stall-{seconds}": stalled(seconds, THREE) for seconds in (1.0, 2.0, 3.0)},
}
OF_SOME = {
    f"{len(names)}-stall-{seconds}": stalled(seconds, names)
    for names in (THREE[:1], THREE[:2])
    for seconds in (1.0, 2.0, 3.0)
}
PHASES = pytest.mark.parametrize("phase", [0.0, 0.35, 0.7])


@PHASES
@pytest.mark.parametrize("trouble", OF_ALL.values(), ids=OF_ALL)
def test_an_api_that_is_slow_for_all_costs_short_leases_nothing(trouble, phase):
    gone = unheld(AUTO, phase, trouble)
    must(gone == 0, f"unheld for {gone:.3f} s")


@PHASES
@pytest.mark.parametrize("trouble", OF_SOME.values(), ids=OF_SOME)
def test_an_api_that_stalls_for_some_costs_short_leases_a_move_at_most(trouble, phase):
    """The others renew, so it is not the API: Leases of 10 s outlast that, short ones do not."""
    short, long = (unheld(timing, phase, trouble) for timing in (AUTO, LONG))
    must(short <= long + ASKED, f"unheld for {short:.3f} s, and {long:.3f} s with long Leases")
