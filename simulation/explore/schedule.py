# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Schedules: which cluster, which faults, when; drawn from a seed, or a part of one that was."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from purelb.core.settings import LeaseTiming
from simulation.chance import stream
from simulation.explore.families import FAMILIES
from simulation.explore.fault import ALL_BUT_ONE, HALF, NEW, Fault
from simulation.explore.faults import KINDS, told
from simulation.explore.workload import CLUSTERS, size_of

_COUNTS = (1, 2, 2, 3, 3, 4)
# Of the faults of one node, how many hit the one that most faults hit; of all faults, how many
# begin as another one ends; and of all schedules, how many draw from all kinds.
_FOCUS, _ENDS, _ALL = 0.85, 0.5, 0.15


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
            is_new = KINDS[fault.kind].hits == NEW
            nodes = fault.nodes if is_new else tuple(n for n in fault.nodes if n in names)
            return replace(fault, nodes=nodes)

        return replace(self, names=tuple(names), faults=tuple(map(left, self.faults)))


def draw(seed: int, kinds: Sequence[str] = (), *, count: int = 0) -> Schedule:
    """Return the schedule of a seed, of these kinds if any; with a count it has so many faults.

    Kinds that hit more nodes than its cluster has are not drawn.
    """
    chance = stream(seed, "schedule")
    names = tuple(f"n{number + 1}" for number in range(size_of(seed % CLUSTERS)))
    count = count or chance.choice(_COUNTS)
    of_size = [kind for kind in kinds or KINDS if KINDS[kind].least <= len(names)]
    later = [kind for kind in of_size if KINDS[kind].is_later and not kinds]
    fitting = [kind for kind in of_size if kind not in later]
    if not kinds:
        weights, families = zip(*FAMILIES.values(), strict=True)
        (family,) = chance.choices(families, weights)
        of_all = chance.random() < _ALL
        fitting = [kind for kind in fitting if of_all or kind in family] or fitting
        later = [kind for kind in later if of_all or kind in family]
    count = count if fitting else 0
    # Each kind once, as long as there are enough.
    drawn = chance.sample(fitting * -(-count // (len(fitting) or 1)), count)
    for kind in later:
        place = stream(seed, "later", kind)
        if place.random() < count / len(fitting):
            drawn[place.randrange(count)] = kind
    # Faults that hit the same node find more.
    focus = chance.choice(names)
    faults: tuple[Fault, ...] = ()
    for number, kind in enumerate(drawn):
        faults += (_draw(stream(seed, "fault", str(number)), kind, faults, names, focus),)
    return Schedule(seed, names, faults, tuple(range(count)))


def _draw(
    chance: random.Random, name: str, before: Sequence[Fault], names: tuple[str, ...], focus: str
) -> Fault:
    kind = KINDS[name]
    seconds = chance.choice(kind.seconds) * chance.uniform(0.7, 1.3) if kind.seconds else 0.0
    first = focus if chance.random() < _FOCUS else chance.choice(names)
    if kind.hits == NEW:
        nodes: tuple[str, ...] = (f"new{len(before)}",)
    elif kind.hits == ALL_BUT_ONE:
        nodes = tuple(chance.sample(names, len(names) - 1))
    elif kind.hits == HALF:
        nodes = tuple(chance.sample(names, len(names) // 2))
    elif kind.hits == 0:
        nodes = names
    else:
        others = [n for n in names if n != first]
        nodes = (first, *chance.sample(others, kind.hits - 1))
    at = _moment(chance, before)
    return Fault(name, round(at, 3), round(seconds, 3), nodes, chance.choice(kind.values))


def _moment(chance: random.Random, before: Sequence[Fault]) -> float:
    """Return when a fault begins: soon after the one before it, or about as an earlier one ends.

    Or so long before that end as a Lease lasts: what was seen then ends together with it.
    """
    if not before:
        return chance.uniform(0.5, 6)
    if chance.random() < _ENDS:
        other = chance.choice(before)
        end = other.at + other.seconds - chance.choice((0.0, LeaseTiming().duration))
        return max(other.at, end + chance.uniform(-2, 2))
    return before[-1].at + 12 * chance.random() ** 2


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
