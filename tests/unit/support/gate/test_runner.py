# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The gate with real runs of pytest, on small projects: chance, failures, killed processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support import ROOT
from tests.support.gate import durations

# Each starts two or more pytests with workers.
pytestmark = [pytest.mark.timeout(60), pytest.mark.real_time]

CHANCE = """
from pathlib import Path
def test_chance():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        assert 0, "by chance"
"""
GOOD = "def test_good(): pass\n"
BAD = "def test_bad(): assert [] == [1]\n"
# The worker ends in the middle of a file, after another file was finished.
KILLED = """
import os, pytest
from pathlib import Path
@pytest.mark.parametrize("number", range(4))
def test_killed(number):
    if number == 2 and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), 9)
"""
# A lab of the integration tests that breaks after a test, until it is created again.
LAB = """
from pathlib import Path
import pytest
from tests.support.lab import readiness
BROKEN = Path("broken")
readiness._start_lab = lambda: BROKEN.unlink(missing_ok=True)
readiness._fault = lambda: "etcd does not run" if BROKEN.exists() else ""
def pytest_configure(config):
    config.pluginmanager.register(readiness.LabReadiness())
@pytest.fixture(scope="session")
def lab():
    pass
"""
BREAKS = """
from pathlib import Path
def test_breaks(lab):
    if not Path("was-broken").exists():
        Path("was-broken").touch()
        Path("broken").touch()
def test_next(lab):
    assert not Path("broken").exists()
def test_last(lab):
    assert not Path("broken").exists()
"""


# Plugins that these tests do without, as each takes a while to start.
INI = "[pytest]\naddopts = -p no:asyncio -p no:hypothesispytest -p no:cacheprovider\n"


@pytest.fixture(autouse=True)
def _project(tmp_path):
    (tmp_path / "pytest.ini").write_text(INI)


@pytest.fixture
def gate(tmp_path):
    """Runs the gate on files of a project; returns exit status and output."""

    def act(files, *options):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        return finished(start(tmp_path, "run", "group", *options, "."))

    return act


