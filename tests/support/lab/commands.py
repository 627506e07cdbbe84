# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Commands that end with the test that runs them, and with them all that they have started.

Ansible's workers have sessions of their own, and wait for ever for a playbook that was killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from labkit.host.processes import descendants


def start(
    argv: Sequence[str], *, cwd: Path, env: dict[str, str], stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start a command that is told to end when this process is killed."""
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "--", *argv],
        cwd=cwd, env=env, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
    )  # fmt: skip


def end(process: subprocess.Popen[str]) -> None:
    """Kill a command with all that it has started."""
    for pid in (process.pid, *descendants([process.pid])):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: dict[str, str],
    stderr: int = subprocess.PIPE,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; whatever interrupts this leaves nothing of it."""
    with start(argv, cwd=cwd, env=env, stderr=stderr) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except BaseException:
            end(process)
            raise
    return subprocess.CompletedProcess(list(argv), process.returncode, out, errors)
