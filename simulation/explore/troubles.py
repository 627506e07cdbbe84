# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A cluster and what is wrong with it now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial

from purelb.core.settings import LeaseTiming
from simulation.api.way import Delay, Reach, Refusals, Slowness, Way
from simulation.cluster import Cluster
from simulation.explore.able import STARTS, Able, runs
from simulation.explore.overlaps import Overlaps
from simulation.history import History
from simulation.member import KEYS, Node
from simulation.time.machine import Machine
from simulation.time.process import Process
from simulation.time.timeline import MICROSECONDS, Action

# Seconds. Of a pause with all its clocks a node learns by its next renewal, or its right ends
# before; what a machine that has slept still has ends by itself so long after that.
BELIEF, LIFETIME = LeaseTiming().renew_deadline, LeaseTiming().duration
# An address that a fence was to end goes so long after it was put, and this is looked at so often.
FENCED, _PUT_BACK = 41.0, 0.5
# A node that is paused for no longer than this has renewed before others take over.
_UNNOTICED_PAUSE = 2.0
# The worst of several is what counts.
_WORSE = (Reach.WHOLE, Reach.STOPPED, Reach.DROPPED, Reach.REFUSED)


class Down(IntEnum):
    """Why a node has no agent."""

    STOPPED = 1
    KILLED = 2
    OFF = 3


