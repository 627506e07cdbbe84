# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The lab's errors, of two kinds.

`Problem` can be fixed by the user: its message is one line that says how. `StepFailed` is a step
that should have worked: its message names the step, the reason and the log file.
"""

from pathlib import Path

LOG_LINES = 8  # enough to hold a Go component's last error without its flag dump


class LabError(Exception):
    """An error that the lab reports itself, without a traceback."""

    exit_code = 1


class Problem(LabError):  # noqa: N818 - the user's problem, not the lab's error
    """Bad input or a missing precondition: the message is one line that says what to do."""

    exit_code = 2


def of_missing_file(error: FileNotFoundError) -> Problem:
    """Return the problem of a program, or of another file, that does not exist."""
    return Problem(f"there is no {error.filename}: 'make setup' installs what the lab needs")


class StepFailed(LabError):  # noqa: N818 - reads as a sentence
    """A step failed for a reason that the user did not cause."""

    def __init__(self, step: str, why: str, *, log: Path | None = None) -> None:
        """Build the message, with the last lines of the log; `down` may remove the log later."""
        self.step = step
        super().__init__("\n".join([f"{step} failed: {why.strip()}", *_tail(log)]))


def _tail(log: Path | None) -> list[str]:
    if log is None:
        return []
    try:
        lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        lines = []
    return [f"log: {log}", *(f"  | {line[:300]}" for line in lines)]
