# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A mutant: the code with one small bug."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class NoMutantError(ValueError):
    """The code has changed, so that the bug cannot be made as it is described."""


@dataclass(frozen=True)
class Mutant:
    """A small bug: what is wrong, and the change of one file that makes it.

    `old` occurs once in the file. `survives`: why no test finds it; empty if one has to.
    """

    bug: str
    path: str
    old: str
    new: str
    survives: str = ""

    def text(self, root: Path) -> str:
        """Return the text of the file with the bug, given the folder of the code."""
        text = (root / self.path).read_text()
        count = text.count(self.old)
        if count != 1:
            raise NoMutantError(f"{self.path} has {count} times, not once: {self.old}")
        return text.replace(self.old, self.new)

    def make(self, root: Path) -> None:
        """Make the bug in the code in a folder."""
        file, text = root / self.path, self.text(root)
        file.write_text(text)
        # Python knows a changed file by its size and the second of its change.
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            compiled.unlink()
