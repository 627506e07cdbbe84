# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The faults that a schedule is made of: what each does, and how it is told.

To add one: write what begins it and returns how it ends, and add a row to KINDS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from purelb.core.names import DRAINING_TAINTS
from purelb.core.node.rtnetlink import RTM_GETADDR, RTM_NEWADDR
from simulation.api.way import Reach, Slowness
from simulation.chance import stream
from simulation.cluster import Node
from simulation.explore.troubles import Down, Troubles
from simulation.manifests import KINDS as OBJECTS
from simulation.node.netlink import Stop
from simulation.time.timeline import Action


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a schedule.

    `at`, `seconds`: when it begins, after the schedule's begin, and how long it lasts; 0 if nothing
    ends it. `nodes`: whom it hits. `value`: what it has else, by its kind.
    """

    kind: str
    at: float
    seconds: float
    nodes: tuple[str, ...]
    value: float = 0.0

    def __str__(self) -> str:
        """Return the fault as a sentence."""
        lasts = f" for {self.seconds:.2f} s" if self.seconds else ""
        kind = KINDS[self.kind]
        text = kind.story.format(nodes=" and ".join(self.nodes), value=self.value)
        return f"at {self.at:6.2f} s{lasts}: {text}"


Begin = Callable[[Troubles, Fault], Action]


_LONG = (8.0, 30.0, 60.0)
_STOPS = (3.0, 8.0, 12.0, 30.0)


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    `story` tells it, with the nodes and the value. `hits`: how many nodes are drawn; of 0 it hits
    all, of -1 it names a new one. `values` and `seconds`: of which one is drawn, for about how long
    it lasts; without any, nothing ends it.
    """

    story: str
    begin: Begin
    hits: int = 1
    values: tuple[float, ...] = (0.0,)
    seconds: tuple[float, ...] = (0.3, 1.5, 4.0, 8.0, 15.0, 30.0)


def _nodes(troubles: Troubles, fault: Fault) -> tuple[Node, ...]:
    return tuple(troubles.cluster.nodes[name] for name in fault.nodes)


def _all(ends: list[Action]) -> Action:
    def end() -> None:
        for each in ends:
            each()

    return end


def _reach(reach: Reach, troubles: Troubles, fault: Fault) -> Action:
    return _all([troubles.reach(f"agent/{name}", reach) for name in fault.nodes])


def _staggered(troubles: Troubles, fault: Fault) -> Action:
    """Begin an outage for each node up to three seconds later, and end it so."""
    chance = stream(troubles.cluster.seed, "staggered", str(fault.at))
    for name in fault.nodes:
        after = chance.uniform(0, 3)
        seconds = max(0.3, fault.seconds + chance.uniform(0, 3) - after)
        begin = partial(troubles.reach, f"agent/{name}", Reach.DROPPED)
        troubles.later(after, seconds, begin)
    return _nothing


def _flapping(troubles: Troubles, fault: Fault) -> Action:
    """Refuse all for some seconds, and let all pass for as many, again and again."""
    begin = partial(_reach, Reach.REFUSED, troubles, fault)
    for number in range(int(fault.seconds / fault.value / 2)):
        troubles.later(2 * number * fault.value, fault.value, begin)
    return _nothing


def _slow(slowness: Callable[[float], Slowness], troubles: Troubles, fault: Fault) -> Action:
    chance = stream(troubles.cluster.seed, "slow", str(fault.at))

    def slow(method: str, kind: str) -> tuple[float, float]:
        before, after = slowness(fault.value)(method, kind)
        share = chance.uniform(0.9, 1.1)
        return before * share, after * share

    return _all([troubles.slow(f"agent/{name}", slow) for name in fault.nodes])


def _writes_act_late(seconds: float) -> Slowness:
    return lambda method, _kind: (seconds if method in ("POST", "PUT") else 0.0, 0.0)


def _writes_answer_late(seconds: float) -> Slowness:
    return lambda method, _kind: (0.0, seconds if method in ("POST", "PUT") else 0.0)


def _lists_answer_late(seconds: float) -> Slowness:
    return lambda method, kind: (0.0, seconds if (method, kind) == _LEASE_LIST else 0.0)


def _lists_act_late(seconds: float) -> Slowness:
    return lambda method, kind: (seconds if (method, kind) == _LEASE_LIST else 0.0, 0.0)


_LEASE_LIST = ("GET", OBJECTS["leases"])


def _stall(kinds: tuple[str, ...], troubles: Troubles, fault: Fault) -> Action:
    return _all([troubles.stall(f"agent/{name}", kinds) for name in fault.nodes])


def _freeze(troubles: Troubles, fault: Fault) -> Action:
    return _all([troubles.freeze(node) for node in _nodes(troubles, fault)])


def _down(why: Down, troubles: Troubles, fault: Fault) -> Action:
    return _all([troubles.take_down(node, why) for node in _nodes(troubles, fault)])


def _lost(troubles: Troubles, fault: Fault) -> Action:
    _down(Down.OFF, troubles, fault)
    return _nothing


