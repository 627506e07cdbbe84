# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The hook and the fixtures of virtual time and leak checks; a conftest.py imports them."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from purelb_agent.runtime import clock
from tests.support.agent.leaks import LeakCheck, open_sockets
from tests.support.agent.virtual_time import TrackingLoop, VirtualClock, VirtualTimeLoop

_CLOCKS: list[VirtualClock] = []


def _virtual_loop() -> VirtualTimeLoop:
    return VirtualTimeLoop(_CLOCKS[-1])


def pytest_asyncio_loop_factories(item):
    """Real time for tests with the marker `real_time`, virtual time for all others."""
    if item.get_closest_marker("real_time"):
        return {"real": TrackingLoop}
    return {"virtual": _virtual_loop}


@pytest.fixture(autouse=True)
def virtual_clock(request, monkeypatch):
    """The clock that the test's loop and the agent read; None in real time."""
    if request.node.get_closest_marker("real_time"):
        yield None
        return
    _CLOCKS.append(made := VirtualClock())
    monkeypatch.setattr(clock, "now", made.now)
    monkeypatch.setattr(clock, "monotonic", made.monotonic)
    monkeypatch.setattr(clock, "wall_time", made.wall_time)
    yield made
    _CLOCKS.remove(made)


@pytest.fixture
async def leak_check(virtual_clock):
    """Fail an async test that leaves a task, an exception or a socket."""
    check = LeakCheck(asyncio.get_running_loop())
    yield
    leaks = await check.leaks()
    assert not leaks, "the test left behind: " + "; ".join(leaks)


@pytest.fixture(autouse=True)
def no_leaks(request, virtual_clock):
    """Check every test; what it left is found after all its other fixtures have ended."""
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("leak_check")
        yield
        return
    before = open_sockets()
    yield
    left = open_sockets() - before
    assert not left, f"the test left open: {sorted(left)}"
