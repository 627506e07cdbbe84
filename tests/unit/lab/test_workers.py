# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.lab import workers
from tests.support.lab.workers import FIGURE, Figures


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Lets a worker of two choose its lab; returns the lab's number and its lock."""
    monkeypatch.setenv("PURELB_LAB_CACHE", str(tmp_path))
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    locks = []

    def act(worker: str, first: str = "0"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        monkeypatch.setenv("LAB_NUMBER", first)
        locks.append(workers.choose_lab.__wrapped__())
        return os.environ["LAB_NUMBER"], locks[-1]

    yield act
    for lock in locks:
        lock.close()


@pytest.mark.parametrize(("first", "labs"), [("", "01"), ("0", "01"), ("4", "45")])
def test_each_worker_has_a_lab_of_its_own(choose, first: str, labs: str):
    assert [choose("gw0", first)[0], choose("gw1", first)[0]] == list(labs)


def test_replacement_takes_over_the_lab_of_the_worker_that_crashed(choose):
    choose("gw0")
    lab, lock = choose("gw1")
    lock.close()
    assert choose("gw2")[0] == lab == "1"
    assert workers.is_replacement()


def test_labs_of_other_tests_are_refused(choose):
    choose("gw0")
    choose("gw1")
    with pytest.raises(RuntimeError, match="other tests use the labs 0 to 1"):
        choose("gw0")


@pytest.mark.parametrize("number", [None, "4"])
def test_without_workers_lab_number_is_unchanged(
    monkeypatch: pytest.MonkeyPatch, number: str | None
):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("LAB_NUMBER", raising=False)
    if number is not None:
        monkeypatch.setenv("LAB_NUMBER", number)
    workers.choose_lab.cache_clear()
    workers.choose_lab()
    assert os.environ.get("LAB_NUMBER") == number


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
