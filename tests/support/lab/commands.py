# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Runs commands that end with the test, together with all their descendants.

Ansible's workers have sessions of their own, and wait forever for a playbook that was killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from labkit.host.processes import descendants


def start(
    argv: Sequence[str], *, cwd: Path, env: dict[str, str], stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start a command that gets SIGTERM when this process ends."""
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "--", *argv],
        cwd=cwd, env=env, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
    )  # fmt: skip


def end(process: subprocess.Popen[str]) -> None:
    """Kill a command and its descendants."""
    stopped: set[int] = set()
    # Stop all first: one that still ran could start another, which nothing would end.
    while more := {process.pid, *descendants([process.pid])} - stopped:
        _signal(more, signal.SIGSTOP)
        stopped |= more
    _signal(stopped, signal.SIGKILL)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: dict[str, str],
    stderr: int = subprocess.PIPE,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; kill it with its descendants on timeout or interruption."""
    with start(argv, cwd=cwd, env=env, stderr=stderr) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except BaseException:
            end(process)
            raise
    return subprocess.CompletedProcess(list(argv), process.returncode, out, errors)
