# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The Python packages of the checkout, in a virtual environment that `.venv` leads to.

All checkouts with the same requirements and the same Python share it. It is installed at its own
path, because the first line of each script in it names that path.
"""

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from labkit.errors import Problem
from labkit.host.places import SOURCES, Places
from labkit.host.progress import retry, run_step

ROOT = SOURCES.parent
REQUIREMENTS = ROOT / "requirements-dev.txt"
LINK = ROOT / ".venv"
_PIP = ("-m", "pip", "--disable-pip-version-check")
_PREPARED, _COMPLETE = "prepared", "complete"
_SMALL = "pytest-timeout"  # one of the smallest of the packages


def folder(at: Places) -> Path:
    """Return the environment's folder, which exists when it was prepared."""
    inputs = (REQUIREMENTS.read_text(), sys.version, sys.base_prefix)
    return at.builds / "python" / sha256("\0".join(inputs).encode()).hexdigest()[:16]


def is_done(at: Places) -> bool:
    """Whether all packages are installed."""
    return (folder(at) / _COMPLETE).exists()


def prepare(at: Places) -> Path:
    """Make the environment without its packages, unless it exists; return its Python."""
    with _locked(at):
        return _prepare(at)


def ensure(at: Places) -> None:
    """Install the packages unless they are, and let `.venv` lead to them."""
    if LINK.exists() and not LINK.is_symlink():
        raise Problem(f"{LINK} is a folder and must be a link: remove it")
    here = folder(at)
    with _locked(at):
        if is_done(at):
            os.utime(here)  # for `prune`
        else:
            python = _prepare(at)
            (here / _PREPARED).unlink()  # what is interrupted from here on begins again
            _install(at, python)
            (here / _COMPLETE).touch()
    if not LINK.is_symlink() or LINK.readlink() != here:
        new = LINK.with_name(f".venv.{os.getpid()}")
        new.symlink_to(here)
        new.rename(LINK)


@contextmanager
def _locked(at: Places) -> Iterator[None]:
    """Wait until no other setup changes the environment."""
    here = folder(at)
    here.parent.mkdir(parents=True, exist_ok=True)
    with here.with_name(f"{here.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _prepare(at: Places) -> Path:
    here = folder(at)
    if not any((here / mark).exists() for mark in (_PREPARED, _COMPLETE)):
        argv = [sys.executable, "-m", "venv", "--clear", str(here)]
        run_step("make a virtual environment", argv, log=_log(at))
        (here / _PREPARED).touch()
    return here / "bin/python"


def _install(at: Places, python: Path) -> None:
    print("Python packages: installing, about 60 s", flush=True)
    start = time.monotonic()
    argv = [str(python), *_PIP, "install", "--requirement", str(REQUIREMENTS)]
    retry(lambda: run_step("pip install", argv, log=_log(at)))
    print(f"Python packages: done in {time.monotonic() - start:.0f} s", flush=True)


def _log(at: Places) -> Path:
    return at.cache / "logs" / "python.log"


def reach_index(python: Path, *, seconds: float) -> str:
    """Fetch one small package from the index; return why that failed, or nothing."""
    quick = ["--retries", "0", "--timeout", f"{seconds:.0f}", "--no-deps", "--no-cache-dir"]
    with tempfile.TemporaryDirectory() as target:
        argv = [str(python), *_PIP, "download", *quick, "--dest", target, _SMALL]
        done = subprocess.run(argv, text=True, capture_output=True, check=False)
    return "" if done.returncode == 0 else done.stderr
