# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What each kind of fault does: what begins it, and returns how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from simulation import dhcp
from simulation.api.way import Reach, Slowness
from simulation.chance import stream
from simulation.cluster import Node
from simulation.crowd import Crowd
from simulation.explore.fault import Fault
from simulation.explore.troubles import Down, Troubles
from simulation.first_address import list_first
from simulation.manifests import KINDS as OBJECTS
from simulation.node.netlink import Stop
from simulation.time.timeline import Action

Names = Sequence[str]
Pairs = Callable[[Names, Names], list[tuple[str, str]]]
# Seconds: as long as a plan for many Services takes.
_BUSY = 0.02
_SCALE_UP_EVERY = 1.5
# Seconds: so long a server is slow that has come back, and all clients with it.
_SLOW_AFTER = 5.0
_LEASE_LIST = ("GET", OBJECTS["leases"])


def _nodes(troubles: Troubles, fault: Fault) -> tuple[Node, ...]:
    return tuple(troubles.cluster.nodes[name] for name in fault.nodes)


def _all(ends: list[Action]) -> Action:
    def end() -> None:
        for each in ends:
            each()

    return end


def reach(how: Reach, troubles: Troubles, fault: Fault) -> Action:
    """Break the ways of nodes to the API."""
    return _all([troubles.reach(f"agent/{name}", how) for name in fault.nodes])


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

    return _all([troubles.slow(f"agent/{name}", varied) for name in fault.nodes])


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
    return _all([troubles.stall(f"agent/{name}", kinds) for name in fault.nodes])


def silence(kinds: tuple[str, ...], troubles: Troubles, fault: Fault) -> Action:
    """Let watches of these kinds that are open be silent for good."""
    return _all([troubles.silence(f"agent/{name}", kinds) for name in fault.nodes])


def crowd(troubles: Troubles, fault: Fault) -> Action:
    """Let so many others as `value` ask nodes, which are busy for a moment."""
    nodes = _nodes(troubles, fault)
    for node in nodes:
        Crowd(troubles.cluster, int(fault.value)).ask(node)
    return _all([troubles.starve(node, _BUSY) for node in nodes])


def freeze(troubles: Troubles, fault: Fault) -> Action:
    """Let none of the agents' code run."""
    return _all([troubles.freeze(node) for node in _nodes(troubles, fault)])


def down(why: Down, troubles: Troubles, fault: Fault) -> Action:
    """Leave nodes without their agents."""
    return _all([troubles.take_down(node, why) for node in _nodes(troubles, fault)])


def lost(troubles: Troubles, fault: Fault) -> Action:
    """Let nodes lose their power for good."""
    down(Down.OFF, troubles, fault)
    return _nothing


def join(troubles: Troubles, fault: Fault) -> Action:
    """Let a new node join, with a wall clock that is `value` seconds off."""
    _join(troubles, fault.nodes[0], fault.value)
    return _nothing


def scale_up(troubles: Troubles, fault: Fault) -> Action:
    """Let so many new nodes as `value` join."""
    for number in range(int(fault.value)):
        name = f"{fault.nodes[0]}-{number + 1}"

        def begin(name: str = name) -> Action:
            _join(troubles, name)
            return _nothing

        troubles.later(_SCALE_UP_EVERY * number, 0, begin)
    return _nothing


def _join(troubles: Troubles, name: str, clock_ahead: float = 0.0) -> None:
    node = troubles.cluster.add_node(name)
    node.machine.wall.step(clock_ahead)
    node.keys = troubles.keys
    troubles.history.follow(node)
    troubles.cluster.start_agent(node)
    # Of the new node, too.
    troubles.cluster.run_kubelets()


def cut_pair(troubles: Troubles, fault: Fault) -> Action:
    """Let no question between two nodes arrive."""
    return troubles.cut_pair(*fault.nodes)


def lose(pairs: Pairs, troubles: Troubles, fault: Fault) -> Action:
    """Lose what some say to others: a share of `value`, or all."""
    names = [node.name for node in troubles.nodes] + [troubles.cluster.host.name]
    share = fault.value or 1.0
    return _all([troubles.lose(*pair, share) for pair in pairs(fault.nodes, names)])


def one_way(hit: Names, _names: Names) -> list[tuple[str, str]]:
    """Return the way from the first node to the second."""
    return [(hit[0], hit[1])]


def both_ways(hit: Names, _names: Names) -> list[tuple[str, str]]:
    """Return the ways between two nodes."""
    return [(hit[0], hit[1]), (hit[1], hit[0])]


def from_all(hit: Names, names: Names) -> list[tuple[str, str]]:
    """Return both ways between those that are hit and all others."""
    away = [(one, other) for one in hit for other in names if other not in hit]
    return away + [(other, one) for one, other in away]


