# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Programs that run on copies of the code, and end with this one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# What the copy has to be found under by Python.
_ROOTS = (".", "agent", "lab", "plugins/module_utils")
# Lines of a program's output that are kept.
_LINES = 30
# Seconds that a program has to clean up.
_TO_END = 10.0


class EndedError(Exception):
    """All programs were ended, and no other one is to be started."""


@dataclass(frozen=True)
class Outcome:
    """How a program ended.

    `status`: its exit status. `is_late`: it was ended as it took too long. `has_said`: it was
    ended as it had said what was waited for. `output`: the last lines.
    """

    status: int
    is_late: bool = False
    has_said: bool = False
    output: str = ""


class Programs:
    """All programs that run. Each has a process group, so its children end with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._is_ended = False

    def run(
        self, command: Sequence[str], folder: Path, *, seconds: float, until: str = ""
    ) -> Outcome:
        """Run a program until it ends, takes longer than these seconds, or says `until`.

        `until`: a regular expression for one line of its output; empty: it may say anything.
        """
        process = self._start(command, folder)
        late = threading.Event()

        def is_late() -> None:
            late.set()
            _end(process)

        timer = threading.Timer(seconds, is_late)
        timer.start()
        lines: deque[str] = deque(maxlen=_LINES)
        has_said = False
        try:
            for line in process.stdout or ():
                lines.append(line)
                if until and not has_said and re.search(until, line):
                    has_said = True
                    _end(process)
            status = process.wait()
        finally:
            timer.cancel()
            _end(process)
            if process.stdout:
                process.stdout.close()
            with self._lock:
                self._running.discard(process)
        if self._is_ended:
            raise EndedError
        return Outcome(status, late.is_set(), has_said, "".join(lines))

    def _start(self, command: Sequence[str], folder: Path) -> subprocess.Popen[str]:
        with self._lock:
            if self._is_ended:
                raise EndedError
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=_environment(folder),
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
        return process

    def end(self) -> None:
        """End all programs; none starts after this."""
        with self._lock:
            self._is_ended = True
            running = list(self._running)
        for process in running:
            _end(process)


def _environment(folder: Path) -> dict[str, str]:
    kept = {key: text for key, text in os.environ.items() if not key.startswith("PYTEST_")}
    roots = ":".join(str(folder / root) for root in _ROOTS)
    return {**kept, "PYTHONPATH": roots, "PYTHONHASHSEED": "0"}


def _end(process: subprocess.Popen[str]) -> None:
    """End a program and its children: as by Ctrl-C, so that tests clean up, then by force."""
    if process.poll() is None:
        _signal(process, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_TO_END)
    _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
