# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Virtual environments with another ansible-core or another Python than ours."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from labkit.images import rootfs
from tests.support import ROOT

# What a newcomer installs by pip, at the versions of our own environment.
PACKAGES = ("ansible-core", "kubernetes")
# What tests of the modules need too.
OF_TESTS = (
    "hypothesis",
    "pyroute2",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
    "scapy",
)
# Each ansible-core that the collection is for, and the Debian that has a Python for it:
# docs/versions.md has the same table.
SUITES = {
    "2.17": "bookworm",
    "2.18": "bookworm",
    "2.19": "bookworm",
    "2.20": "trixie",
    "2.21": "trixie",
}
DEBIAN = {"bookworm": 12, "trixie": 13}
_FOLDER = ROOT / ".cache/debian"
# Runs a command in another root folder that sees some folders of this machine.
_ENTER = """
set -e
root=$1; shift
while [ "$1" != -- ]; do mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; shift; done
shift
exec chroot "$root" env --chdir="$PWD" "$@"
"""


@dataclass(frozen=True)
class Environment:
    """Programs, and the command that leads to where they run."""

    programs: Path
    enter: tuple[str, ...] = ()

    def argv(self, program: str, *arguments: str | Path) -> list[str]:
        """Return the command that runs one of the programs."""
        return [*self.enter, str(self.programs / program), *map(str, arguments)]


OURS = Environment(Path(sys.executable).parent)


def new_environment(
    folder: Path,
    *,
    enter: tuple[str, ...] = (),
    versions: Mapping[str, str] | None = None,
    packages: tuple[str, ...] = PACKAGES,
) -> Environment:
    """Make a virtual environment with what the installation page asks for.

    `versions`: of packages, instead of the versions of our own environment.
    """
    pinned = {**requirements(), **(versions or {})}
    wanted = [f"{name}=={pinned[name]}" for name in packages]
    python = "/usr/bin/python3" if enter else sys.executable
    subprocess.run([*enter, python, "-m", "venv", folder], check=True)
    made = Environment(folder / "bin", enter)
    pip = made.argv("pip", "install", "--quiet", "--retries", "5", *wanted)
    subprocess.run(pip, check=True, capture_output=True)
    return made


def requirements() -> dict[str, str]:
    """Return the packages of our own environment with their versions."""
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def debian(suite: str, shared: Path) -> tuple[str, ...]:
    """Return the command before a command that is to run in this Debian; it is fetched if needed.

    `shared`: a folder that both see, in addition to the checkout.
    """
    root = _FOLDER / suite
    if not root.exists():
        # Under another name until it is whole, as this may be interrupted.
        part, debs = _FOLDER / f"{suite}.part", _FOLDER / "debs"
        shutil.rmtree(part, ignore_errors=True)
        debs.mkdir(parents=True, exist_ok=True)
        include = ("python3", "python3-venv", "ca-certificates")
        rootfs.bootstrap(part, _FOLDER / "log", include=include, cache=debs, suite=suite)
        for name in ("hosts", "resolv.conf"):
            (part / "etc" / name).write_bytes(Path("/etc", name).read_bytes())
        part.rename(root)
    wheels = shlex.split(os.environ.get("PIP_FIND_LINKS", ""))
    seen = ["/proc", "/sys", "/dev", "/etc/ssl/certs", str(ROOT), str(shared)]
    seen += [folder for folder in wheels if Path(folder).is_dir()]
    namespace = ("unshare", "--mount", "--propagation", "private", "--")
    return (*namespace, "bash", "-c", _ENTER, "enter", str(root), *seen, "--")