def everywhere(_hit: Names, names: Names) -> list[tuple[str, str]]:
    """Return all ways."""
    return [(one, other) for one in names for other in names if one != other]


def unplug(troubles: Troubles, fault: Fault) -> Action:
    """Take cables out."""
    return _all([troubles.unplug(node) for node in _nodes(troubles, fault)])


def readdress(troubles: Troubles, fault: Fault) -> Action:
    """Give nodes other addresses, for `value` seconds none of their own."""
    for node in _nodes(troubles, fault):
        dhcp.readdress(troubles.cluster, node, gap=fault.value)
    return _nothing


def mistake(troubles: Troubles, fault: Fault) -> Action:
    """Let the kubelets list the first addresses of their kernels, also those of Services."""
    for node in _nodes(troubles, fault):
        list_first(troubles.cluster, node)
    return _nothing


def late_answer(troubles: Troubles, fault: Fault) -> Action:
    """Let the next answer of the kernel come too late."""
    for node in _nodes(troubles, fault):
        node.kernel.late_answers += 1
    return _nothing


def unreadable(troubles: Troubles, fault: Fault) -> Action:
    """Let the kernels' dumps fail."""
    return _all([troubles.blindfold(node) for node in _nodes(troubles, fault)])


def wall(troubles: Troubles, fault: Fault) -> Action:
    """Step wall clocks by `value` seconds."""
    for node in _nodes(troubles, fault):
        node.machine.wall.step(fault.value)
    return _nothing


def pause(troubles: Troubles, fault: Fault) -> Action:
    """Pause machines with all their clocks."""
    return _all([troubles.pause(node, is_asleep=False) for node in _nodes(troubles, fault)])


def suspend(troubles: Troubles, fault: Fault) -> Action:
    """Let machines sleep; what the API sends them comes when TCP repeats it, after the fault."""
    nodes = _nodes(troubles, fault)
    ends = [troubles.pause(node, is_asleep=True) for node in nodes]
    ends += [troubles.reach(f"agent/{node.name}", Reach.DROPPED) for node in nodes]
    return _all(ends)


def rate(troubles: Troubles, fault: Fault) -> Action:
    """Let the clocks of machines go `value` ppm faster from now on."""
    for node in _nodes(troubles, fault):
        node.machine.set_rate(1 + fault.value / 1e6)
    return _nothing


def starve(troubles: Troubles, fault: Fault) -> Action:
    """Let each pass of the agents take `value` seconds."""
    return _all([troubles.starve(node, fault.value) for node in _nodes(troubles, fault)])


def stop_inside(kind: int, troubles: Troubles, fault: Fault) -> Action:
    """Stop programs while they send requests of this kind to their kernels."""
    chance = stream(troubles.cluster.seed, "stopped inside", str(fault.at))
    for node in _nodes(troubles, fault):
        node.kernel.stop = Stop(chance.randint(1, 4), kind, fault.seconds, troubles.note)
    return _nothing


def torn_dump(troubles: Troubles, fault: Fault) -> Action:
    """Let the next dump of addresses lack one."""
    for node in _nodes(troubles, fault):
        node.kernel.interrupted_dumps += 1
    return _nothing


def lost_news(troubles: Troubles, fault: Fault) -> Action:
    """Let the next news of the kernels be lost."""
    for node in _nodes(troubles, fault):
        node.kernel.lost_news += int(fault.value)
    return _nothing


def refuse(status: int, share: float, troubles: Troubles, fault: Fault) -> Action:
    """Let the server refuse a share of all requests with this status."""
    chance = stream(troubles.cluster.seed, "refused", str(fault.at))

    def refuses(_method: str, _kind: str) -> int:
        return status if chance.random() < share else 0

    is_all = share == 1
    return _all([troubles.refuse(f"agent/{n}", refuses, is_all=is_all) for n in fault.nodes])


def lag(troubles: Troubles, fault: Fault) -> Action:
    """Let watches bring everything `value` seconds later."""
    return _all([troubles.lag(f"agent/{name}", fault.value) for name in fault.nodes])


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


def delete_node(troubles: Troubles, fault: Fault) -> Action:
    """Delete Nodes; they are created again at the end."""
    cluster, nodes = troubles.cluster, _nodes(troubles, fault)
    for node in nodes:
        if cluster.find("nodes", "", node.name) is not None:
            cluster.drop("nodes", "", node.name)

    def end() -> None:
        for node in nodes:
            cluster.register(node)

    return end


def crash(troubles: Troubles, fault: Fault) -> Action:
    """Kill containers, which their kubelets start again."""
    for node in _nodes(troubles, fault):
        troubles.cluster.kill_agent(node)
    return _nothing


def _nothing() -> None:
    """End what does not end."""
