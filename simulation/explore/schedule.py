# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Schedules: which cluster, which faults, when; drawn from a seed, or a part of one that was."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from simulation.chance import stream
from simulation.explore.fault import Fault
from simulation.explore.faults import KINDS, told

# Clusters at work from which schedules begin, each with phases and delays of its own.
CLUSTERS = 48
_SIZES = (3, 2, 3, 4, 3, 5)
_COUNTS = (1, 2, 2, 3, 3, 4)


@dataclass(frozen=True)
class Schedule:
    """Faults of a cluster. `kept`: which of those that the seed draws these are."""

    seed: int
    names: tuple[str, ...]
    faults: tuple[Fault, ...]
    kept: tuple[int, ...]

    @property
    def cluster(self) -> int:
        """The number of the cluster at work from which it begins."""
        return self.seed % CLUSTERS

    @property
    def end(self) -> float:
        """When the last fault has ended, in seconds."""
        return max((fault.at + fault.seconds for fault in self.faults), default=0.0)

    def __str__(self) -> str:
        """Return the schedule as a story."""
        return "\n".join((f"at work: {', '.join(self.names)}", *map(told, self.faults)))

    def without(self, number: int) -> Schedule:
        """Return the schedule without one of its faults."""
        return self.only(self.kept[:number] + self.kept[number + 1 :])

    def only(self, kept: Sequence[int]) -> Schedule:
        """Return the schedule with these of its seed's faults alone."""
        pairs = [p for p in zip(self.kept, self.faults, strict=True) if p[0] in kept]
        return replace(
            self, faults=tuple(fault for _n, fault in pairs), kept=tuple(n for n, _fault in pairs)
        )

    def of(self, names: Sequence[str]) -> Schedule:
        """Return the schedule in a smaller cluster; faults of all nodes hit those that are left."""

        def left(fault: Fault) -> Fault:
            is_new = KINDS[fault.kind].hits < 0
            nodes = fault.nodes if is_new else tuple(n for n in fault.nodes if n in names)
            return replace(fault, nodes=nodes)

        return replace(self, names=tuple(names), faults=tuple(map(left, self.faults)))


def draw(seed: int, kinds: Sequence[str] = tuple(KINDS), *, count: int = 0) -> Schedule:
    """Return the schedule of a seed; with a count it has so many faults."""
    chance = stream(seed, "schedule")
    size = _SIZES[seed % CLUSTERS % len(_SIZES)]
    names = tuple(f"n{number + 1}" for number in range(size))
    count = count or chance.choice(_COUNTS)
    # Faults that hit the same node, shortly after each other, find more.
    focus = chance.choice(names)
    gaps = (12 * chance.random() ** 2 for _fault in range(count))
    moments = list(accumulate(gaps, initial=chance.uniform(0.5, 6)))
    faults = tuple(
        _draw(stream(seed, "fault", str(number)), moments[number], names, focus, kinds, number)
        for number in range(count)
    )
    return Schedule(seed, names, faults, tuple(range(count)))


def _draw(
    chance: random.Random,
    at: float,
    names: tuple[str, ...],
    focus: str,
    kinds: Sequence[str],
    number: int,
) -> Fault:
    name = chance.choice(kinds)
    kind = KINDS[name]
    seconds = chance.choice(kind.seconds) * chance.uniform(0.7, 1.3) if kind.seconds else 0.0
    if kind.hits < 0:
        nodes: tuple[str, ...] = (f"new{number}",)
    elif kind.hits == 0:
        nodes = names
    else:
        first = focus if chance.random() < 0.6 else chance.choice(names)  # noqa: PLR2004 - a share
        others = [n for n in names if n != first]
        nodes = (first, *chance.sample(others, kind.hits - 1))
    return Fault(name, round(at, 3), round(seconds, 3), nodes, chance.choice(kind.values))


def smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Yield the schedules with one fault less, then those with one node less."""
    for number in range(len(schedule.faults)):
        yield schedule.without(number)
    named = {n for f in schedule.faults if KINDS[f.kind].hits for n in f.nodes}
    for name in schedule.names:
        if name not in named and len(schedule.names) > 1:
            yield schedule.of([n for n in schedule.names if n != name])


def shrunk(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """Return a schedule that fails, too, and of which no fault and no node can go."""
    for candidate in smaller(schedule):
        if fails(candidate):
            return shrunk(candidate, fails)
    return schedule
