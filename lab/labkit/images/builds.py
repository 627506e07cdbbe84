# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Builds that are cached under the hash of their inputs.

A build works in a scratch folder that is renamed at the end, so an unfinished build never counts.
Most builds download something, so each is tried again when one of its steps fails.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from labkit.host.progress import retry

Make = Callable[[Path, Path], None]  # called with the scratch folder and the log

_UNUSED = 30 * 24 * 3600.0  # seconds
_SOURCES = {".go", ".mod", ".sum", ".py", ".Dockerfile"}


@dataclass(frozen=True)
class Build:
    """An artefact: a folder whose name contains the hash of its inputs."""

    name: str
    seconds: int  # expected duration on two cores with empty caches
    folder: Path
    make: Make

    @property
    def is_done(self) -> bool:
        """Whether the artefact of these inputs exists."""
        return self.folder.is_dir()

    def ensure(self, *, logs: Path) -> bool:
        """Build the artefact unless it exists; wait for another process that builds it.

        Returns whether this process built it.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_name(f"{self.folder.name}.lock").open("w") as lock:
            # Another checkout may be building the same.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.is_done:
                os.utime(self.folder)  # for `prune`
                return False
            self._build(logs)
            return True

    def _build(self, logs: Path) -> None:
        print(f"{self.name}: building, about {self.seconds} s", flush=True)
        start = time.monotonic()
        # Unique by pid: a child of a killed setup may still be writing to an old scratch folder.
        scratch = self.folder.with_name(f"{self.folder.name}.part-{os.getpid()}")
        log = logs / f"build-{self.name}.log"
        log.unlink(missing_ok=True)

        def make() -> None:
            shutil.rmtree(scratch, ignore_errors=True)  # of a failed attempt
            scratch.mkdir(parents=True)
            self.make(scratch, log)

        retry(make)
        scratch.rename(self.folder)
        print(f"{self.name}: done in {time.monotonic() - start:.0f} s", flush=True)


def prune(parent: Path) -> None:
    """Remove the builds of a folder that no setup has asked for in 30 days."""
    for old in parent.iterdir():
        if old.is_dir() and time.time() - old.stat().st_mtime > _UNUSED:
            shutil.rmtree(old)


def content_hash(paths: Iterable[Path], *extra: str) -> str:
    """Return the hash of the names and contents of source files and of the extra texts."""
    digest = sha256()
    for path in sorted(p for root in paths for p in _files(root)):
        digest.update(f"{path.name}\0{sha256(path.read_bytes()).hexdigest()}\0".encode())
    for text in extra:
        digest.update(f"{text}\0".encode())
    return digest.hexdigest()[:16]


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    return [p for p in root.iterdir() if p.is_file() and p.suffix in _SOURCES]
