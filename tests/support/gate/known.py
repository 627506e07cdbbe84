# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Green results of what only computes: the same files give the same result, so it is kept.

The rule's model and the simulation read no clock, no network and no kernel. `INPUTS` is all that
they can depend on in this checkout; the packages and the Python are in the key as well.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from tests.support import ROOT

# Files and folders that models and seeds import or read.
INPUTS = (
    "agent",
    "plugins/module_utils",
    "simulation",
    "tests/__init__.py",
    "tests/support/__init__.py",
    "tests/support/rule",
    "tests/unit/conftest.py",
    "tests/unit/rule",
    "tests/unit/simulation",
    "pyproject.toml",
    "requirements-dev.txt",
)
_UNUSED = 30 * 24 * 3600.0  # seconds


def folder() -> Path:
    """Return where the records are kept; another checkout with the same files uses them, too."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "purelb-lab/known"


def key(words: Sequence[str], root: Path = ROOT) -> str:
    """Return the hash of a command's words and of all that decides its result."""
    digest = sha256("\0".join([sys.version, *words]).encode())
    for path in sorted(file for name in INPUTS for file in _files(root / name)):
        content = sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root)}\0{content}\0".encode())
    return digest.hexdigest()[:32]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [file for file in path.rglob("*") if file.is_file() and file.suffix != ".pyc"]


def find(name: str) -> Path | None:
    """Return the record that is kept under a key; None if there is none."""
    record = folder() / name
    return record if record.exists() else None


def keep(name: str, record: Path) -> None:
    """Keep the record of a green run, and remove those that are older than 30 days."""
    folder().mkdir(parents=True, exist_ok=True)
    for old in folder().iterdir():
        if time.time() - old.stat().st_mtime > _UNUSED:
            old.unlink(missing_ok=True)
    new = folder() / f".{name}.{os.getpid()}"
    shutil.copyfile(record, new)
    new.rename(folder() / name)
