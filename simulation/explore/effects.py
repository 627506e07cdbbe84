# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What faults of nodes and between them do: what begins each, and returns how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from purelb.core.node.rtnetlink import RTM_GETADDR
from simulation import dhcp
from simulation.api.way import Reach
from simulation.chance import stream
from simulation.crowd import Crowd
from simulation.explore.fault import Fault
from simulation.explore.troubles import Down, Troubles
from simulation.first_address import list_first
from simulation.member import Node
from simulation.node.hosts import Host
from simulation.node.netlink import Stop
from simulation.time.timeline import Action

Names = Sequence[str]
Pairs = Callable[[Names, Names], list[tuple[str, str]]]
# Seconds: as long as a plan for many Services takes.
_BUSY = 0.02
_SCALE_UP_EVERY = 1.5


def _nodes(troubles: Troubles, fault: Fault) -> tuple[Node, ...]:
    return tuple(troubles.cluster.nodes[name] for name in fault.nodes)


def all_of(ends: list[Action]) -> Action:
    """Return what ends all of this."""

    def end() -> None:
        for each in ends:
            each()

    return end


def crowd(troubles: Troubles, fault: Fault) -> Action:
    """Let so many others as `value` ask nodes, which are busy for a moment."""
    nodes = _nodes(troubles, fault)
    for node in nodes:
        Crowd(troubles.cluster, int(fault.value)).ask(node)
    return all_of([troubles.starve(node, _BUSY) for node in nodes])


def freeze(troubles: Troubles, fault: Fault) -> Action:
    """Let none of the agents' code run."""
    return all_of([troubles.freeze(node.agent) for node in _nodes(troubles, fault)])


def down(why: Down, troubles: Troubles, fault: Fault) -> Action:
    """Leave nodes without their agents."""
    return all_of([troubles.take_down(node, why) for node in _nodes(troubles, fault)])


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
    hosts = [host.name for host in troubles.cluster.hosts]
    names = [node.name for node in troubles.nodes] + hosts
    share = fault.value or 1.0
    return all_of([troubles.lose(*pair, share) for pair in pairs(fault.nodes, names)])


def split(troubles: Troubles, fault: Fault) -> Action:
    """Split the segment, while all have a carrier: some nodes are on a side with another host."""
    cluster = troubles.cluster
    if len(cluster.segment.hosts) == 1:
        host = Host("client of the other side")
        cluster.segment.hosts.append(host)
        troubles.history.follow_host(host)
        for address in cluster.addresses():
            cluster.segment.ask(host, address)
    return troubles.divide(fault.nodes)


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
    return all_of([troubles.unplug(node) for node in _nodes(troubles, fault)])


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
    return all_of([troubles.blindfold(node) for node in _nodes(troubles, fault)])


def wall(troubles: Troubles, fault: Fault) -> Action:
    """Step wall clocks by `value` seconds."""
    for node in _nodes(troubles, fault):
        node.machine.wall.step(fault.value)
    return _nothing


def pause(troubles: Troubles, fault: Fault) -> Action:
    """Pause machines with all their clocks."""
    return all_of([troubles.pause(node, is_asleep=False) for node in _nodes(troubles, fault)])


def suspend(troubles: Troubles, fault: Fault) -> Action:
    """Let machines sleep; what the API sends them comes when TCP repeats it, after the fault."""
    nodes = _nodes(troubles, fault)
    ends = [troubles.pause(node, is_asleep=True) for node in nodes]
    ends += [troubles.reach(f"agent/{node.name}", Reach.DROPPED) for node in nodes]
    return all_of(ends)


def rate(troubles: Troubles, fault: Fault) -> Action:
    """Let the clocks of machines go `value` ppm faster from now on."""
    for node in _nodes(troubles, fault):
        node.machine.set_rate(1 + fault.value / 1e6)
    return _nothing


def starve(troubles: Troubles, fault: Fault) -> Action:
    """Let each pass of the agents take `value` seconds."""
    return all_of([troubles.starve(node, fault.value) for node in _nodes(troubles, fault)])


def stop_inside(kind: int, troubles: Troubles, fault: Fault) -> Action:
    """Stop programs while they send requests of this kind to their kernels.

    They read their addresses seldom, so something happens to an interface then.
    """
    chance = stream(troubles.cluster.seed, "stopped inside", str(fault.at))
    for node in _nodes(troubles, fault):
        requests = 1 if kind == RTM_GETADDR else chance.randint(1, 4)
        node.kernel.stop = Stop(requests, kind, fault.seconds, troubles.note_stop)
        if kind == RTM_GETADDR:
            node.kernel.add_link(node.eth0)
    return _nothing


def unfence(troubles: Troubles, fault: Fault) -> Action:
    """Take all filters off the interfaces, as a network manager does that begins from nothing."""
    for node in _nodes(troubles, fault):
        troubles.unfence(node)
    return _nothing


def busy(troubles: Troubles, fault: Fault) -> Action:
    """Let the kernels take `value` seconds for each request."""
    return all_of([troubles.occupy(node, fault.value) for node in _nodes(troubles, fault)])


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