def _join(troubles: Troubles, fault: Fault) -> Action:
    node = troubles.cluster.add_node(fault.nodes[0])
    node.machine.wall.step(fault.value)
    troubles.history.follow(node)
    troubles.cluster.start_agent(node)
    # Of the new node, too.
    troubles.cluster.run_kubelets()
    return _nothing


def _cut_pair(troubles: Troubles, fault: Fault) -> Action:
    return troubles.cut_pair(*fault.nodes)


def _unplug(troubles: Troubles, fault: Fault) -> Action:
    return _all([troubles.unplug(node) for node in _nodes(troubles, fault)])


def _taint(troubles: Troubles, fault: Fault) -> Action:
    return _all([troubles.taint(node, DRAINING_TAINTS[0]) for node in _nodes(troubles, fault)])


def _late_answer(troubles: Troubles, fault: Fault) -> Action:
    for node in _nodes(troubles, fault):
        node.kernel.late_answers += 1
    return _nothing


def _unreadable(troubles: Troubles, fault: Fault) -> Action:
    nodes = _nodes(troubles, fault)
    for node in nodes:
        node.kernel.is_unreadable = True

    def end() -> None:
        for node in nodes:
            node.kernel.is_unreadable = False

    return end


def _wall(troubles: Troubles, fault: Fault) -> Action:
    for node in _nodes(troubles, fault):
        node.machine.wall.step(fault.value)
    return _nothing


def _pause(troubles: Troubles, fault: Fault) -> Action:
    return _all([troubles.pause(node, is_asleep=False) for node in _nodes(troubles, fault)])


def _suspend(troubles: Troubles, fault: Fault) -> Action:
    """Let machines sleep; what the API sends them comes when TCP repeats it, after the fault."""
    nodes = _nodes(troubles, fault)
    ends = [troubles.pause(node, is_asleep=True) for node in nodes]
    ends += [troubles.reach(f"agent/{node.name}", Reach.DROPPED) for node in nodes]
    return _all(ends)


def _rate(troubles: Troubles, fault: Fault) -> Action:
    for node in _nodes(troubles, fault):
        node.machine.set_rate(1 + fault.value / 1e6)
    return _nothing


def _starve(troubles: Troubles, fault: Fault) -> Action:
    return _all([troubles.starve(node, fault.value) for node in _nodes(troubles, fault)])


def _stop_inside(kind: int, troubles: Troubles, fault: Fault) -> Action:
    chance = stream(troubles.cluster.seed, "stopped inside", str(fault.at))
    for node in _nodes(troubles, fault):
        node.kernel.stop = Stop(chance.randint(1, 4), kind, fault.seconds)
    return _nothing


def _torn_dump(troubles: Troubles, fault: Fault) -> Action:
    for node in _nodes(troubles, fault):
        node.kernel.interrupted_dumps += 1
    return _nothing


def _lost_news(troubles: Troubles, fault: Fault) -> Action:
    for node in _nodes(troubles, fault):
        node.kernel.lost_news += int(fault.value)
    return _nothing


def _refuse(status: int, share: float, troubles: Troubles, fault: Fault) -> Action:
    chance = stream(troubles.cluster.seed, "refused", str(fault.at))

    def refuses(_method: str, _kind: str) -> int:
        return status if chance.random() < share else 0

    return _all([troubles.refuse(f"agent/{name}", refuses) for name in fault.nodes])


def _lag(troubles: Troubles, fault: Fault) -> Action:
    return _all([troubles.lag(f"agent/{name}", fault.value) for name in fault.nodes])


def _restore(troubles: Troubles, _fault: Fault) -> Action:
    return partial(troubles.cluster.api.restore, troubles.cluster.api.backup())


def _delete_node(troubles: Troubles, fault: Fault) -> Action:
    cluster, nodes = troubles.cluster, _nodes(troubles, fault)
    for node in nodes:
        if cluster.find("nodes", "", node.name) is not None:
            cluster.drop("nodes", "", node.name)

    def end() -> None:
        for node in nodes:
            cluster.register(node)

    return end


def _crash(troubles: Troubles, fault: Fault) -> Action:
    for node in _nodes(troubles, fault):
        troubles.cluster.kill_agent(node)
    return _nothing


def _new_service(troubles: Troubles, fault: Fault) -> Action:
    name = f"at-{fault.at:.3f}"
    troubles.cluster.add_service(name)
    return partial(troubles.cluster.drop, "services", "default", name)


def _nothing() -> None:
    """End what does not end."""


