# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Gives each test a lab that works, with PureLB if it asks for that, before its time limit begins.

A broken lab is not repaired, because no one knows what else is wrong with it. Instead its worker
reports the next test as failed and ends; the worker's replacement creates the lab again.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from labkit.cluster import state
from labkit.errors import LabError
from labkit.host.processes import wait_until
from labkit.lab import Lab
from tests.support import ROOT
from tests.support.lab import installation, workers
from tests.support.machine import view

_NODES = 3
# The API server may still be starting when a test that restarted it has ended.
_API_SECONDS = 20.0


class LabReadiness:
    """Whether this process's lab was started, has PureLB, and still works."""

    def __init__(self) -> None:
        self._is_started = self._is_installed = False
        self._problem = ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Prepare the lab; the wrapper of pytest-timeout is inside this one."""
        fixtures = getattr(item, "fixturenames", ())
        if "lab" in fixtures and not item.config.option.setupplan:
            if self._is_started and (problem := self._problem or _fault()):
                _give_up(item, f"lab {os.environ.get('LAB_NUMBER') or 0} is broken: {problem}")
            self._prepare(with_purelb="cluster" in fixtures)
        return (yield)

    def _prepare(self, *, with_purelb: bool) -> None:
        try:
            with self.breaks_lab():
                if not self._is_started:
                    self._is_started = True
                    _start_lab()
                if with_purelb and not self._is_installed:
                    self._is_installed = True
                    installation.install(Lab.load())
        except Exception:  # noqa: BLE001, S110 - `lab` raises it, where pytest reports it
            pass

    def purelb_is_changed(self) -> None:
        """Install PureLB again before the next test that asks for it, if there is one."""
        self._is_installed = False

    @contextmanager
    def breaks_lab(self) -> Iterator[None]:
        """Count the lab as broken, from the next test on, if this block fails."""
        try:
            yield
        except BaseException as error:  # pytest-timeout's is no Exception
            self._problem = f"{type(error).__name__}: {error}"
            raise

    def lab(self) -> Lab:
        """Return the lab. Fails if it could not be started or PureLB not be installed."""
        assert not self._problem, self._problem
        return Lab.load()


def _start_lab() -> None:
    """Start the lab of this process unless it is up; again if an earlier worker left it."""
    program = str(ROOT / "lab/lab")
    if workers.is_replacement():
        subprocess.run([program, "down"], capture_output=True, text=True, check=True)
    names = filter(None, os.environ.get("LAB_VARIANTS", "").split(","))
    variants = [f"--variant={name}" for name in names]
    up = view.inner("lab", [program, "up", "--nodes", str(_NODES), *variants])
    done = subprocess.run(up, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _fault() -> str:
    """Return what is wrong with the lab; empty if it works."""
    try:
        lab = Lab.load()
    except LabError as error:
        return str(error)
    dead = [d.key for d in state.load_daemons(lab.at).values() if not d.process.is_alive]
    if dead:
        return f"{', '.join(dead)} does not run"
    if not wait_until(lab.api.is_ready, seconds=_API_SECONDS):
        return f"its API server is not ready after {_API_SECONDS:g} s"
    return ""


def _give_up(item: pytest.Item, problem: str) -> None:
    """Report the test that was to run as failed, and end this process."""
    if workers.worker() is None:
        pytest.exit(f"{problem}; end it with 'make lab-down'", returncode=1)
    report = pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome="failed",
        longrepr=problem,
        when="setup",
    )
    item.config.hook.pytest_runtest_logreport(report=report)
    # pytest-xdist replaces a worker only if it crashes.
    os._exit(1)
