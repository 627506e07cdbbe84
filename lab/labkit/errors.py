# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What can go wrong, in two kinds.

`Problem` is something that the person at the keyboard can set right: one line that says what to do.
`StepFailed` is a step that should have worked: it names the step, the reason and the log to read.
"""

from pathlib import Path

LOG_LINES = 8  # enough to hold a Go component's last error without its flag dump


class LabError(Exception):
    """Anything that the lab reports by itself; never shown with a traceback."""

    exit_code = 1


class Problem(LabError):  # noqa: N818 - the word that its message reads with
    """Bad input or a missing precondition: the message is one line that says what to do."""

    exit_code = 2


class StepFailed(LabError):  # noqa: N818 - a sentence: the step failed
    """A step did not do its work."""

    def __init__(self, step: str, why: str, *, log: Path | None = None) -> None:
        """Keep the step's name; the text carries the log's last lines, read now, before `down`."""
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
