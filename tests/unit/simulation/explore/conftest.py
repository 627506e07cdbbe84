# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import ExitStack

import pytest

from simulation.explore.schedule import draw
from simulation.explore.trial import CopyFailedError, at_work, forked, prepared
from simulation.time.process import simulated_clocks

# A seed whose cluster has three nodes.
SEED = 48


@pytest.fixture(scope="module")
def cluster():
    """A cluster at work, for tests that change nothing or work on a copy."""
    schedule = draw(SEED)
    with at_work(schedule.cluster, schedule.names) as made:
        yield made


@pytest.fixture
def simulated_time():
    """Let the programs' clocks be simulated ones also while a test looks at what they did."""
    with simulated_clocks():
        yield


@pytest.fixture
def in_a_copy():
    """Run a piece of work in a copy of this process, and fail as it does."""

    def run(work):
        try:
            forked(work)
        except CopyFailedError as error:
            pytest.fail(str(error), pytrace=False)

    return run


@pytest.fixture(scope="module")
def clusters():
    """Run a schedule on a copy of its cluster, which stays prepared for the next one."""
    made = {}
    # Clusters are prepared in the middle of tests, and given up after them: the clocks that they
    # find and leave are simulated ones. Here they are real before and after.
    with simulated_clocks(), ExitStack() as stack:

        def run(schedule):
            key = (schedule.cluster, schedule.names)
            if key not in made:
                made[key] = stack.enter_context(prepared(*key))
            return made[key](schedule)

        yield run
