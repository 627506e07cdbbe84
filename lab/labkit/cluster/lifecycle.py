# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The sequence of steps of `lab up`, `down` and `status`.

`up` leaves a complete lab or none: if it is interrupted, it takes down what it has started. If a
step fails, it tries once more. What a killed `up` leaves is taken down by the next `up` or `down`.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from labkit import topology
from labkit.api import Api
from labkit.cluster import cables, down, preflight, remnants, state
from labkit.cluster.up import bring_up, ready_nodes
from labkit.errors import LabError, Problem
from labkit.host.places import Places
from labkit.host.processes import MARK
from labkit.host.progress import Stopwatch, retry
from labkit.topology import Topology

Handler = Callable[[int, FrameType | None], None] | signal.Handlers


class Interrupted(LabError):  # noqa: N818 - not an error
    """A signal interrupted the command."""

    exit_code = 130


def up(
    at: Places, *, nodes: int, placements: Sequence[str] = (), variants: Sequence[str] = ()
) -> None:
    """Start a lab, unless one with the same topology is up."""
    wanted = topology.plan(number=at.number, nodes=nodes, placements=placements, variants=variants)
    with state.locked(at.lock, "up"):
        if _is_up(at, wanted):
            print(f"a lab with these {nodes} nodes is up already: {at.kubeconfig}")
            return
        watch = Stopwatch()
        if down.take_down(at):
            watch.stage("took down what an earlier run left")
        remnants.remove_dead(at)
        preflight.check_up(at, wanted)
        # `start` takes down what it started when it fails.
        retry(lambda: start(at, wanted, watch=watch), pauses=[0])
    print(f"up in {watch.seconds:.1f} s; export KUBECONFIG={at.kubeconfig}")


def _is_up(at: Places, wanted: Topology) -> bool:
    if not state.is_ready(at):
        return False
    topology = state.load_topology(at)
    if topology is None or topology.planned != wanted:
        raise Problem("a lab with another topology is up: take it down first with 'lab down'")
    if cables.restore(at):
        print("removed the interfaces that 'lab connect' had added")
    return True


def start(at: Places, wanted: Topology, *, watch: Stopwatch) -> None:
    """Bring a lab up; take it down again when that fails or is interrupted."""
    # Short-lived commands inherit the mark too: one may outlive an `up` that was killed.
    os.environ[MARK] = str(at.run)
    try:
        with _interruptible():
            bring_up(at, wanted, watch=watch)
    except BaseException:
        with _uninterruptible():
            watch.stage("taking down what was started")
            down.take_down(at)
        raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into an exception."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(f"interrupted by {signal.Signals(number).name}")

    with _handled(stop):
        yield


@contextmanager
def _uninterruptible() -> Iterator[None]:
    """Ignore signals while the clean-up runs."""
    with _handled(signal.SIG_IGN):
        yield


@contextmanager
def _handled(handler: Handler) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {n: signal.signal(n, handler) for n in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def take_down(at: Places) -> None:
    """End the lab in any state."""
    with state.locked(at.lock, "down"):
        watch = Stopwatch()
        was_up = down.take_down(at)
        remnants.remove_dead(at)
    print(f"down in {watch.seconds:.1f} s" if was_up else "no lab is up; nothing to do")


def _print_nodes(api: Api, plan: Topology) -> bool:
    """Print the state of each node by the API server; return whether all are Ready."""
    if not api.is_ready():
        print("the API server does not answer, or is not ready")
        return False
    ready = ready_nodes(api)
    for node in plan.nodes:
        print(f"{node.name:8} {'Ready' if node.name in ready else 'NOT READY'}")
    return ready >= {n.name for n in plan.nodes}


def status(at: Places) -> bool:
    """Print hosts, daemons and nodes; return whether all run and are Ready."""
    plan = state.load_topology(at)
    if plan is None:
        print("no lab is up: start one with 'lab up'")
        return False
    for host in plan.hosts:
        cables = "  ".join(f"{i.name}@{i.lan} {i.v4} {i.v6}" for i in host.interfaces)
        print(f"{host.name:8} {host.netns:14} {cables}")
    healthy = True
    for daemon in state.load_daemons(at).values():
        alive = daemon.process.is_alive
        healthy &= alive
        print(f"{daemon.key:34} {daemon.process.pid:7} {'runs' if alive else 'DEAD'}")
    done = (at.run / "ready").exists()
    if done:
        healthy &= _print_nodes(Api(at.run / "pki", plan.api_v4), plan)
    print(f"kubeconfig: {at.kubeconfig}" if done else "'lab up' has not finished")
    return healthy and done