def start(folder, *arguments):
    roots = (ROOT, ROOT / "lab", ROOT / "agent", ROOT / "plugins/module_utils")
    environ = {
        **os.environ,
        "PYTHONPATH": ":".join(map(str, roots)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    # What decides about workers and labs is of the run that this test is in.
    environ = {key: text for key, text in environ.items() if not key.startswith("PYTEST_XDIST")}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.gate", *arguments],
        cwd=folder, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def finished(process):
    output = process.communicate()[0]
    return process.returncode, output


def test_chance_alone_is_red_and_with_the_gate_flaky(gate, tmp_path):
    (tmp_path / "test_b.py").write_text(CHANCE)
    alone = [sys.executable, "-m", "pytest", "test_b.py"]
    assert subprocess.run(alone, cwd=tmp_path, check=False).returncode == 1
    (tmp_path / "seen").unlink()
    status, output = gate({"test_a.py": GOOD}, "--workers=2")
    assert status == 0, output
    assert "FLAKY test_b.py::test_chance" in output
    assert output.count('assert 0, "by chance"') == 2  # as pytest shows it, and in the summary
    assert output.splitlines()[-2:] == [
        "1 flaky (failed once, passed a second try)",
        "2 passed, 0 failed, 0 skipped",
    ]


def test_failure_is_red_after_a_second_try(gate):
    status, output = gate({"test_a.py": GOOD, "test_b.py": BAD})
    assert status == 1
    assert "== second try 1 of 1" in output
    assert output.endswith("\n1 passed, 1 failed, 0 skipped\n")


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_worker_is_replaced_and_all_tests_run(gate, workers):
    files = {f"test_{letter}.py": GOOD for letter in "adef"} | {"test_b.py": KILLED}
    status, output = gate(files, f"--workers={workers}")
    assert status == 0, output
    assert "FLAKY test_b.py::test_killed[2]" in output
    assert "1 workers crashed and were replaced" in output
    assert output.endswith("\n8 passed, 0 failed, 0 skipped\n")


def test_worker_that_is_killed_every_time_is_red(gate):
    status, output = gate({"test_a.py": GOOD, "test_b.py": KILLED.replace("touch", "exists")},
                          "--workers=2")  # fmt: skip
    assert status == 1
    assert "FAILED test_b.py::test_killed[2]" in output


def test_broken_lab_is_left_to_a_new_worker(gate):
    files = {"conftest.py": LAB, "test_a.py": BREAKS, "test_b.py": GOOD}
    status, output = gate(files, "--workers=2")
    assert status == 0, output
    assert "FLAKY test_a.py::test_next" in output
    assert "is broken: etcd does not run" in output
    assert output.endswith("\n4 passed, 0 failed, 0 skipped\n")


def test_broken_lab_ends_a_run_without_workers(gate):
    files = {"conftest.py": LAB, "test_a.py": BREAKS}
    status, output = gate(files)
    assert status == 0, output  # as the second try has a lab of its own
    assert "FLAKY test_a.py::test_last" in output
    assert "end it with 'make lab-down'" in output


def test_files_that_took_longest_are_run_first_the_next_time(gate):
    slow = f"import time\n{GOOD.replace('pass', 'time.sleep(0.3)')}"
    limited = f"import pytest\npytestmark = pytest.mark.timeout(50)\n{GOOD}"
    files = {"test_a.py": GOOD, "test_b.py": slow, "test_c.py": limited}
    gate({"test_a.py": GOOD, "test_b.py": slow}, "--workers=1")
    _status, output = gate(files, "--workers=1", "--options=-v")
    order = [line.split()[-1][5] for line in output.splitlines() if "PASSED" in line]
    assert order == ["c", "b", "a"]  # c was never measured: a tenth of its limit


def test_both_workers_run_tests_of_a_file_that_took_long(gate, tmp_path):
    who = GOOD.replace("_good():", "_NAME(worker_id):").replace("pass", "print(worker_id)")
    tests = [f"test_long.py::test_{name}" for name in "abcd"]
    durations.update(tmp_path / "cache/purelb-lab/durations.json", dict.fromkeys(tests, 20.0))
    files = {"test_long.py": "\n".join(who.replace("NAME", name) for name in "abcd")}
    status, output = gate(files, "--workers=2", "--options=-rP")
    assert status == 0, output
    assert {line for line in output.splitlines() if line in ("gw0", "gw1")} == {"gw0", "gw1"}


def test_interrupted_run_is_red_and_its_pytest_ends(tmp_path):
    (tmp_path / "test_a.py").write_text(
        "import os, time\nfrom pathlib import Path\n"
        "def test_slow():\n    Path('pid').write_text(str(os.getpid()))\n    time.sleep(60)\n"
    )
    process, file = start(tmp_path, "run", "group", "--workers=1", "."), tmp_path / "pid"
    while not (file.exists() and file.read_text()):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    status, output = finished(process)
    assert status == 1, output
    while os.path.exists(f"/proc/{file.read_text()}"):  # noqa: PTH110 - the time limit ends it
        time.sleep(0.05)
    status, output = finished(start(tmp_path, "summary"))
    assert status == 1
    assert "LOST test_a.py::test_slow" in output
    assert "ERROR the run was ended before its end" in output


@pytest.mark.parametrize("fails", [False, True])
def test_command_is_a_test_whose_last_line_is_in_the_summary(tmp_path, fails):
    program = f"print('a find\\n7 seeds broke something'); raise SystemExit({2 * fails})"
    argv = ["command", "seeds", sys.executable, "-c", program]
    status, output = finished(start(tmp_path, *argv))
    assert status == fails
    counts = "0 passed, 1 failed, 0 skipped" if fails else "1 passed, 0 failed, 0 skipped"
    assert output.splitlines()[-2:] == ["7 seeds broke something", counts]
    assert ("  | a find" in output) == fails
    assert finished(start(tmp_path, "summary")) == (status, output.partition("something\n")[2])


ONCE = "test ! -e {0} && touch {0} && echo 1000 seeds broke nothing"


def test_what_only_computes_is_green_without_a_run_with_the_same_files(tmp_path):
    command = ("command", "--only-computes", "seeds", "sh", "-c", ONCE.format("ran"))
    assert finished(start(tmp_path, *command))[0] == 0
    status, output = finished(start(tmp_path, *command))
    assert status == 0
    assert "seeds: not run, as the same files were green on 20" in output
    assert "1000 seeds broke nothing" in output
    assert "1 passed, 0 failed" in output
    without = [word for word in command if word != "--only-computes"]
    assert finished(start(tmp_path, *without))[0] == 1


def test_what_failed_is_run_again_with_the_same_files(tmp_path):
    command = ("command", "--only-computes", "seeds", "sh", "-c", "echo x >> runs; false")
    for _time in range(2):
        assert finished(start(tmp_path, *command))[0] == 1
    assert (tmp_path / "runs").read_text() == "x\nx\n"


def test_tests_that_only_compute_are_not_run_again_unless_one_was_flaky(gate, tmp_path):
    options = ("--only-computes", "--options=-v")
    status, output = gate({"test_b.py": CHANCE}, *options)
    assert status == 0, output
    (tmp_path / "seen").unlink()
    status, output = gate({}, *options)
    assert "FLAKY" in output
    status, output = gate({}, *options)
    assert "not run" not in output
    status, output = gate({}, *options)
    assert (status, "group: not run" in output, "1 passed" in output) == (0, True, True)


def test_interrupted_command_is_red(tmp_path):
    program = "import time; print('begun', flush=True); time.sleep(60)"
    process = start(tmp_path, "command", "seeds", sys.executable, "-c", program)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    assert finished(process)[0] == 1
    status, output = finished(start(tmp_path, "summary"))
    assert status == 1
    assert "ERROR the run was ended before its end" in output
