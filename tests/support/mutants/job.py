# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The job: tries mutants, a few at a time, with a line for each and one for all of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import TypeVar

from tests.support.mutants.copies import copy_again, copy_tracked
from tests.support.mutants.mutant import Mutant
from tests.support.mutants.programs import Outcome, Programs
from tests.support.mutants.trial import Found, Kind, Stage, name_of, tried

T = TypeVar("T")
# As each runs the tests of a whole stage, more would need more memory.
AT_A_TIME = 2
# Python sees a signal that comes just before a wait only when that ends.
_LONGEST_WAIT = 0.5


@dataclass(frozen=True)
class Job:
    """What to try: the code, mutants by their numbers of so many, and stages.

    `first`: what has to be green without a mutant.
    """

    root: Path
    mutants: Mapping[int, Mutant]
    count: int
    stages: Sequence[Stage]
    first: Sequence[Stage]
    say: Callable[[str], None] = print


def run(job: Job) -> int:
    """Try all mutants; returns 1 if one is not found, or found for all that its table says."""
    programs = Programs()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, _ending(programs) as pool:
        original = Path(folder) / "original"
        copy_tracked(job.root, original)
        if not _is_green(job, original, programs, pool):
            return 1
        work = {
            pool.submit(_try, mutant, original, Path(folder) / str(number), programs, job): number
            for number, mutant in job.mutants.items()
        }
        found: dict[int, Found | None] = {}
        for done in _completed(work):
            number = work[done]
            found[number] = done.result()
            job.say(_line(job, number, found[number]))
    return _summary(job, found)


@contextmanager
def _ending(programs: Programs) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool; when it is left, also by Ctrl-C, its programs have ended."""
    pool = ThreadPoolExecutor(AT_A_TIME)
    try:
        yield pool
    finally:
        programs.end()
        pool.shutdown(cancel_futures=True)


def _completed(work: Iterable[Future[T]]) -> Iterator[Future[T]]:
    """Yield futures as they are done; Ctrl-C is never missed for long."""
    left = set(work)
    while left:
        done, left = wait(left, timeout=_LONGEST_WAIT, return_when=FIRST_COMPLETED)
        yield from done


def _try(
    mutant: Mutant, original: Path, folder: Path, programs: Programs, job: Job
) -> Found | None:
    copy_again(original, folder)
    try:
        return tried(mutant, folder, programs, job.stages)
    finally:
        rmtree(folder, ignore_errors=True)


def _is_green(job: Job, folder: Path, programs: Programs, pool: ThreadPoolExecutor) -> bool:
    """Whether all is green without a mutant: a test that is red anyhow finds nothing."""
    work: dict[Future[Outcome], list[str]] = {}
    for stage in job.first:
        command = stage.command("")
        work[pool.submit(programs.run, command, folder, seconds=stage.seconds)] = command
    for done in _completed(work):
        outcome, name = done.result(), name_of(work[done])
        if outcome.status != 0:
            job.say(f"{outcome.output}\nred without a mutant, so nothing was tried: {name}")
            return False
        job.say(f"green without a mutant: {name}")
    return True


def _line(job: Job, number: int, found: Found | None) -> str:
    mutant = job.mutants[number]
    if found is None:
        how = f"survives, as {mutant.survives}" if mutant.survives else "NOT FOUND"
    else:
        how = f"found by {found.by} in {found.seconds:.0f} s"
        if mutant.survives:
            how = f"said to survive, but {how}"
    return f"{number} of {job.count}: {how}: {mutant.bug}"


def _summary(job: Job, found: Mapping[int, Found | None]) -> int:
    """Say what has to be changed and the counts; returns 1 if something has to be."""
    lost = [n for n, by in found.items() if by is None and not job.mutants[n].survives]
    known = [n for n, by in found.items() if by is None and job.mutants[n].survives]
    outdated = [n for n, by in found.items() if by is not None and job.mutants[n].survives]
    for number in sorted((*lost, *outdated)):
        job.say(_line(job, number, found[number]))
    kinds = Counter(by.kind for by in found.values() if by is not None)
    counts = [
        f"{kinds[Kind.UNIT_TESTS]} found by {Kind.UNIT_TESTS.value}",
        *(f"{kinds[kind]} by {kind.value}" for kind in (Kind.SCHEDULES, Kind.SEEDS)),
        f"{len(known)} survive as known",
        f"{len(lost)} not found",
        *([f"{len(outdated)} found that are said to survive"] if outdated else []),
    ]
    job.say(f"{len(found)} mutants: {', '.join(counts)}")
    return 1 if lost or outdated else 0
