# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest: writes what was collected and how each test ended, as JSON lines.

The lines are written as they come, so the record of a killed run shows what did not end. It is
written by the process that the reports arrive at: pytest's own, or the controller of its workers.
Workers run whole files, the longest first, so that all end at about the same time. A file of unit
tests that takes long is divided; tests of one file that use a lab leave it to each other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.support.gate import durations

# The tests in this folder use labs.
LAB_TESTS = "tests/integration/"
OPTION = "--record"
DURATIONS = "--durations-before"
_TO_BEGIN = 2  # tests that a worker must have been given to run the first of them


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=Path, help="record what was collected and how each test ended")
    parser.addoption(DURATIONS, type=Path, help="the seconds of each test in former runs")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption(OPTION)
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(file))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files that take longest first; without workers, change nothing."""
    if not hasattr(config, "workerinput"):
        return
    known = durations.read(config.getoption(DURATIONS))
    seconds: Counter[Path] = Counter()
    for item in items:
        limit = item.get_closest_marker("timeout")
        guess = durations.guess(limit and limit.args[0])
        seconds[item.path] += known.get(item.nodeid, guess)
    items.sort(key=lambda item: -seconds[item.path])


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


class Recorder:
    """Writes the record of a run."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("w", buffering=1)
        self._collected: set[str] = set()

    def _write(self, **line: object) -> None:
        self._file.write(f"{json.dumps(line)}\n")

    def _write_collected(self, ids: Sequence[str]) -> None:
        """Write the tests that are to run, once, though each worker collects them."""
        new = [test for test in ids if test not in self._collected]
        if new:
            self._collected.update(new)
            self._write(event="collected", tests=new)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write what this process will run; nothing if it has workers."""
        self._write_collected([item.nodeid for item in session.items])

    def pytest_xdist_node_collection_finished(
        self, node: WorkerController, ids: Sequence[str]
    ) -> None:
        """Write what a worker has collected."""
        del node
        self._write_collected(ids)

    def pytest_testnodedown(self, node: WorkerController, error: object) -> None:
        """Write that a worker crashed."""
        if error:
            self._write(event="crash", worker=node.gateway.id)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a file that cannot be collected."""
        if report.failed:
            self._write(event="uncollected", test=report.nodeid, text=report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the outcome of a test's set-up, call or teardown, or of its worker's crash."""
        crash = getattr(report.longrepr, "reprcrash", None)
        text = report.longreprtext
        if report.skipped and isinstance(report.longrepr, tuple):
            text = report.longrepr[2]
        self._write(
            event="report",
            test=report.nodeid,
            when=report.when,
            outcome=report.outcome,
            seconds=round(report.duration, 3),
            worker=getattr(getattr(report, "node", None), "gateway", None)
            and report.node.gateway.id,
            is_safety="safety" in report.keywords,
            is_xfail=hasattr(report, "wasxfail"),
            message=crash.message if crash else text,
            text=text,
        )

    def pytest_unconfigure(self) -> None:
        """Close the record."""
        self._file.close()


class FileScheduling(LoadFileScheduling):
    """Gives files, or parts of long ones, to workers, also to the replacement of one that crashed.

    With pytest-xdist's own class, a replacement may wait for ever: it gets files again that the
    crashed worker had finished, and only one file, while a worker runs a test only when it knows
    the next one.
    """

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        self._seconds = durations.read(config.getoption(DURATIONS))
        self._parts: dict[str, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        if not self._parts:
            self._parts = durations.parts(self.collection or (), self._seconds, whole=LAB_TESTS)
        return self._parts[nodeid]

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker that runs out of tests the next file."""
        for file in [file for file, tests in self.workqueue.items() if all(tests.values())]:
            del self.workqueue[file]
        super()._reschedule(node)
        while self.workqueue and not node.shutting_down and self._lacks_next(node):
            super()._reschedule(node)

    def _lacks_next(self, node: WorkerController) -> bool:
        return bool(self._pending_of(self.assigned_work[node]) < _TO_BEGIN)
