# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Long steps: their progress, a line every 15 s, and what is tried again when it fails."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from labkit.errors import StepFailed

_INTERVAL = 15.0  # seconds between two lines
DOWNLOAD_PAUSES = (5.0, 20.0)  # seconds before the second and the third attempt

T = TypeVar("T")


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
    expected: int = 0,
) -> None:
    """Run a long command; its output goes to the log, its progress to the screen.

    `expected`: the seconds that it takes on two cores with empty caches, if that is known.
    Raises StepFailed if it ends with another exit code than 0.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd, env=env
        )
        try:
            _watch(child, name, expected)
        except BaseException:
            child.kill()
            child.wait()
            raise
    if child.returncode:
        raise StepFailed(name, f"{argv[0]} ended with {child.returncode}", log=log)


def retry(step: Callable[[], T], *, pauses: Sequence[float] = DOWNLOAD_PAUSES) -> T:
    """Call a step again after each pause (seconds) until it succeeds; return its result.

    Package managers ask again when a connection fails, but not when a download breaks off or a
    mirror or proxy answers with an error. Raises the StepFailed of the last attempt.
    """
    for pause in pauses:
        try:
            return step()
        except StepFailed as error:
            print(f"{error}\n{error.step}: next attempt in {pause:g} s", flush=True)
            time.sleep(pause)
    return step()


def _watch(child: subprocess.Popen[bytes], name: str, expected: int) -> None:
    start, of_all = time.monotonic(), f" of about {expected} s" if expected else ""
    while True:
        try:
            child.wait(_INTERVAL)
        except subprocess.TimeoutExpired:
            print(f"  {name}: {time.monotonic() - start:.0f} s{of_all}", flush=True)
        else:
            return
