# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
from functools import partial

import pytest

from simulation.time.process import simulated_clocks
from tests.unit.simulation.schedules import story


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    names = inspect.signature(pyfuncitem.obj).parameters
    story.in_a_copy(partial(pyfuncitem.obj, **{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_sessionfinish():
    with simulated_clocks():
        for cluster, _history in story.prepared.values():
            cluster.close()
