# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Every schedule of a few faults: which begin in each tick, at whom, and how long they last."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from purelb.core.model import Network
from tests.support.rule.cluster import Cluster
from tests.support.rule.records import Fault

# How many ticks after the last fault the address must be on its winner, and nowhere else.
SETTLED_AFTER = 24
ALWAYS = 1000
# The fate of a node whose agent does not end by itself.
_OF_ONE = ("frozen", "cut", "slow", "stalled", "tainted")
_OF_ALL = ("all cut", "all slow", "some cut")
_OF_LINKS = ("mute", "apart", "late")
_STOP = ("restarted", "unpowered", "left")
KINDS = (*_OF_ONE, *_STOP, *_OF_ALL, *_OF_LINKS)
# A Lease that a program deletes. A node that starts before it is back cannot know of its node: that
# is a limit of the rule, so none starts.
WITH_DELETED = (*(kind for kind in KINDS if kind not in _STOP), "deleted")
# A Lease that says for a while that it counts for longer.
WITH_LONGER = (*KINDS, "longer")


@dataclass(frozen=True)
class Choice:
    """One fault that may begin."""

    kind: str
    nodes: tuple[str, ...]
    length: int

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(self.nodes)} for {self.length}"


@dataclass(frozen=True)
class Scope:
    """Which schedules are explored.

    `names` and `starts_at`: the nodes, and the tick in which the agent of each starts. `kinds` of
    faults, each of which lasts one of `lengths`. They begin in the ticks of `first`, and each
    other one at most `apart` ticks after the one before; there are at most `budget` of them.
    `always`: what is wrong from the first tick of `first` to the end. `subnets`: of those nodes
    that are not, or not only, in that of the address.
    """

    names: tuple[str, ...]
    starts_at: tuple[int, ...]
    kinds: tuple[str, ...] = KINDS
    lengths: tuple[int, ...] = (1, 4, 8)
    first: range = range(9, 12)
    apart: int = 10
    budget: int = 2
    always: tuple[Choice, ...] = ()
    subnets: Mapping[str, tuple[Network, ...]] = field(default_factory=dict)


class BrokenError(AssertionError):
    """A schedule on which the rule fails."""


@dataclass
class Explorer:
    """Runs every schedule of a scope; a state that two schedules lead to continues once."""

    scope: Scope
    schedules: int = 0
    ticks: int = 0
    _seen: set[int] = field(default_factory=set)

    def run(self) -> None:
        """Explore all; raises BrokenError with the first schedule that fails."""
        world = Cluster(self.scope.names, self.scope.starts_at, self.scope.subnets)
        choices = list(_choices(self.scope))
        while world.now < self.scope.first.start:
            world.tick()
        for choice in self.scope.always:
            _begin(world, choice)
        self._continue(world, choices, (), self.scope.first.stop)

    def _continue(
        self,
        world: Cluster,
        choices: list[Choice],
        story: tuple[tuple[int, Choice], ...],
        stop: int,
    ) -> None:
        """Run a world on, beginning each choice in each tick before `stop`."""
        end = max([stop, *(at + c.length for at, c in story)]) + SETTLED_AFTER
        try:
            while world.now < end:
                key = hash((len(story), stop if len(story) < self.scope.budget else 0, world.key()))
                if key in self._seen:
                    return
                self._seen.add(key)
                if len(story) < self.scope.budget and world.now < stop:
                    self._branch(world, choices, story)
                elif world.is_calm():
                    break
                world.tick()
                self.ticks += 1
            assert world.holders() == [world.winner()], f"{world.holders()}, not the winner"
        except BrokenError:
            raise
        except AssertionError as error:
            told = ", then ".join(f"at {at} {choice}" for at, choice in story)
            raise BrokenError(f"{error}: {told or 'no fault'}; {self.scope}") from error
        self.schedules += 1

    def _branch(
        self, world: Cluster, choices: list[Choice], story: tuple[tuple[int, Choice], ...]
    ) -> None:
        stop = world.now + self.scope.apart + 1
        for choice in choices:
            if not _is_possible(world, choice):
                continue
            twin = world.copy()
            _begin(twin, choice)
            self._continue(twin, choices, (*story, (world.now, choice)), stop)


def follow(scope: Scope, story: Iterable[tuple[int, Choice]]) -> Cluster:
    """Run one schedule: what begins in which tick; raises an AssertionError if the rule fails."""
    world, story = Cluster(scope.names, scope.starts_at, scope.subnets), list(story)
    end = max(at + choice.length for at, choice in story) + SETTLED_AFTER
    while world.now < end:
        for choice in (choice for at, choice in story if at == world.now):
            _begin(world, choice)
        world.tick()
    assert world.holders() == [world.winner()]
    return world


def _choices(scope: Scope) -> Iterator[Choice]:
    names = scope.names
    for kind in scope.kinds:
        nodes: Iterable[tuple[str, ...]]
        if kind in (*_OF_ONE, *_STOP, "longer"):
            nodes = [(name,) for name in names]
        elif kind == "some cut":
            sizes = range(2, len(names))
            nodes = [some for size in sizes for some in itertools.combinations(names, size)]
        elif kind in ("mute", "late"):
            nodes = itertools.permutations(names, 2)
        elif kind == "apart":
            nodes = itertools.combinations(names, 2)
        elif kind == "deleted":
            yield from (Choice(kind, (name,), 1) for name in names)
            continue
        else:
            nodes = [names]
        for which, length in itertools.product(nodes, scope.lengths):
            yield Choice(kind, which, length)


def _is_possible(world: Cluster, choice: Choice) -> bool:
    """Whether a fault makes sense now: what ends an agent needs one that runs."""
    if choice.kind in _STOP:
        return world.runs(choice.nodes[0])
    if choice.kind == "tainted":
        return choice.nodes[0] not in world.tainted
    return True


def _begin(world: Cluster, choice: Choice) -> None:
    first, until = choice.nodes[0], world.now + choice.length
    if choice.kind == "restarted":
        world.stop(first, until=until)
    elif choice.kind == "unpowered":
        world.change(first, holds=False)
        world.stop(first, until=until)
    elif choice.kind == "left":
        world.leave(first, until=until)
    elif choice.kind == "deleted":
        world.delete(first)
    elif choice.kind == "apart":
        one, other = choice.nodes
        world.faults += (
            Fault("mute", one, until, other=other), Fault("mute", other, until, other=one),
        )  # fmt: skip
    elif choice.kind in ("mute", "late"):
        world.faults += (Fault(choice.kind, first, until, other=choice.nodes[1]),)
    else:
        if choice.kind == "tainted":
            world.taint(first, is_tainted=True)
        kind = choice.kind.split()[-1]
        world.faults += tuple(Fault(kind, name, until) for name in choice.nodes)
