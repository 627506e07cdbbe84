# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What may last is in proportion to the Leases of a cluster: here to some of three seconds."""

from __future__ import annotations

from itertools import count

import pytest

from simulation.explore.fault import Fault
from simulation.explore.judge import Judge
from simulation.explore.trial import at_work
from simulation.explore.workload import shape_of
from simulation.shape import AUTO, LONG, Fenced

_ETH0 = 2
# Seconds that the loss of a node may cost more than a Lease.
MARGIN = 2.3
TIMINGS = pytest.mark.parametrize(
    "cluster", [AUTO, LONG], ids=["short", "long"], indirect=True, scope="module"
)


@pytest.fixture(scope="module")
def cluster(request):
    shapes = ((number, shape_of(number)) for number in count())
    number = next(n for n, s in shapes if (s.timing, s.fenced) == (request.param, Fenced.ALL))
    with at_work(number, ("n1", "n2", "n3")) as made:
        yield made


def broken(judge, invariant):
    return any(breach.invariant == invariant for breach in judge.breaches())


@TIMINGS
def test_a_right_lasts_as_long_as_a_lease(cluster, in_a_copy, request):
    is_short = "short" in request.node.callspec.id

    def work():
        judge = Judge(cluster)
        name, address = next(
            (holder, address)
            for address in cluster.addresses()
            for holder in cluster.holders(address)
            if cluster.number_of(address) is not None
        )
        node = cluster.nodes[name]
        cluster.run(6)  # it renews
        node.kubelet.end_pod()
        cluster.kill_agent(node)
        node.kernel.fence.clear()
        node.kernel.held[_ETH0, address].valid_until = None
        cluster.run(5)
        assert broken(judge, "rightless") is is_short

    in_a_copy(work)


@TIMINGS
@pytest.mark.parametrize("is_long", [False, True], ids=["as-long", "longer"])
def test_a_lost_node_costs_the_end_of_a_lease(cluster, in_a_copy, is_long):
    timing = cluster.nodes["n1"].timing.timing(nodes=3, is_exact=True)
    # From the end of the last right on, and from that of the earliest one.
    latest = timing.renew_deadline
    earliest = latest - timing.renew_period
    allowed = timing.duration + MARGIN

    def work():
        judge = Judge(cluster, [Fault("lost", 0.0, 0.0, ("n1",))])
        for node in cluster.nodes.values():
            node.kubelet.end_pod()
            cluster.kill_agent(node)
        cluster.run((latest + allowed + 0.5) if is_long else (earliest + allowed - 0.5))
        assert max(judge.presence.on_no_node(cluster.addresses())) > timing.duration / 2
        assert broken(judge, "unheld") is is_long

    in_a_copy(work)
