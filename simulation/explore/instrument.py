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
from simulation.explore.trial import prepared


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


def try_all(
    schedules: Sequence[Schedule], ignored: Ignores, *, shrinks: int
) -> tuple[int, list[Found]]:
    """Run schedules that begin with one cluster; returns how many, and what they broke.

    The first `shrinks` of those that broke something are shrunk.
    """
    found: list[Found] = []
    with prepared(schedules[0].cluster, schedules[0].names) as run:
        for schedule in schedules:
            broken = _broken(run, ignored, schedule)
            if broken:
                smallest = None
                if len(found) < shrinks:
                    first = broken[0].invariant
                    smallest = shrunk(schedule, partial(_breaks, run, ignored, first))
                    broken = _broken(run, ignored, smallest)
                found.append(Found(schedule, tuple(broken), smallest))
    return len(schedules), found


def _broken(
    run: Callable[[Schedule], list[Breach]], ignored: Ignores, schedule: Schedule
) -> list[Breach]:
    return [breach for breach in run(schedule) if breach.invariant not in ignored]


def _breaks(
    run: Callable[[Schedule], list[Breach]], ignored: Ignores, first: str, schedule: Schedule
) -> bool:
    return any(breach.invariant == first for breach in _broken(run, ignored, schedule))


def explored(
    schedules: Sequence[Schedule],
    ignored: Ignores = frozenset(),
    *,
    shrinks: int = 1,
    progress: Callable[[str], None] = lambda _text: None,
) -> list[Found]:
    """Run schedules on all cores; returns what they broke, in the order of their seeds."""
    began, done, found = time.monotonic(), 0, []
    with _garbage_left_here(), ProcessPoolExecutor(os.cpu_count()) as pool:
        work = [
            pool.submit(try_all, part, ignored, shrinks=shrinks) for part in _by_cluster(schedules)
        ]
        for finished in as_completed(work):
            count, broken = finished.result()
            done += count
            found += broken
            seconds = time.monotonic() - began
            progress(
                f"{done} of {len(schedules)} seeds in {seconds:.0f} s, {len(found)} broke something"
            )
    return sorted(found, key=lambda each: each.schedule.seed)


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
