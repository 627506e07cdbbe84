# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Progress output of long steps: a counter of seconds on a terminal, a line every 15 s in a log."""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from labkit.errors import StepFailed

_INTERVAL = 15.0  # seconds between two lines in a log file


class Stopwatch:
    """Prints stages with the milliseconds since its creation."""

    def __init__(self, *, quiet: bool = False) -> None:
        """Start at zero; a quiet stopwatch prints nothing."""
        self._start = time.monotonic()
        self._quiet = quiet

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._start

    def stage(self, text: str) -> None:
        """Print a stage that has been reached."""
        if not self._quiet:
            print(f"{self.seconds * 1000:6.0f} ms  {text}", flush=True)


def run_step(
    name: str,
    argv: Sequence[str],
    *,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a long command; its output goes to the log, its progress to the screen.

    Raises StepFailed if it ends with another exit code than 0.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd, env=env
        )
        try:
            _watch(child, name)
        except BaseException:
            child.kill()
            child.wait()
            raise
    if child.returncode:
        raise StepFailed(name, f"{argv[0]} ended with {child.returncode}", log=log)


def _watch(child: subprocess.Popen[bytes], name: str) -> None:
    start = shown = time.monotonic()
    is_terminal = sys.stdout.isatty()
    while True:
        try:
            child.wait(1 if is_terminal else _INTERVAL)
        except subprocess.TimeoutExpired:
            shown = time.monotonic() - start
            line = f"  {name}: {shown:.0f} s"
            print(f"\r{line}", end="", flush=True) if is_terminal else print(line, flush=True)
            continue
        if is_terminal:
            print("\r\033[K", end="")
        return
