# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Checks before setup installs or builds anything: what this machine lacks, in the first seconds.

Only what is still to be done is checked, so a machine that is set up needs no network.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from labkit.cluster import preflight
from labkit.errors import Problem
from labkit.host import packages
from labkit.host.places import SOURCES, Places
from labkit.images import bases, environment, programs, rootfs

MIN_FREE = 12  # GiB; Go's module and build caches, the binaries, the base images
_SECONDS = 10.0  # that a source may take to answer
_APT_HELPER = "/usr/lib/apt/apt-helper"
# From this version on, Go fetches the version that a go.mod asks for, unless told otherwise.
_FETCHES_ITSELF = (1, 21)
# Packages without which nothing can be fetched from Go's and Python's sources.
_FOR_DOWNLOADS = {"ca-certificates", "python3-venv"}
Version = tuple[int, int]


def check(at: Places, wanted: Mapping[str, str]) -> None:
    """Refuse a machine on which setup, or the lab after it, cannot succeed.

    What needs a package that is still missing is not checked: call this again after installing it.
    Raises Problem with one line for all that is wrong.
    """
    preflight.check_folder(at)
    with ThreadPoolExecutor() as pool:
        found = [problem for problem in pool.map(_problem_of, _checks(at, wanted)) if problem]
    if found:
        raise Problem("; ".join(found))


def _checks(at: Places, wanted: Mapping[str, str]) -> Iterator[Callable[[], None]]:
    absent = packages.missing(wanted)
    unbuilt = not all(build.is_done for build in programs.builds(at))
    no_tree = not bases.tree_build(at).is_done
    if absent or unbuilt:
        yield lambda: preflight.check_kernel(absent=absent)
    if unbuilt or no_tree:
        yield lambda: preflight.check_disk(at.builds, gib=MIN_FREE)
    if absent or no_tree:
        yield check_debian
    if unbuilt:
        yield check_go
    if _FOR_DOWNLOADS & set(absent):
        return
    if unbuilt and shutil.which("go"):
        yield check_modules
    if not environment.is_done(at):
        yield lambda: check_index(at)


def _problem_of(test: Callable[[], None]) -> str:
    try:
        test()
    except Problem as problem:
        return str(problem)
    return ""


def check_go() -> None:
    """Refuse a machine without Go, or with one that is too old."""
    if not shutil.which("go"):
        raise Problem(f"there is no 'go' on PATH: install Go {_text(required_go())} or later")
    # What is installed, not what it would fetch for a go.mod.
    done = _run(["go", "env", "GOVERSION"], GOTOOLCHAIN="local")
    chosen = _run(["go", "env", "GOTOOLCHAIN"]).stdout.strip()
    if problem := go_problem(done.stdout, required_go(), toolchain=chosen):
        raise Problem(problem)


def required_go() -> Version:
    """Return the version of Go that the lab's programs need."""
    text = (SOURCES / "kubernetes/go.mod").read_text()
    return _version(re.search(r"^go (\S+)", text, re.MULTILINE), text)


def go_problem(installed: str, required: Version, *, toolchain: str) -> str:
    """Return why this version of Go will not do, or nothing.

    Arguments: what `go env GOVERSION` and `go env GOTOOLCHAIN` print.
    """
    have = _version(re.search(r"go(\S+)", installed), installed)
    fetches = have >= _FETCHES_ITSELF and toolchain != "local"
    if have >= required or fetches:
        return ""
    return f"Go {_text(have)} is too old: install {_text(required)} or later"


def _version(match: re.Match[str] | None, text: str) -> Version:
    numbers = re.match(r"(\d+)\.(\d+)", match[1]) if match else None
    if not numbers:
        raise Problem(f"no version of Go in {text.strip()!r}: install Go from its own archive")
    return int(numbers[1]), int(numbers[2])


def _text(version: Version) -> str:
    return ".".join(map(str, version))


def check_modules() -> None:
    """Refuse if Go cannot fetch modules."""
    text = (SOURCES / "kubernetes/go.mod").read_text()
    module = "k8s.io/kubernetes"
    argv = ["go", "list", "-m", f"{module}@v{programs.version_of(module, text)}"]
    _ask(argv, "Go modules", "set GOPROXY", GOFLAGS="-mod=mod")


def check_debian() -> None:
    """Refuse if apt has no source of the release, or cannot fetch from it."""
    uri = f"{rootfs.mirror().rstrip('/')}/dists/{rootfs.SUITE}/InRelease"
    quick = [f"Acquire::{scheme}::Timeout={_SECONDS:.0f}" for scheme in ("http", "https")]
    options = [word for option in (*quick, "Acquire::Retries=0") for word in ("-o", option)]
    with tempfile.TemporaryDirectory() as folder:
        argv = [_APT_HELPER, *options, "download-file", uri, f"{folder}/InRelease"]
        _ask(argv, "Debian packages", "change the sources in /etc/apt")


def check_index(at: Places) -> None:
    """Refuse if pip cannot fetch packages."""
    python = environment.prepare(at)
    if error := environment.reach_index(python, seconds=_SECONDS):
        raise Problem(_unreachable("Python packages", error, "set PIP_INDEX_URL"))


def _ask(argv: Sequence[str], what: str, remedy: str, **settings: str) -> None:
    done = _run(argv, **settings)
    if done.returncode:
        raise Problem(_unreachable(what, done.stderr, remedy))


def _run(argv: Sequence[str], **settings: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv, env={**os.environ, **settings}, cwd="/", timeout=2 * _SECONDS,
            text=True, capture_output=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        text = f"no answer within {error.timeout:.0f} s"
        return subprocess.CompletedProcess(argv, returncode=1, stdout="", stderr=text)


def _unreachable(what: str, error: str, remedy: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    reason = lines[0] if lines else "no reason given"
    return f"{what} cannot be fetched ({reason}): check the network, or {remedy}"
