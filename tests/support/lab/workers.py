# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Gives each worker a lab of its own, and prints the figures that tests measured.

N workers of pytest-xdist use the labs LAB_NUMBER to LAB_NUMBER + N - 1; the replacement of a worker
that crashed takes its lab over. Figures travel to the terminal with the tests' reports.
"""

from __future__ import annotations

import fcntl
import os
from functools import cache
from typing import TextIO

import pytest

from labkit.host.places import places

FIGURE = "figure"


def worker() -> int | None:
    """Return the number of this xdist worker; None without xdist and in its controller."""
    name = os.environ.get("PYTEST_XDIST_WORKER")
    return int(name.removeprefix("gw")) if name else None


def _workers() -> int:
    return int(os.environ["PYTEST_XDIST_WORKER_COUNT"])


def is_replacement() -> bool:
    """Whether this is a worker that replaces one that crashed."""
    number = worker()
    return number is not None and number >= _workers()


@cache
def choose_lab() -> TextIO | None:
    """Set LAB_NUMBER to a lab that no other worker has; only once, however often this is called.

    Returns the lab's lock, which the kernel releases when this process ends.
    """
    if worker() is None:
        return None
    first = int(os.environ.get("LAB_NUMBER") or 0)
    for number in range(first, first + _workers()):
        os.environ["LAB_NUMBER"] = str(number)
        at = places()
        at.cache.mkdir(parents=True, exist_ok=True)
        lock = (at.cache / f"worker{number}.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
        else:
            return lock
    raise RuntimeError(f"other tests use the labs {first} to {number}: wait for their end")


class Figures:
    """Prints the figures of a test below its name, with any outcome."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print after the line with the outcome."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None or report.when != "call":
            return
        for name, text in report.user_properties:
            if name == FIGURE:
                terminal.write_line(f"    {text}")
