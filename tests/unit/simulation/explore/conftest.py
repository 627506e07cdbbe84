# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from simulation.explore.schedule import draw
from simulation.explore.trial import at_work, forked, prepared

# A seed whose cluster has three nodes.
SEED = 48


@pytest.fixture(scope="module")
def cluster():
    """A cluster at work, for tests that change nothing or work on a copy."""
    schedule = draw(SEED)
    with at_work(schedule.cluster, schedule.names) as made:
        yield made


@pytest.fixture
def in_a_copy():
    """Run a piece of work in a copy of this process, and fail as it does."""

    def run(work):
        def whole():
            work()
            return []

        problems = forked(whole)
        assert not problems, problems[0].text

    return run


@pytest.fixture(scope="module")
def clusters():
    """Run a schedule on a copy of its cluster, which stays prepared for the next one."""
    made, entered = {}, []

    def run(schedule):
        key = (schedule.cluster, schedule.names)
        if key not in made:
            entered.append(prepared(*key))
            made[key] = entered[-1].__enter__()
        return made[key](schedule)

    yield run
    for context in reversed(entered):
        context.__exit__(None, None, None)
