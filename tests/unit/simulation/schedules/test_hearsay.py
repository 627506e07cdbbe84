# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: what a node believes of a Lease because another one said so, or did not answer.

`n1` and `n2` reach each other all the time, so `n1` holds by agreement, and `n2` promised that.
"""

from __future__ import annotations

import pytest

from simulation.api.way import Reach
from tests.unit.simulation.schedules.story import THREE, at_work, must

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
