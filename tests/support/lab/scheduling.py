# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Distributes the tests over several labs, and prints the figures that they measured.

Worker N of pytest-xdist uses lab LAB_NUMBER + N. A worker runs whole files, the longest first, so
that all workers end at about the same time. The last worker starts with files that mostly wait, the
others with files that keep a processor busy: together they use the machine evenly. Figures travel
to the terminal with the tests' reports.
"""

from __future__ import annotations

import os
from functools import cache

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

# Measured seconds of the longest files, by their paths below tests/integration.
BUSY = {
    "docs/test_pages.py": 750,
    "migration/test_migrate.py": 430,
    "role/test_molecule.py": 400,
    "failover/test_upgrade.py": 230,
    "migration/test_v1_api.py": 200,
    "audit/test_verify.py": 90,
    "audit/test_monitoring.py": 60,
    "modules/test_configured.py": 50,
    "audit/test_page.py": 40,
    "modules/test_definitions.py": 40,
    "role/test_tunables.py": 30,
    "role/test_load_image.py": 30,
    "role/test_folder.py": 10,
}
QUIET = {
    "outage/test_outage.py": 350,
    "failover/test_failover.py": 170,
    "faults/test_api.py": 120,
    "faults/test_agents.py": 85,
    "failover/test_soak.py": 65,
    "failover/test_leader.py": 60,
    "faults/test_clocks.py": 60,
    "failover/test_draining.py": 55,
    "ipam/test_groups.py": 50,
    "faults/test_interfaces.py": 50,
    "faults/test_api_refusals.py": 45,
    "announcing/test_conflict_detection.py": 40,
    "announcing/test_shared.py": 30,
    "security/test_ports.py": 20,
    "announcing/test_remote.py": 15,
    "announcing/test_routing.py": 15,
}
LONGEST = {**BUSY, **QUIET}
FIGURE = "figure"


def worker() -> int | None:
    """Return the number of this xdist worker; None without xdist and in its controller."""
    name = os.environ.get("PYTEST_XDIST_WORKER")
    return int(name.removeprefix("gw")) if name else None


@cache
def choose_lab() -> None:
    """Set LAB_NUMBER to this worker's lab; only once, however often this is called."""
    number = worker()
    if number is not None:
        os.environ["LAB_NUMBER"] = str(int(os.environ.get("LAB_NUMBER") or 0) + number)


def _key(path: str) -> str:
    """Return the path below tests/integration, of a file's path or a test's id."""
    return path.partition("::")[0].rpartition("tests/integration/")[2]


def put_longest_first(items: list[pytest.Item]) -> None:
    """Sort the tests of a worker by the duration of their files; without xdist, do nothing."""
    if worker() is not None:
        items.sort(key=lambda item: -LONGEST.get(_key(item.path.as_posix()), 0))


class Scheduling(LoadFileScheduling):
    """Gives the last worker files that wait, and the others files that keep a processor busy."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Assign the next file of the worker's kind, or any file if none is left."""
        is_last = node.gateway.id == f"gw{self.numnodes - 1}"
        fitting = (file for file in self.workqueue if is_last != (_key(file) in BUSY))
        file = next(fitting, None)
        if file is not None:
            self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)


class Figures:
    """Prints the figures of a test below its name, whatever its outcome."""

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
