# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

import os
from collections import OrderedDict
from types import SimpleNamespace

import pytest

from tests.support import ROOT
from tests.support.lab import scheduling
from tests.support.lab.scheduling import FIGURE, Figures, Scheduling

CLOCKS, OUTAGE = "faults/test_clocks.py", "outage/test_outage.py"
DOCS, MOLECULE = "docs/test_pages.py", "role/test_molecule.py"


@pytest.mark.parametrize(
    ("worker", "number", "lab"),
    [("gw0", None, "0"), ("gw1", None, "1"), ("gw1", "", "1"), ("gw1", "4", "5")],
)
def test_each_worker_uses_the_lab_of_its_own_number(
    monkeypatch: pytest.MonkeyPatch, worker: str, number: str | None, lab: str
):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    monkeypatch.setenv("LAB_NUMBER", number or "")
    if number is None:
        monkeypatch.delenv("LAB_NUMBER")
    scheduling.choose_lab.cache_clear()
    scheduling.choose_lab()
    assert os.environ["LAB_NUMBER"] == lab


@pytest.mark.parametrize("number", [None, "4"])
def test_without_workers_lab_number_is_unchanged(
    monkeypatch: pytest.MonkeyPatch, number: str | None
):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("LAB_NUMBER", raising=False)
    if number is not None:
        monkeypatch.setenv("LAB_NUMBER", number)
    scheduling.choose_lab.cache_clear()
    scheduling.choose_lab()
    assert os.environ.get("LAB_NUMBER") == number


@pytest.mark.parametrize(
    ("worker", "order"),
    [("gw0", ["outage-1", "outage-2", "clocks", "a", "b"]),
     ("", ["a", "clocks", "outage-1", "outage-2", "b"])],
    ids=["worker", "alone"],
)  # fmt: skip
def test_workers_run_the_longest_files_first(
    monkeypatch: pytest.MonkeyPatch, worker: str, order: list[str]
):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    files = {"a": "a", "clocks": CLOCKS, "outage-1": OUTAGE, "outage-2": OUTAGE, "b": "b"}
    items = [
        SimpleNamespace(name=n, path=ROOT / f"tests/integration/{f}") for n, f in files.items()
    ]
    scheduling.put_longest_first(items)
    assert [item.name for item in items] == order


def test_files_in_the_table_of_durations_exist():
    folder = ROOT / "tests/integration"
    assert [name for name in scheduling.LONGEST if not (folder / name).is_file()] == []


class Worker:
    """Records the numbers of the tests that it receives."""

    def __init__(self, name: str) -> None:
        self.gateway, self.given = SimpleNamespace(id=name), []

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.given += numbers


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("gw0", [DOCS, MOLECULE, OUTAGE, "a"]),
        ("gw1", [DOCS, MOLECULE, OUTAGE, "a"]),
        ("gw2", [OUTAGE, "a", DOCS, MOLECULE]),
    ],
)
def test_last_worker_takes_waiting_files_first_and_others_busy_files(name: str, order: list[str]):
    tests = [f"tests/integration/{file}::test_it" for file in (DOCS, OUTAGE, MOLECULE, "a")]
    scheduling, worker = Scheduling.__new__(Scheduling), Worker(name)
    scheduling.numnodes = 3
    scheduling.workqueue = OrderedDict((test.partition("::")[0], {test: False}) for test in tests)
    scheduling.assigned_work, scheduling.registered_collections = {}, {worker: tests}
    while scheduling.workqueue:
        scheduling._assign_work_unit(worker)  # noqa: SLF001 - called by xdist
    assert [tests[number] for number in worker.given] == [
        f"tests/integration/{file}::test_it" for file in order
    ]


class Terminal(list):
    """Records the written lines."""

    write_line = list.append


def test_figure_is_shown_once_without_other_properties():
    terminal = Terminal()
    plugins = SimpleNamespace(get_plugin={"terminalreporter": terminal}.get)
    figures = Figures(SimpleNamespace(pluginmanager=plugins))
    for when in ("setup", "call", "teardown"):
        properties = [("other", "thing"), (FIGURE, "gone after 1.00 s")]
        figures.pytest_runtest_logreport(SimpleNamespace(when=when, user_properties=properties))
    assert terminal == ["    gone after 1.00 s"]
