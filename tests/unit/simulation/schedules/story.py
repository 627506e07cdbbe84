# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What schedules share: a cluster at work, and invariants."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from purelb.core.election.election import rank
from simulation.chance import stream
from simulation.cluster import Cluster, quiet
from simulation.explore.trial import CopyFailedError, forked
from simulation.history import History

# Seconds, the contract's: a crash, at worst.
TAKEOVER = 20.0
# A question and its answer, or the news of one change at two nodes.
DELIVERY = 0.05
# An address that moves is on no node from when its holder withdraws until the next one has heard
# of that; twice, if it moves there and back.
ASKED = 0.1
THREE = ("n1", "n2", "n3")
# Seconds of processor time that no test needs.
_LIMIT = 120


def must(holds, text):
    """Assert an invariant; what makes a schedule the one that is meant is asserted plainly."""
    assert holds, text


@dataclass(frozen=True)
class Start:
    """A cluster whose Services have had their addresses for longer than a minute."""

    seed: int
    names: tuple[str, ...]
    services: int

    def make(self):
        cluster = Cluster(self.seed, self.names)
        cluster.start()
        cluster.run(30)
        for number in range(self.services):
            cluster.add_service(f"s{number}")
        cluster.run(100)
        return cluster, History(cluster)


class UnpreparedError(BaseException):
    """A test in a copy begins with what the process that was copied has not prepared."""


# What this process, or the one that it is a copy of, has prepared for copies.
prepared = {}
_is_copy = False


@contextmanager
def at_work(seed=1, names=THREE, services=10):
    """The cluster of a start: the prepared one in a copy that has not used it, or one made now."""
    start = Start(seed, names, services)
    if not _is_copy:
        with quiet():
            cluster, history = start.make()
            yield cluster, history
            cluster.close()
        return
    if start not in prepared:
        raise UnpreparedError(start)
    cluster, history = prepared[start] or start.make()
    prepared[start] = None
    yield cluster, history


def in_a_copy(test):
    """Run a test in a copy of this process, which has prepared what it begins with.

    A cluster takes as long to prepare as most tests take.
    """
    with quiet():
        try:
            while start := forked(partial(_unprepared, test), limit=_LIMIT):
                prepared[start] = start.make()
                gc.collect()
                gc.freeze()
        except CopyFailedError as error:
            pytest.fail(str(error), pytrace=False)


def _unprepared(test):
    global _is_copy  # noqa: PLW0603 - of a process that only runs this test
    _is_copy = True
    try:
        test()
    except UnpreparedError as error:
        return error.args[0]
    return None


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


def slow_writes(cluster, seconds, of=None):
    draw = stream(1, "slow writes")

    def slow(method, _kind):
        is_write = method in ("POST", "PUT")
        return (seconds * draw.uniform(0.9, 1.1) if is_write else 0.0), 0.0

    for name in of or cluster.nodes:
        cluster.way(f"agent/{name}").slow = slow
