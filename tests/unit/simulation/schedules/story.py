# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What schedules share: a cluster at work, and invariants."""

from __future__ import annotations

from contextlib import contextmanager

from purelb.core.election.election import rank
from simulation.chance import stream
from simulation.cluster import simulated
from simulation.history import History

# Seconds, the contract's: a crash, at worst.
TAKEOVER = 20.0
# A question and its answer, or the news of one change at two nodes.
DELIVERY = 0.05
# An address that moves is on no node from when its holder withdraws until the next one has heard
# of that; twice, if it moves there and back.
ASKED = 0.1
THREE = ("n1", "n2", "n3")


def must(holds, text):
    """Assert an invariant; what makes a schedule the one that is meant is asserted plainly."""
    assert holds, text


@contextmanager
def at_work(seed=1, names=THREE, services=10):
    """A cluster whose Services have had their addresses for longer than a minute."""
    with simulated(seed, names) as cluster:
        cluster.start()
        cluster.run(30)
        for number in range(services):
            cluster.add_service(f"s{number}")
        cluster.run(100)
        yield cluster, History(cluster)


def ways(cluster):
    return [cluster.way(f"agent/{name}") for name in cluster.nodes]


def won_by(cluster, name, names):
    found = [address for address in cluster.addresses() if rank(names, address)[0] == name]
    assert found, "nothing is to be seen here"
    return found


def join(cluster, history, name, *, clock_ahead=0.0):
    node = cluster.add_node(name)
    node.machine.wall.step(clock_ahead)
    history.follow(node)
    cluster.start_agent(node)
    return node


def slow_writes(cluster, seconds):
    draw = stream(1, "slow writes")

    def slow(method, _kind):
        is_write = method in ("POST", "PUT")
        return (seconds * draw.uniform(0.9, 1.1) if is_write else 0.0), 0.0

    for way in ways(cluster):
        way.slow = slow
