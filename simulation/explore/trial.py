# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Running a schedule: on a copy of a cluster at work, which a fork makes.

A cluster takes longer to prepare than to be put through a schedule, and one that has been is of no
further use.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import TypeVar

from purelb.core.allocation.duplicates import NEW_FOR
from simulation.cluster import Cluster, simulated
from simulation.explore.faults import KINDS
from simulation.explore.judge import SETTLED, Breach, Judge
from simulation.explore.schedule import Schedule
from simulation.explore.workload import add_services, shape_of
from simulation.time.process import SpinsError
from simulation.time.timeline import MICROSECONDS

# Seconds: all programs have started; the Services have their addresses for so long that they keep
# them also if another host has them.
_STARTED, _AT_WORK = 30.0, NEW_FOR + 5.0
# Seconds of processor time that no schedule needs.
_LIMIT = 30
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """What a schedule broke, and what it cost.

    `unheld`: for how many seconds an address was on no node, on average. `excused`: how many
    seconds each excuse of the judge was used for, of the address that used it most.
    """

    breaches: tuple[Breach, ...]
    unheld: float = 0.0
    excused: Mapping[str, float] = field(default_factory=dict)


@contextmanager
def at_work(number: int, names: Sequence[str]) -> Iterator[Cluster]:
    """Make a cluster at work, whose Services all have their addresses."""
    with simulated(number, names, shape_of(number)) as cluster:
        cluster.start()
        cluster.run(_STARTED)
        add_services(cluster)
        cluster.run(_AT_WORK)
        cluster.run_kubelets()
        yield cluster


def put_through(cluster: Cluster, schedule: Schedule) -> Outcome:
    """Let the faults of a schedule happen in a cluster; return what came of that."""
    judge = Judge(cluster, schedule.faults)
    for fault in schedule.faults:
        begin = partial(KINDS[fault.kind].begin, judge.troubles, fault)
        judge.troubles.later(fault.at, fault.seconds, begin)
    end = judge.began + int((schedule.end + SETTLED) * MICROSECONDS)
    try:
        while cluster.timeline.now < end:
            cluster.timeline.run(end)
            end = max(end, judge.troubles.disturbed_at + int(SETTLED * MICROSECONDS))
    except SpinsError as error:
        return Outcome((Breach("ended", str(error)),))
    breaches = tuple(judge.breaches())
    unheld = fmean(judge.presence.on_no_node(judge.given.addresses))
    return Outcome(breaches, unheld, judge.presence.excused)


class CopyFailedError(Exception):
    """A piece of work raised something in its copy of this process, or did not end there."""


def forked(work: Callable[[], T], *, limit: float = _LIMIT) -> T:
    """Return what a piece of work returns in a copy of this process; CopyFailedError if it fails.

    `limit`: the seconds of processor time after which it is given up.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _work_and_exit(work, writing, limit)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    _child, status = os.waitpid(child, 0)
    if status:
        raise CopyFailedError(f"the copy ended with status {status}")
    result: T | CopyFailedError = pickle.loads(text)  # noqa: S301 - from our own copy
    if isinstance(result, CopyFailedError):
        raise result
    return result


class EndlessError(BaseException):
    """A schedule does not end. No program may catch this."""


def _give_up(*_: object) -> None:
    raise EndlessError("it needs too much processor time")


def _work_and_exit(work: Callable[[], object], writing: int, limit: float) -> None:
    status = 1
    result: object
    try:
        gc.disable()
        logging.disable()
        signal.signal(signal.SIGPROF, _give_up)
        signal.setitimer(signal.ITIMER_PROF, limit, limit)
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - the caller is to have it
            result = CopyFailedError("".join(traceback.format_exception(error)[-3:]))
        signal.setitimer(signal.ITIMER_PROF, 0)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(result, pipe)
        sys.stderr.flush()
        status = 0
    finally:
        # Nothing returns into the copied frames. At once: the destructors of a simulation that is
        # given up would run its programs' ends.
        os._exit(status)


def put_through_alone(schedule: Schedule) -> Outcome:
    """Return what comes of a schedule on a cluster that is made for it."""
    with at_work(schedule.cluster, schedule.names) as cluster:
        return put_through(cluster, schedule)


@contextmanager
def prepared(number: int, names: tuple[str, ...]) -> Iterator[Callable[[Schedule], Outcome]]:
    """Prepare a cluster; yields what runs a schedule of it, or of a part of it, in a copy."""
    with at_work(number, names) as cluster:
        gc.collect()
        gc.freeze()

        def run(schedule: Schedule) -> Outcome:
            is_whole = (schedule.cluster, schedule.names) == (number, names)
            alone = partial(put_through_alone, schedule)
            try:
                return forked(partial(put_through, cluster, schedule) if is_whole else alone)
            except CopyFailedError as error:
                return Outcome((Breach("simulation", str(error)),))

        yield run
        gc.unfreeze()
