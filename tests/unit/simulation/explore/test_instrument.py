# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The command: it runs seeds on all cores, prints what it found, and fails if it found anything."""

from __future__ import annotations

import gc
import os
import re
import shlex
import signal
from contextlib import suppress

import pytest

from simulation.__main__ import main
from simulation.explore.instrument import explored
from simulation.explore.schedule import draw
from simulation.explore.trial import CopyFailedError, forked
from simulation.explore.troubles import Troubles

IGNORED = frozenset({"unheld"})


@pytest.fixture
def something_breaks(monkeypatch):
    """Let no agent end, also if it cannot read its kernel."""
    blindfold = Troubles.blindfold

    def unexcused(troubles, node):
        end = blindfold(troubles, node)
        troubles.blind.clear()
        return end

    monkeypatch.setattr(Troubles, "blindfold", unexcused)


@pytest.mark.usefixtures("something_breaks")
def test_a_schedule_that_breaks_something_is_found_and_shrunk():
    told = []
    schedules = [draw(seed, ["unreadable", "service"], count=2) for seed in (7, 43)]
    assert any(f.kind == "unreadable" for s in schedules for f in s.faults)
    found = explored(schedules, IGNORED, progress=told.append).found
    assert found
    assert all("ended" in each.invariants for each in found)
    for each in found:
        assert [fault.kind for fault in each.smallest.faults] == ["unreadable"]
    assert told[-1].startswith("2 of 2 seeds in ")


class Destroyed:
    """Notes in which process it is destroyed, once the garbage is collected."""

    def __init__(self, note):
        self.note, self.itself = note, self

    def __del__(self):
        self.note.write_text(str(os.getpid()))


def test_garbage_is_collected_by_the_process_that_made_it(tmp_path):
    """A destructor may wait for a thread, which a copy of the process does not have."""
    note = tmp_path / "process"
    gc.disable()
    try:
        Destroyed(note)
        explored([draw(3, ["service"], count=1)], IGNORED)
    finally:
        gc.enable()
    assert note.read_text() == str(os.getpid())


@pytest.mark.usefixtures("something_breaks")
def test_what_it_prints_can_be_run_again(capsys):
    drawn = ["--kinds", "unreadable,service", "--count", "3", "--ignore", "unheld"]
    assert main(["--first", "4", "--seeds", "1", *drawn])
    told = capsys.readouterr().out
    assert "at work: " in told
    assert "=> ended: agent " in told
    assert "ended 1" in told.splitlines()[-1]
    command = next(line for line in told.splitlines() if "make simulate" in line)
    first, _seeds, options = shlex.split(command.split("make simulate ")[1])
    again = [f"--first={first.removeprefix('FIRST=')}", "--seeds=1"]
    assert main([*again, *options.removeprefix("OPTIONS=").split()])
    assert "ended 1" in capsys.readouterr().out.splitlines()[-1]


def test_without_a_find_it_succeeds(capsys):
    assert not main(["--seeds", "2", "--kinds", "service", "--ignore", "unheld"])
    assert capsys.readouterr().out.splitlines()[-1].endswith(" broke nothing")


def test_it_says_what_faults_cost_and_what_was_excused(capsys):
    seeds = ["--first", "1", "--seeds", "2", "--kinds", "killed,outage"]
    assert not main([*seeds, "--count", "1"])
    cost = r"[0-9]\.[0-9]{2} s on average, [0-9]\.[0-9]{2} s in the worst seed"
    assert re.search(rf"^killed on no node: {cost}$", capsys.readouterr().out, re.MULTILINE)
    assert not main([*seeds, "--count", "2"])
    told = capsys.readouterr().out
    assert re.search(rf"^an address on no node: {cost}$", told, re.MULTILINE)
    assert re.search(
        r"^excused by no node reaches the API: 50\.0% of the seeds, ", told, re.MULTILINE
    )


def test_what_a_copy_raises_is_a_find():
    def work():
        raise ValueError("odd")

    with pytest.raises(CopyFailedError, match="ValueError: odd"):
        forked(work)


def test_a_copy_that_does_not_end_is_given_up():
    def work():
        while True:
            # As a program may, it continues after any error.
            with suppress(Exception):
                sum(range(1000))

    with pytest.raises(CopyFailedError, match="EndlessError"):
        forked(work, limit=0.2)


def test_a_copy_that_is_killed_is_a_find():
    with pytest.raises(CopyFailedError, match="the copy ended with status 9"):
        forked(lambda: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.parametrize("arguments", ["--seeds=x", "--first=1.5", "--what", "--kinds=x"])
def test_an_unknown_option_ends_the_command(arguments, capsys):
    with pytest.raises(SystemExit):
        main([arguments])
    assert "usage: " in capsys.readouterr().err
