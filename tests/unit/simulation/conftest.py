# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc

import pytest

from simulation.time.machine import Machine
from simulation.time.process import Process, simulated_clocks
from simulation.time.timeline import Timeline


@pytest.fixture(autouse=True)
def clocks():
    with simulated_clocks():
        yield


@pytest.fixture
def timeline():
    return Timeline(1)


@pytest.fixture
def machine(timeline):
    return Machine(timeline, "n1")


@pytest.fixture
def process(machine):
    made = Process(machine, "agent n1")
    yield made
    made.close()
    gc.collect()