_SLOW = (0.3, 0.6, 0.8, 1.0, 1.3, 1.7)
KINDS: Mapping[str, Kind] = {
    "refused": Kind("the API refuses {nodes}", partial(_reach, Reach.REFUSED)),
    "dropped": Kind("{nodes} does not reach the API", partial(_reach, Reach.DROPPED)),
    "stopped": Kind("the API server of {nodes} is stopped", partial(_reach, Reach.STOPPED)),
    "outage": Kind("the API is down for {nodes}", partial(_reach, Reach.REFUSED), hits=0),
    "silence": Kind("{nodes} do not reach the API", partial(_reach, Reach.DROPPED), hits=0),
    "two-dropped": Kind("{nodes} do not reach the API", partial(_reach, Reach.DROPPED), hits=2),
    "staggered": Kind("one after the other, {nodes} lose the API", _staggered, hits=0),
    "flapping": Kind(
        "the API refuses {nodes} for {value:g} s, every {value:g} s",
        _flapping,
        0,
        (2.0, 5.0),
        _LONG,
    ),
    "slow-writes": Kind(
        "writes of {nodes} take {value:g} s",
        partial(_slow, _writes_act_late),
        0,
        _SLOW,
        _LONG,
    ),
    "slow-answers": Kind(
        "the answers to writes of {nodes} take {value:g} s",
        partial(_slow, _writes_answer_late),
        0,
        _SLOW,
        _LONG,
    ),
    "slow-lists": Kind(
        "lists of Leases for {nodes} take {value:g} s",
        partial(_slow, _lists_act_late),
        1,
        (1.5, 2.5, 4.0, 8.0),
    ),
    "old-lists": Kind(
        "lists of Leases are {value:g} s old when {nodes} gets them",
        partial(_slow, _lists_answer_late),
        1,
        (0.5, 1.5, 1.9),
    ),
    "stall-all": Kind(
        "the watches of {nodes} stand still", partial(_stall, tuple(OBJECTS.values()))
    ),
    "stall-leases": Kind(
        "the watch of Leases of {nodes} stands still", partial(_stall, (OBJECTS["leases"],))
    ),
    "stall-nodes": Kind(
        "the watch of Nodes of {nodes} stands still", partial(_stall, (OBJECTS["nodes"],))
    ),
    "stall-services": Kind(
        "the watch of Services of {nodes} stands still", partial(_stall, (OBJECTS["services"],))
    ),
    "frozen": Kind("the agent of {nodes} is frozen", _freeze),
    "killed": Kind("the agent of {nodes} is killed", partial(_down, Down.KILLED)),
    "leaves": Kind("the agent of {nodes} leaves", partial(_down, Down.STOPPED)),
    "off": Kind("{nodes} has no power", partial(_down, Down.OFF)),
    "lost": Kind("{nodes} is lost", _lost, seconds=()),
    "joins": Kind("{nodes} joins", _join, -1, seconds=()),
    "joins-astray": Kind(
        "{nodes} joins, its wall clock {value:+g} s off", _join, -1, (310, -310), seconds=()
    ),
    "pair": Kind("{nodes} do not hear each other's questions", _cut_pair, hits=2),
    "unplugged": Kind("the cable of {nodes} is out", _unplug),
    "taint": Kind("{nodes} has a draining taint", _taint),
    "late-answer": Kind("an answer of the kernel of {nodes} is 2 s late", _late_answer, seconds=()),
    "unreadable": Kind("the kernel of {nodes} cannot be read", _unreadable),
    "wall": Kind(
        "the wall clock of {nodes} steps by {value:+g} s", _wall, 1, (-3600, 310, 3600), seconds=()
    ),
    "paused": Kind("{nodes} is paused with all its clocks", _pause),
    "suspended": Kind("{nodes} is suspended", _suspend),
    "rate": Kind(
        "the clocks of {nodes} go {value:+g} ppm too fast", _rate, 1, (-500, 200, 500), ()
    ),
    "starved": Kind("each step of {nodes} takes {value:g} s", _starve, 1, (0.05, 0.2)),
    "stopped-adding": Kind(
        "{nodes} is stopped while it adds addresses",
        partial(_stop_inside, RTM_NEWADDR),
        seconds=_STOPS,
    ),
    "stopped-reading": Kind(
        "{nodes} is stopped after it has read its addresses",
        partial(_stop_inside, RTM_GETADDR),
        seconds=_STOPS,
    ),
    "torn-dump": Kind("the next dump of {nodes} lacks an address", _torn_dump, seconds=()),
    "lost-news": Kind("{nodes} loses news of its kernel", _lost_news, 1, (1, 10), ()),
    "errors": Kind("half of all requests of {nodes} fail", partial(_refuse, 500, 0.5), 0),
    "unauthorized": Kind("the token of {nodes} has expired", partial(_refuse, 401, 1.0)),
    "too-many": Kind("the API has no time for {nodes}", partial(_refuse, 429, 1.0), 0),
    "lagging": Kind("the watches of {nodes} lag by {value:g} s", _lag, 1, (1, 3, 5)),
    "restored": Kind("then the API server has its backup of this moment again", _restore, 0),
    "node-deleted": Kind("there is no Node {nodes}", _delete_node),
    "crashed": Kind("the container of {nodes} is killed", _crash, seconds=()),
    "service": Kind("there is one Service more", _new_service, hits=0),
}
