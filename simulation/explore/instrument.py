# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Many seeds on all cores, with progress; what was found is shrunk and told."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from simulation.explore.judge import Breach
from simulation.explore.schedule import Schedule, shrunk
from simulation.explore.trial import Outcome, prepared


@dataclass(frozen=True)
class Found:
    """A schedule that broke something; `smallest` is what is left of it if it was shrunk."""

    schedule: Schedule
    breaches: tuple[Breach, ...]
    smallest: Schedule | None = None

    @property
    def invariants(self) -> tuple[str, ...]:
        """The invariants that were broken."""
        return tuple(dict.fromkeys(breach.invariant for breach in self.breaches))


Ignores = frozenset[str]
Costs = tuple[tuple[Schedule, Outcome], ...]


@dataclass(frozen=True)
class Explored:
    """What schedules broke, and what each of them cost."""

    found: tuple[Found, ...]
    costs: Costs


def try_all(schedules: Sequence[Schedule], ignored: Ignores, *, shrinks: int) -> Explored:
    """Run schedules that begin with one cluster.

    The first `shrinks` of those that broke something are shrunk.
    """
    found: list[Found] = []
    costs: list[tuple[Schedule, Outcome]] = []
    with prepared(schedules[0].cluster, schedules[0].names) as run:
        for schedule in schedules:
            outcome = run(schedule)
            costs.append((schedule, outcome))
            broken = _broken(outcome, ignored)
            if broken:
                smallest = None
                if len(found) < shrinks:
                    first = broken[0].invariant
                    smallest = shrunk(schedule, partial(_breaks, run, ignored, first))
                    broken = _broken(run(smallest), ignored)
                found.append(Found(schedule, tuple(broken), smallest))
    return Explored(tuple(found), tuple(costs))


def _broken(outcome: Outcome, ignored: Ignores) -> list[Breach]:
    return [breach for breach in outcome.breaches if breach.invariant not in ignored]


def _breaks(
    run: Callable[[Schedule], Outcome], ignored: Ignores, first: str, schedule: Schedule
) -> bool:
    return any(breach.invariant == first for breach in _broken(run(schedule), ignored))


def explored(
    schedules: Sequence[Schedule],
    ignored: Ignores = frozenset(),
    *,
    shrinks: int = 1,
    progress: Callable[[str], None] = lambda _text: None,
) -> Explored:
    """Run schedules on all cores; what they broke is in the order of their seeds."""
    began = time.monotonic()
    found: list[Found] = []
    costs: list[tuple[Schedule, Outcome]] = []
    with _garbage_left_here(), ProcessPoolExecutor(os.cpu_count()) as pool:
        work = [
            pool.submit(try_all, part, ignored, shrinks=shrinks) for part in _by_cluster(schedules)
        ]
        for finished in as_completed(work):
            part = finished.result()
            costs += part.costs
            found += part.found
            done, seconds = len(costs), time.monotonic() - began
            progress(
                f"{done} of {len(schedules)} seeds in {seconds:.0f} s, {len(found)} broke something"
            )
    in_order = sorted(found, key=lambda each: each.schedule.seed)
    return Explored(tuple(in_order), tuple(costs))


@contextmanager
def _garbage_left_here() -> Iterator[None]:
    """Collect garbage before this process is copied, and none of it in the copies.

    A destructor may wait for a thread, and a copy has none of this process's threads.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _by_cluster(schedules: Sequence[Schedule]) -> Iterator[list[Schedule]]:
    parts: dict[tuple[int, tuple[str, ...]], list[Schedule]] = {}
    for schedule in schedules:
        parts.setdefault((schedule.cluster, schedule.names), []).append(schedule)
    yield from parts.values()
