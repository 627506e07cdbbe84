# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: what a node believes of a Lease because another one said so, or did not answer.

`n1` and `n2` reach each other all the time, so `n1` holds by agreement, and `n2` promised that.
"""

from __future__ import annotations

import pytest

from purelb.core.settings import LeaseTiming
from simulation.api.way import Reach
from tests.unit.simulation.schedules.story import THREE, at_work, join, must

SEEDS = pytest.mark.parametrize("seed", range(1, 11))


def reach(cluster, whole, *names):
    for name in names:
        cluster.way(f"agent/{name}").set_reach(Reach.WHOLE if whole else Reach.REFUSED)


def mend(cluster, one, other):
    for paths in (cluster.segment.paths, cluster.network.paths):
        paths.lose(one, other, 0.0)
        paths.lose(other, one, 0.0)


@SEEDS
@pytest.mark.parametrize("apart", [0.5, 1, 4, 9])
def test_a_node_that_reaches_a_promising_one_again_takes_nothing(seed, apart):
    """`n3` could write alone for a while, and believes that the Lease of `n1` has ended."""
    with at_work(seed) as (cluster, history):
        cluster.cut("n1", "n3")
        reach(cluster, False, *THREE)
        cluster.run(13)
        cluster.cut("n2", "n3")
        reach(cluster, True, "n3")
        cluster.run(apart)
        assert cluster.way("agent/n1").reach is Reach.REFUSED
        mend(cluster, "n2", "n3")
        reach(cluster, True, "n2")
        cluster.run(30)
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")


@SEEDS
def test_a_holder_out_of_reach_that_knows_nobody_hears_of_a_node_that_joined(seed):
    """`n1`, alone, holds by agreement; `n4` joins, and finds it silent at the end of its Lease."""
    with at_work(seed, ("n1",)) as (cluster, history):
        reach(cluster, False, "n1")
        cluster.run(5)
        join(cluster, history, "n4")
        cluster.run(2)
        cluster.cut("n1", "n4")
        cluster.run(20)
        given = list(cluster.addresses())
        assert all(set(cluster.holders(a)) == {"n1", "n4"} for a in given)
        mend(cluster, "n1", "n4")
        # A pause between two messages, and what is left until the hold deadline of `n1`.
        cluster.run(2.5 + LeaseTiming().renew_deadline)
        must(all(cluster.holders(a) == ["n4"] for a in given), "n1 did not withdraw")
