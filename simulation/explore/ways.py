# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What faults of the API server, and of the ways to it, do: what begins each; returns its end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simulation.api.way import Reach, Slowness
from simulation.chance import stream
from simulation.explore.effects import all_of, down
from simulation.explore.fault import Fault
from simulation.explore.troubles import Down, Troubles
from simulation.manifests import KINDS as OBJECTS
from simulation.time.timeline import Action

# Seconds: so long a server is slow that has come back, and all clients with it.
_SLOW_AFTER = 5.0
_LEASE_LIST = ("GET", OBJECTS["leases"])


def reach(how: Reach, troubles: Troubles, fault: Fault) -> Action:
    """Break the ways of nodes to the API."""
    return all_of([troubles.reach(f"agent/{name}", how) for name in fault.nodes])


def staggered(troubles: Troubles, fault: Fault) -> Action:
    """Begin an outage for each node up to 3 s later, and end it up to `value` seconds later."""
    chance = stream(troubles.cluster.seed, "staggered", str(fault.at))
    for name in fault.nodes:
        after = chance.uniform(0, 3)
        seconds = max(0.3, fault.seconds + chance.uniform(0, fault.value) - after)
        begin = partial(troubles.reach, f"agent/{name}", Reach.DROPPED)
        troubles.later(after, seconds, begin)
    return _nothing


def first_back(troubles: Troubles, fault: Fault) -> Action:
    """Let no node reach the API, and some again `value` seconds before the others."""
    for node in troubles.nodes:
        earlier = fault.value if node.name in fault.nodes else 0.0
        begin = partial(troubles.reach, f"agent/{node.name}", Reach.DROPPED)
        troubles.later(0, fault.seconds - earlier, begin)
    return _nothing


def flapping(troubles: Troubles, fault: Fault) -> Action:
    """Refuse all for some seconds, and let all pass for as many, again and again."""
    begin = partial(reach, Reach.REFUSED, troubles, fault)
    for number in range(int(fault.seconds / fault.value / 2)):
        troubles.later(2 * number * fault.value, fault.value, begin)
    return _nothing


def slow(slowness: Callable[[float], Slowness], troubles: Troubles, fault: Fault) -> Action:
    """Make requests of nodes slow, each by up to a tenth more or less."""
    chance = stream(troubles.cluster.seed, "slow", str(fault.at))

    def varied(method: str, kind: str) -> tuple[float, float]:
        before, after = slowness(fault.value)(method, kind)
        share = chance.uniform(0.9, 1.1)
        return before * share, after * share

    return all_of([troubles.slow(f"agent/{name}", varied) for name in fault.nodes])


def slow_return(troubles: Troubles, fault: Fault) -> Action:
    """Refuse nodes, and let lists come late by `value` seconds for a while when that is over."""
    late = partial(slow, lists_answer_late, troubles, fault)
    troubles.later(0, fault.seconds + _SLOW_AFTER, late)
    return reach(Reach.REFUSED, troubles, fault)


def writes_act_late(seconds: float) -> Slowness:
    """Let writes take effect late."""
    return lambda method, _kind: (seconds if method in ("POST", "PUT") else 0.0, 0.0)


def writes_answer_late(seconds: float) -> Slowness:
    """Let writes take effect at once, and their answers come late."""
    return lambda method, _kind: (0.0, seconds if method in ("POST", "PUT") else 0.0)


def lists_answer_late(seconds: float) -> Slowness:
    """Let lists of Leases be made at once, and come late."""
    return lambda method, kind: (0.0, seconds if (method, kind) == _LEASE_LIST else 0.0)


def lists_act_late(seconds: float) -> Slowness:
    """Let lists of Leases be made late."""
    return lambda method, kind: (seconds if (method, kind) == _LEASE_LIST else 0.0, 0.0)


def stall(kinds: tuple[str, ...], troubles: Troubles, fault: Fault) -> Action:
    """Let watches of these kinds stand still."""
    return all_of([troubles.stall(f"agent/{name}", kinds) for name in fault.nodes])


def silence(kinds: tuple[str, ...], troubles: Troubles, fault: Fault) -> Action:
    """Let watches of these kinds that are open be silent for good."""
    return all_of([troubles.silence(f"agent/{name}", kinds) for name in fault.nodes])


def refuse(status: int, share: float, troubles: Troubles, fault: Fault) -> Action:
    """Let the server refuse a share of all requests with this status."""
    chance = stream(troubles.cluster.seed, "refused", str(fault.at))

    def refuses(_method: str, _kind: str) -> int:
        return status if chance.random() < share else 0

    is_all = share == 1
    return all_of([troubles.refuse(f"agent/{n}", refuses, is_all=is_all) for n in fault.nodes])


def lag(troubles: Troubles, fault: Fault) -> Action:
    """Let watches bring everything `value` seconds later."""
    return all_of([troubles.lag(f"agent/{name}", fault.value) for name in fault.nodes])


def restore(troubles: Troubles, _fault: Fault) -> Action:
    """Take a backup of the API server; it is restored at the end.

    A Node that the backup does not have is registered again, as a restart of its kubelet does.
    """
    cluster, backup = troubles.cluster, troubles.cluster.api.backup()

    def end() -> None:
        registered = [n for n in troubles.nodes if cluster.find("nodes", "", n.name) is not None]
        cluster.api.restore(backup)
        for node in registered:
            if cluster.find("nodes", "", node.name) is None:
                cluster.register(node)

    return end


def control_plane(troubles: Troubles, fault: Fault) -> Action:
    """Let nodes lose their power, and with them the API server on which all depend."""
    users = [*troubles.users, *(f"allocator/{name}" for name in troubles.cluster.allocators)]
    ends = [troubles.reach(user, Reach.DROPPED) for user in users]
    return all_of([*ends, down(Down.OFF, troubles, fault)])


def replicas(troubles: Troubles, fault: Fault) -> Action:
    """Let one of several servers, each up to `value` seconds behind, answer each connection.

    All connections break when that begins, and when it ends.
    """
    chance = stream(troubles.cluster.seed, "replicas", str(fault.at))
    ends = [
        troubles.spread(f"agent/{name}", lambda: chance.uniform(0, fault.value))
        for name in fault.nodes
    ]
    return all_of(ends)


def forgetful(troubles: Troubles, fault: Fault) -> Action:
    """Refuse nodes; then the server ends, and the next one has forgotten all changes."""
    mend = reach(Reach.REFUSED, troubles, fault)

    def end() -> None:
        mend()
        troubles.cluster.api.compact()
        for name in troubles.users:
            troubles.cluster.way(name).reset()

    return end


def _nothing() -> None:
    """End what does not end."""
