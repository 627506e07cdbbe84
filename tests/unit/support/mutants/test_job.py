# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The job, with real programs, on a project of one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.mutants import job
from tests.support.mutants.mutant import Mutant
from tests.support.mutants.programs import EndedError, Programs
from tests.support.mutants.trial import CannotTryError, Kind, Stage

pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]

CODE = "small, large = 1, 1000\n"
SMALL = Mutant("small is large", "code.py", "small, large = 1", "small, large = 5")
LARGE = Mutant("large is small", "code.py", "1000", "10")
ODD = Mutant("large is odd", "code.py", "1000", "1001")
TOLD = Mutant("large is odd", "code.py", "1000", "1001", survives="nothing has to be even")


def stage(kind, script, *, seconds=30.0, until=""):
    words = [sys.executable, "-c", f"from code import small, large\n{script}"]
    # The module `code` of Python comes before that of the folder.
    words[2] = f"import sys; sys.path.insert(0, '.')\n{words[2]}"
    return Stage(kind, lambda _path: words, seconds, until)


STAGES = (
    stage(Kind.UNIT_TESTS, "assert small == 1"),
    stage(Kind.SCHEDULES, "assert large > 500"),
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the job on mutants; returns exit status and lines."""
    project, temporary = tmp_path / "project", tmp_path / "temporary"
    project.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (project / "code.py").write_text(CODE)
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)

    def act(*mutants, stages=STAGES, first=STAGES):
        lines = []
        numbered = dict(enumerate(mutants, start=1))
        made = job.Job(project, numbered, len(mutants), stages, first, lines.append)
        try:
            return job.run(made), lines
        finally:
            assert (project / "code.py").read_text() == CODE
            assert list(temporary.iterdir()) == []

    return act


def test_each_mutant_is_found_by_the_first_stage_that_fails(run):
    status, lines = run(SMALL, LARGE, TOLD)
    assert status == 0
    assert [line for line in lines if line.startswith("green without a mutant: ")] == lines[:2]
    assert any(line.startswith("1 of 3: found by ") for line in lines)
    assert "3 of 3: survives, as nothing has to be even: large is odd" in lines
    assert lines[-1] == (
        "3 mutants: 1 found by unit tests, 1 by schedules, 0 by seeds, "
        "1 survive as known, 0 not found"
    )


def test_mutant_that_nothing_finds_fails_the_job(run):
    status, lines = run(ODD, SMALL)
    assert status == 1
    assert lines[-2] == "1 of 2: NOT FOUND: large is odd"
    assert lines[-1].endswith(" 0 survive as known, 1 not found")


def test_mutant_that_is_found_but_said_to_survive_fails_the_job(run):
    found = Mutant(SMALL.bug, SMALL.path, SMALL.old, SMALL.new, survives="of a wrong reason")
    status, lines = run(found)
    assert status == 1
    assert lines[-2].startswith("1 of 1: said to survive, but found by ")
    assert lines[-1].endswith(" 0 not found, 1 found that are said to survive")


def test_nothing_is_tried_while_a_test_is_red_without_a_mutant(run):
    red = stage(Kind.SEEDS, "print('red anyhow'); assert False")
    status, lines = run(SMALL, first=(red,))
    assert status == 1
    assert lines[-1].endswith(f"red without a mutant, so nothing was tried: {name_of(red)}")
    assert "red anyhow" in lines[-1]


def name_of(stage):
    return " ".join(stage.command("")[2:])


def test_program_that_does_not_end_has_found_a_mutant_and_says_so(run):
    endless = stage(Kind.UNIT_TESTS, "while small != 1: pass", seconds=1.0)
    status, lines = run(SMALL, stages=(endless,))
    assert status == 0
    assert "which did not end in 1 s" in lines[-2]


def test_program_that_has_said_what_it_found_is_not_waited_for(run):
    script = "import time\nif small != 1: print('broke', flush=True); time.sleep(600)"
    status, lines = run(SMALL, ODD, stages=(stage(Kind.SEEDS, script, until="^broke$"),))
    assert status == 1
    assert lines[-1].endswith("1 by seeds, 0 survive as known, 1 not found")


def test_program_that_could_not_do_its_work_has_found_nothing(run):
    with pytest.raises(CannotTryError, match="no such option"):
        run(SMALL, stages=(stage(Kind.SEEDS, "print('no such option'); sys.exit(4)"),))


def test_programs_that_are_ended_leave_no_children(tmp_path):
    programs, ended = Programs(), []
    script = "sleep 600 & echo $! > child; wait"

    def act():
        try:
            programs.run(["sh", "-c", script], tmp_path, seconds=30.0)
        except EndedError as error:
            ended.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    child = wait_for(tmp_path / "child")
    programs.end()
    thread.join()
    assert len(ended) == 1
    assert is_gone(child)
    with pytest.raises(EndedError):
        programs.run(["true"], tmp_path, seconds=30.0)


def wait_for(file):
    """Return the number in a file that is about to be written."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if file.exists() and file.read_text().strip():
            return int(file.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{file} was not written")


def is_gone(pid):
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        # One that has ended is there until its parent asks for it.
        if state in "XZ":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_command_leaves_no_process_and_no_folder(tmp_path, number):
    roots = (ROOT, ROOT / "lab", ROOT / "agent", ROOT / "plugins/module_utils")
    environ = {**os.environ, "PYTHONPATH": ":".join(map(str, roots)), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.support.mutants", "--last=folder", "1"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            until = time.monotonic() + 30
            while not list(tmp_path.glob("*/original/tests/unit/rule")) or not children(tmp_path):
                assert time.monotonic() < until
                time.sleep(0.02)
            process.send_signal(number)
            assert process.wait(30) == 130
            assert list(tmp_path.iterdir()) == []
            assert children(tmp_path) == []
        finally:
            process.kill()
            for pid in map(int, children(tmp_path)):
                os.kill(pid, signal.SIGKILL)


def children(folder):
    """Return the processes that work in a folder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if str(link.readlink()).startswith(str(folder)):
                found.append(link.parent.name)
        except OSError:
            continue
    return found
