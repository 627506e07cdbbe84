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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

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


def put_through(cluster: Cluster, schedule: Schedule) -> list[Breach]:
    """Let the faults of a schedule happen in a cluster; return what that broke."""
    judge = Judge(cluster, schedule.faults)
    for fault in schedule.faults:
        begin = partial(KINDS[fault.kind].begin, judge.troubles, fault)
        judge.troubles.later(fault.at, fault.seconds, begin)
    end = judge.began + int((schedule.end + SETTLED) * MICROSECONDS)
    try:
        while cluster.timeline.now < end:
            cluster.timeline.run(end)
            end = max(end, judge.troubles.restarted_at + int(SETTLED * MICROSECONDS))
    except SpinsError as error:
        return [Breach("ended", str(error))]
    return judge.breaches()


def forked(work: Callable[[], list[Breach]], *, limit: float = _LIMIT) -> list[Breach]:
    """Return what a piece of work finds in a copy of this process; what it raises is a breach.

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
        return [Breach("simulation", f"the copy ended with status {status}")]
    found: list[Breach] = pickle.loads(text)  # noqa: S301 - from our own copy
    return found


class EndlessError(BaseException):
    """A schedule does not end. No program may catch this."""


def _give_up(*_: object) -> None:
    raise EndlessError("it needs too much processor time")


def _work_and_exit(work: Callable[[], list[Breach]], writing: int, limit: float) -> None:
    gc.disable()
    logging.disable()
    signal.signal(signal.SIGPROF, _give_up)
    signal.setitimer(signal.ITIMER_PROF, limit, limit)
    try:
        found = work()
    except BaseException as error:  # noqa: BLE001 - nothing must return into the copied frames
        text = "".join(traceback.format_exception(error)[-3:])
        found = [Breach("simulation", text)]
    with os.fdopen(writing, "wb") as pipe:
        pickle.dump(found, pipe)
    sys.stderr.flush()
    # At once: the destructors of a simulation that is given up would run its programs' ends.
    os._exit(0)


def put_through_alone(schedule: Schedule) -> list[Breach]:
    """Return what a schedule breaks, on a cluster that is made for it."""
    with at_work(schedule.cluster, schedule.names) as cluster:
        return put_through(cluster, schedule)


@contextmanager
def prepared(number: int, names: tuple[str, ...]) -> Iterator[Callable[[Schedule], list[Breach]]]:
    """Prepare a cluster; yields what runs a schedule of it, or of a part of it, in a copy."""
    with at_work(number, names) as cluster:
        gc.collect()
        gc.freeze()

        def run(schedule: Schedule) -> list[Breach]:
            is_whole = (schedule.cluster, schedule.names) == (number, names)
            return forked(
                partial(put_through, cluster, schedule)
                if is_whole
                else partial(put_through_alone, schedule)
            )

        yield run
        gc.unfreeze()