class Troubles(Overlaps):
    """What is wrong, by what it is wrong with.

    `moments`: when something changed. `able`: which nodes can serve.
    `unaware`: from when to when each node cannot act on the end of its right, as its machine was
    paused and cannot know it, or has slept and its agent does not run yet, or its filters are gone
    and no agent runs that puts them back. `blind`: nodes that could not read their kernels, so that
    their agents may have ended. `disturbed_at`: when a roll-out restarted an agent last, or one
    stopped or resumed at a request to its kernel. `noted` is called after each change.
    """

    def __init__(self, cluster: Cluster, history: History) -> None:
        super().__init__()
        self.cluster = cluster
        self.history = history
        self.able = Able(cluster)
        cluster.noted = self._note_agent
        self.moments = [self.able.now(is_unnoticed=False)]
        # In the Secret: what nodes read that join now.
        self.keys = KEYS
        self.unaware: dict[str, list[list[int]]] = defaultdict(list)
        self.noted: Action = _nothing
        self.disturbed_at = cluster.timeline.now
        self.blind: set[str] = set()
        self._unnoticed = 0
        # Machines whose clocks have stood since they stopped.
        self._stood: set[str] = set()
        # When each resumed last whose agent ran all the time, and is late only if it ends.
        self._resumed: dict[str, int] = {}
        # When each that is stopped now was stopped, and whether its agent ran.
        self._paused: dict[str, tuple[int, bool]] = {}
        self._usual: dict[str, Delay] = {}

    def later(self, after: float, seconds: float, begin: Callable[[], Action]) -> None:
        """Let something begin so much later, and end after so many seconds, unless that is 0."""

        def now() -> None:
            end = begin()
            self.note()
            if seconds:
                self.cluster.timeline.after(seconds, partial(over, end))

        def over(end: Action) -> None:
            end()
            self.note()

        self.cluster.timeline.after(after, now)

    def note_restart(self) -> None:
        """Note that a roll-out restarts an agent, or has ended."""
        self.disturbed_at = self.cluster.timeline.now

    def note_stop(self) -> None:
        """Note that a program has stopped at a request, which may be long after its fault's end."""
        self.disturbed_at = self.cluster.timeline.now
        self.note()

    def _note_agent(self) -> None:
        """Note that an agent has started or ended, and when one that started has had its time."""
        self.note()
        self.cluster.timeline.after(STARTS, self.note)

    def note(self) -> None:
        """Note that something has changed."""
        now = self.cluster.timeline.now
        for name, resumed in tuple(self._resumed.items()):
            if not runs(self.cluster.nodes[name]):
                del self._resumed[name]
                if now - resumed < LIFETIME * MICROSECONDS:
                    self.unaware[name].append([now, now + int(LIFETIME * MICROSECONDS)])
        self.moments.append(self.able.now(is_unnoticed=self._unnoticed > 0))
        self.noted()

    @property
    def users(self) -> tuple[str, ...]:
        """The agents of all nodes that have joined, as the API server knows them."""
        return tuple(f"agent/{name}" for name in self.cluster.nodes)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes that have joined."""
        return tuple(self.cluster.nodes.values())

    # Things that can be wrong

    def reach(self, user: str, reach: Reach) -> Action:
        """Break a program's way to the API."""
        way = self.cluster.way(user)

        def show(wrong: Sequence[Reach]) -> None:
            worst = max(wrong, key=_WORSE.index, default=Reach.WHOLE)
            if worst is not way.reach:
                way.set_reach(worst)

        return self.begin(("reach", user), reach, show)

    def slow(self, user: str, slowness: Slowness) -> Action:
        """Make a program's requests slow."""
        return self.begin(("slow", user), slowness, partial(_slow_down, self.cluster.way(user)))

    def stall(self, user: str, kinds: Sequence[str]) -> Action:
        """Let watches of these kinds stand still."""
        way = self.cluster.way(user)

        def show(wrong: Sequence[Sequence[str]]) -> None:
            still = [kind for each in wrong for kind in each]
            way.resume()
            way.stall(*still)
            self.able.stall(user, still)

        return self.begin(("stall", user), tuple(kinds), show)

    def silence(self, user: str, kinds: Sequence[str]) -> Action:
        """Let the watches of these kinds that are open bring nothing; the end of it ends nothing.

        Until then the program need not have noticed.
        """
        self.cluster.way(user).silence(*kinds)
        self._unnoticed += 1

        def end() -> None:
            self._unnoticed -= 1

        return end

    def freeze(self, process: Process | None) -> Action:
        """Let none of a program's code run; another container that replaces it is not frozen."""
        if process is None or process.is_dead:
            return _nothing

        def show(wrong: Sequence[bool]) -> None:
            if wrong and not process.is_frozen:
                process.freeze()
            elif not wrong:
                process.thaw()

        return self.begin(("freeze", str(id(process))), True, show)

    def pause_machine(self, machine: Machine) -> Action:
        """Stop a machine that is no node, with all its clocks."""

        def show(wrong: Sequence[bool]) -> None:
            if wrong and machine.runs:
                machine.pause()
            elif not wrong:
                machine.resume()

        return self.begin(("machine", machine.name), True, show)

    def pause(self, node: Node, *, is_asleep: bool) -> Action:
        """Stop a machine with all its clocks, or let it sleep; until nothing stops it any more.

        After a short time of that, an agent that runs cannot be too late for anything.
        """
        paused = self._paused.setdefault(node.name, (self.cluster.timeline.now, runs(node)))

        def show(wrong: Sequence[bool]) -> None:
            if not wrong:
                knows = node.name not in self._stood
                self._stood.discard(node.name)
                del self._paused[node.name]
                self.cluster.resume(node)
                now, (since, ran) = self.cluster.timeline.now, paused
                if ran and now - since <= _UNNOTICED_PAUSE * MICROSECONDS:
                    self._resumed[node.name] = now
                    return
                span = [now, now + int(LIFETIME * MICROSECONDS)]
                self.unaware[node.name].append(span)
                # One that starts leaves what an earlier one put until its first plan.
                if node.agent is not None and node.agent.has_run_for() > STARTS:
                    acts = partial(self._acts, node.agent, span)
                    self.cluster.timeline.after(0 if knows else BELIEF, acts)
            elif len(wrong) == 1 and wrong[0]:
                self.cluster.suspend(node)
            elif len(wrong) == 1:
                self._stood.add(node.name)
                self.cluster.pause(node)

        return self.begin(("machine", node.name), is_asleep, show)

    def _acts(self, agent: Process, span: list[int]) -> None:
        """End a time in which a node cannot act with the next pass of its agent, if it lives."""

        def end() -> None:
            span[1] = min(span[1], self.cluster.timeline.now)

        agent.after_pass(end)

    def unfence(self, node: Node) -> None:
        """Take the filters off a node's interfaces.

        An agent that runs puts them back at once. Else addresses answer until their lifetimes end.
        """
        fence, timeline = node.kernel.fence, self.cluster.timeline
        wanted = fence.guarded
        if not wanted:
            return
        fence.clear()
        span = [timeline.now, timeline.now]

        def look() -> None:
            is_open = not wanted <= fence.guarded
            span[1] = timeline.now
            if is_open and span[1] - span[0] < FENCED * MICROSECONDS:
                timeline.after(_PUT_BACK, look)

        self.unaware[node.name].append(span)
        timeline.after(_PUT_BACK, look)

    def blindfold(self, node: Node) -> Action:
        """Let the dumps of a node's kernel fail."""
        self.blind.add(node.name)

        def show(wrong: Sequence[bool]) -> None:
            node.kernel.is_unreadable = bool(wrong)

        return self.begin(("kernel", node.name), True, show)

    def starve(self, node: Node, seconds: float) -> Action:
        """Let each pass of an agent take so long."""
        agent = node.agent

        def show(most: float) -> None:
            if agent is not None:
                agent.pass_seconds = most

        return self.most(("processor", node.name, str(id(agent))), seconds, show)

    def occupy(self, node: Node, seconds: float) -> Action:
        """Let each request to a node's kernel take so long."""

        def show(most: float) -> None:
            node.kernel.busy = most

        return self.most(("kernel's time", node.name), seconds, show)

    def refuse(self, user: str, refusals: Refusals, *, is_all: bool) -> Action:
        """Let the server refuse requests of a program; `is_all`: it refuses all of them."""
        way = self.cluster.way(user)
        self.able.refused[user] += is_all

        def show(wrong: Sequence[Refusals]) -> None:
            each = tuple(wrong)
            way.refuses = lambda method, kind: next(
                filter(None, (r(method, kind) for r in each)), 0
            )

        end_one = self.begin(("refusals", user), refusals, show)

        def end() -> None:
            self.able.refused[user] -= is_all
            end_one()

        return end

    def lag(self, user: str, seconds: float) -> Action:
        """Let a program's watches bring everything so much later."""
        way = self.cluster.way(user)
        usual = self._usual.setdefault(user, way.event)

        def show(most: float) -> None:
            way.event = lambda: usual() + most

        return self.most(("lag", user), seconds, show)

    def spread(self, user: str, lag: Delay) -> Action:
        """Let each connection of a program go to another server, which is so much behind."""
        way = self.cluster.way(user)

        def show(wrong: Sequence[Delay]) -> None:
            way.lag = wrong[-1] if wrong else float
            way.reset()

        return self.begin(("servers", user), lag, show)

    def take_down(self, node: Node, why: Down) -> Action:
        """Leave a node without its agent; when all of that has ended, a new Pod starts."""
        if why is Down.OFF:
            self.cluster.power_off(node)
        elif why is Down.KILLED:
            node.kubelet.end_pod()
            self.cluster.kill_agent(node)
        else:
            self.cluster.stop_agent(node)

        def show(wrong: Sequence[Down]) -> None:
            if wrong:
                return
            # One that was to stop has had its time.
            self.cluster.kill_agent(node)
            if not node.eth0.is_up:
                self.cluster.power_on(node)
            self.cluster.start_agent(node)

        return self.begin(("down", node.name), why, show)

    def cut_pair(self, one: str, other: str) -> Action:
        """Let no question between two nodes arrive."""
        pair = frozenset({one, other})

        def show(wrong: Sequence[bool]) -> None:
            (self.cluster.network.cut.add if wrong else self.cluster.network.cut.discard)(pair)

        return self.begin(("pair", *sorted(pair)), True, show)

    def lose(self, sender: str, receiver: str, share: float) -> Action:
        """Lose a share of what one says to another, frames and questions."""
        paths = self.cluster.paths

        def show(most: float) -> None:
            for each in paths:
                each.lose(sender, receiver, most)

        return self.most(("lost", sender, receiver), share, show)

    def divide(self, names: Sequence[str]) -> Action:
        """Split the segment: these nodes are on one side, with all hosts but the first one."""
        hosts = [host.name for host in self.cluster.segment.hosts[1:]]

        def show(wrong: Sequence[Sequence[str]]) -> None:
            self.cluster.divide((), *([*each, *hosts] for each in wrong[-1:]))

        return self.begin(("sides",), tuple(names), show)

    def unplug(self, node: Node) -> Action:
        """Take a node's cable out."""

        def show(wrong: Sequence[bool]) -> None:
            node.eth0.has_carrier = not wrong
            node.kernel.add_link(node.eth0)

        return self.begin(("carrier", node.name), True, show)


def _nothing() -> None:
    """End what has not begun."""


def _slow_down(way: Way, wrong: Sequence[Slowness]) -> None:
    slownesses = tuple(wrong)

    def slow(method: str, kind: str) -> tuple[float, float]:
        found = [each(method, kind) for each in slownesses]
        return max((f[0] for f in found), default=0.0), max((f[1] for f in found), default=0.0)

    way.slow = slow
