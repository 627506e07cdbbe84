# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a group of tests, gives what failed a second try, and prints the summary.

A second try is a process of its own, so that all fixtures are made again, with no other test of its
group running. Tests in `recorder.LAB_TESTS` get a fresh lab for it: all labs of the run are ended,
and the tests start theirs.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import ROOT
from tests.support.gate import durations, known, recorder, verdict
from tests.support.gate.verdict import Run, Verdict
from tests.support.lab import commands

# In the folder of the run, as the tests' ids are.
RECORDS = Path(".cache/gate")
# Each worker of a group may crash and each lab break; a program that crashes every time ends here.
_RESTARTS = 4
_FIRST, _TRY = "first.jsonl", "try-{:02}.jsonl"


@dataclass(frozen=True)
class Group:
    """Tests that are run together."""

    name: str
    paths: Sequence[str]
    workers: int = 0
    """Processes of pytest-xdist; 0 for none."""
    command: Sequence[str] = (sys.executable,)
    """What runs `-m pytest`: Python, or a program that measures."""
    options: Sequence[str] = ()
    """Of pytest, for the first and for second tries."""
    only_computes: bool = False
    """Whether the result depends on files alone, so that a green one need not be found again."""

    @property
    def folder(self) -> Path:
        """Where the records are."""
        return RECORDS / self.name

    @property
    def _distribution(self) -> list[str]:
        if not self.workers:
            return []
        words = f"--numprocesses {self.workers} --dist loadfile --max-worker-restart {_RESTARTS}"
        return words.split()

    def run(self) -> Verdict:
        """Run the tests, and those that failed once more; return the verdict."""
        key = known.key([*self.paths, *self.options]) if self.only_computes else ""
        if _reuse(key, self.folder):
            return judge(self.folder)
        before = self.folder / "durations.json"
        # A copy, as all workers must read the same.
        durations.update(before, durations.read(durations.file()))
        order = [recorder.DURATIONS, str(before), "--no-loadscope-reorder"]
        first = self._pytest(_FIRST, [*self._distribution, *order, *self.paths])
        durations.update(durations.file(), first.seconds)
        if not verdict.errors(first):
            found = verdict.incidents(first)
            for number, tests in enumerate(found, 1):
                print(f"== second try {number} of {len(found)}", flush=True)
                self._try_again(tests)
        return _kept(key, self.folder)

    def _try_again(self, tests: list[str]) -> None:
        if any(test.startswith(recorder.LAB_TESTS) for test in tests):
            _end_labs(max(self.workers, 1))
        tried = self._pytest(self._next(), tests)
        strict = sorted(tried.passed & tried.safety)
        for _again in range(verdict.SAFETY_PASSES - 1 if strict else 0):
            self._pytest(self._next(), strict)

    def _next(self) -> str:
        return _TRY.format(len(list(self.folder.glob(_TRY.replace("{:02}", "*")))) + 1)

    def _pytest(self, name: str, arguments: Sequence[str]) -> Run:
        """Run pytest to its end; return what it recorded."""
        record = self.folder / name
        plugin = ["-p", recorder.__name__, recorder.OPTION, str(record)]
        argv = [*self.command, "-m", "pytest", *plugin, *self.options, *arguments]
        with subprocess.Popen(argv) as process:
            try:
                status = process.wait()
            except BaseException:
                commands.end(process)
                raise
        # Written here, as pytest may still fail after its last hook.
        with record.open("a") as file:
            file.write(f"{json.dumps({'event': 'end', 'status': status})}\n")
        return _read(record)


def _reuse(key: str, folder: Path) -> bool:
    """Empty a group's folder, and put the known record there; return whether there is one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    record = known.find(key) if key else None
    if record is None:
        return False
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.stat().st_mtime))
    note = f"{folder.name}: not run, as the same files were green on {day}"
    # The end of the record stays its last line.
    *lines, end = record.read_text().splitlines()
    text = [*lines, json.dumps({"event": "note", "text": note}), end]
    (folder / _FIRST).write_text("".join(f"{line}\n" for line in text))
    return True


def _kept(key: str, folder: Path) -> Verdict:
    """Return the verdict on a group; keep its record if it is green without a second try."""
    found = judge(folder)
    if key and found.is_green and not found.flaky and not found.crashes:
        known.keep(key, folder / _FIRST)
    return found


def run_command(name: str, argv: Sequence[str], *, only_computes: bool = False) -> int:
    """Run a program as a group of one test without a second try; return the exit status.

    The last line that it prints stands in the summary, and if it fails, the end of its output.
    `only_computes`: as of a group.
    """
    signal.signal(signal.SIGTERM, lambda *_signal: sys.exit("ended by SIGTERM"))
    folder, test, lines = RECORDS / name, shlex.join(argv), [""]
    key = known.key(argv) if only_computes else ""
    if _reuse(key, folder):
        return _report(judge(folder))
    with (folder / _FIRST).open("w", buffering=1) as record:

        def write(**line: object) -> None:
            record.write(f"{json.dumps(line)}\n")

        write(event="collected", tests=[test])
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            try:
                for line in process.stdout or ():
                    print(line, end="", flush=True)
                    lines.append(line.rstrip())
                status = 1 if process.wait() else 0
            except BaseException:
                commands.end(process)
                raise
        outcome, text = "failed" if status else "passed", "\n".join(lines)
        write(
            event="report",
            test=test,
            when="teardown",
            outcome=outcome,
            seconds=0.0,
            worker=None,
            is_safety=False,
            is_xfail=False,
            message=lines[-1],
            text=text,
        )
        write(event="note", text=lines[-1])
        write(event="end", status=status)
    return _report(_kept(key, folder))


def _report(found: Verdict) -> int:
    """Print the summary of a group; return the exit status."""
    print(verdict.summary([found]), flush=True)
    return 0 if found.is_green else 1


def _read(record: Path) -> Run:
    return verdict.parse(record.read_text().splitlines() if record.exists() else ())


def _end_labs(count: int) -> None:
    first = int(os.environ.get("LAB_NUMBER") or 0)
    for number in range(first, first + count):
        environ = {**os.environ, "LAB_NUMBER": str(number)}
        subprocess.run([str(ROOT / "lab/lab"), "down"], env=environ, check=False)


def judge(folder: Path) -> Verdict:
    """Return the verdict on a group, by its records."""
    tries = [_read(path) for path in sorted(folder.glob(_TRY.replace("{:02}", "*")))]
    return verdict.judge(_read(folder / _FIRST), tries)


def summary() -> int:
    """Print the summary of all groups that have run; return the exit status."""
    verdicts = [judge(folder) for folder in sorted(RECORDS.glob("*/"))]
    print(verdict.summary(verdicts))
    return 0 if verdicts and all(found.is_green for found in verdicts) else 1


def run(group: Group) -> int:
    """Run a group; print its summary; return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_signal: sys.exit("ended by SIGTERM"))
    return _report(group.run())
