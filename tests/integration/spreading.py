# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The tests on several labs at once: which worker has which lab, in which order, with what to see.

A worker of pytest-xdist has the lab of its own number, counted from LAB_NUMBER. A file is one
worker's, the longest first, so that all end at about the same time. The last worker begins with
files that wait most of their time, the others with what keeps a processor busy: beside each other
they leave the machine neither idle nor crowded. Figures that tests measured travel with their
reports, and so reach the terminal.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import PurePath

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

# Seconds that the longest files were seen to take. An old number costs a little time, no more.
BUSY = {
    "test_docs.py": 750,
    "test_migrate.py": 430,
    "test_molecule.py": 400,
    "test_upgrade.py": 230,
    "test_versions.py": 200,
    "test_verify.py": 90,
    "test_monitoring.py": 60,
    "test_configured.py": 50,
    "test_audit_page.py": 40,
    "test_definitions.py": 40,
    "test_tunables.py": 30,
    "test_load_image.py": 30,
    "test_folder.py": 10,
}
QUIET = {
    "test_outage.py": 350,
    "test_failover.py": 170,
    "test_api_faults.py": 120,
    "test_node_faults.py": 85,
    "test_soak.py": 65,
    "test_leader.py": 60,
    "test_clocks.py": 60,
    "test_draining.py": 55,
    "test_ipam.py": 50,
    "test_interface_faults.py": 50,
    "test_api_refusals.py": 45,
    "test_conflict_detection.py": 40,
    "test_shared.py": 30,
    "test_endpoints.py": 20,
    "test_remote.py": 15,
    "test_routing.py": 15,
}
LONGEST = {**BUSY, **QUIET}
FIGURE = "figure"


def worker() -> int | None:
    """The number of this process among xdist's workers; none without xdist, and in its master."""
    name = os.environ.get("PYTEST_XDIST_WORKER")
    return int(name.removeprefix("gw")) if name else None


@cache
def choose_lab() -> None:
    """Give this worker a lab of its own; once, however often its set-up is imported."""
    number = worker()
    if number is not None:
        os.environ["LAB_NUMBER"] = str(int(os.environ.get("LAB_NUMBER") or 0) + number)


def put_longest_first(items: list[pytest.Item]) -> None:
    """Reorder the files for workers, which take one after the other; alone, as they come."""
    if worker() is not None:
        items.sort(key=lambda item: -LONGEST.get(item.path.name, 0))


class Scheduling(LoadFileScheduling):
    """Gives the last worker what waits, and the others what keeps a processor busy."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Put the next file of the worker's kind before all others; there may be none left."""
        is_last = node.gateway.id == f"gw{self.numnodes - 1}"
        fitting = (file for file in self.workqueue if is_last != (PurePath(file).name in BUSY))
        file = next(fitting, None)
        if file is not None:
            self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)


class Figures:
    """Shows what a test measured, under its name, whatever became of it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Follow the line that tells the outcome."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None or report.when != "call":
            return
        for name, text in report.user_properties:
            if name == FIGURE:
                terminal.write_line(f"    {text}")
