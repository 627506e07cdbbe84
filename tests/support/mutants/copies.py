# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Copies of the code, which mutants are made in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def copy_tracked(root: Path, folder: Path) -> None:
    """Copy what git knows of a checkout, as it is now, into a new folder."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, text=True, capture_output=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        # One that was removed is known until that is committed.
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)


def copy_again(folder: Path, other: Path) -> None:
    """Copy a copy, with what Python has compiled in it, to a folder that does not exist yet."""
    shutil.copytree(folder, other, symlinks=True)
