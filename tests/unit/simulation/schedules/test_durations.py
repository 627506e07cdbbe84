# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Leases whose duration the nodes choose: three seconds in a small cluster with exact fences."""

from __future__ import annotations

import pytest

from simulation.cluster import simulated
from simulation.history import History
from simulation.shape import AUTO, Fenced, Shape


@pytest.mark.parametrize(
    ("fenced", "seconds"), [(Fenced.ALL, 3), (Fenced.NONE, 5)], ids=["exact", "no-fence"]
)
@pytest.mark.parametrize("phase", [0.0, 0.4, 0.8])
def test_a_lost_node_is_replaced_when_its_lease_ends(fenced, seconds, phase):
    with simulated(7, ("n1", "n2", "n3"), Shape(fenced=fenced, timing=AUTO)) as cluster:
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
