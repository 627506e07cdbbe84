# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""`lab setup`: installs Debian packages and builds programs and base images, once.

Everything except the packages goes to the cache. A second run builds nothing.
"""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from labkit.cluster import preflight, state
from labkit.host.places import Places
from labkit.host.progress import run_step
from labkit.images import bases, kernel, programs
from labkit.images.builds import Build

# Debian starts these services on installation; the lab runs the programs itself, in its hosts.
_SERVICES = ("frr", "prometheus")


def setup(at: Places) -> None:
    """Install and build what is missing. Raises Problem if another setup runs."""
    with state.locked(at.cache / "setup.lock", "setup"):
        _setup(at)


def _setup(at: Places) -> None:
    builds = [*programs.builds(at), *bases.builds(at), kernel.kernel_build(at)]
    start = time.monotonic()
    install_packages(at)
    if not all(b.is_done for b in builds):
        preflight.check_go()
        preflight.check_disk(at.cache, gib=preflight.MIN_FREE_SETUP)
    preflight.check_kernel()
    for build in builds:
        build.ensure(logs=at.cache / "logs")
    if not at.run.exists() and not at.others:
        prune(builds)
    for tag in bases.BASES:
        size = bases.archive(at, tag).stat().st_size
        print(f"{tag}: {size / 1e6:.0f} MB, {bases.archive(at, tag)}")
    print(f"ready to go up; this took {time.monotonic() - start:.1f} s")


def prune(builds: Sequence[Build]) -> None:
    """Remove builds of other versions of the sources."""
    wanted = {b.folder for b in builds}
    for parent in {b.folder.parent for b in builds}:
        for old in set(parent.iterdir()) - wanted:
            shutil.rmtree(old)


def install_packages(at: Places) -> None:
    """Install the missing Debian packages one by one, so that a failure names the package."""
    missing = preflight.missing_packages()
    if not missing:
        return
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    log = at.cache / "logs" / "apt.log"
    print(f"Debian packages: {', '.join(missing)}; about 5 s each", flush=True)
    run_step("apt-get update", ["apt-get", "update", "-q"], log=log, env=env)
    for package in missing:
        argv = ["apt-get", "install", "-q", "-y", "--no-install-recommends", package]
        run_step(f"install {package}", argv, log=log, env=env)
        if package in _SERVICES:
            _end_service(package, log)
        print(f"{package}: installed", flush=True)


def _end_service(name: str, log: Path) -> None:
    """Stop and disable a service of a package that was just installed."""
    run_step(f"stop {name}", ["invoke-rc.d", name, "stop"], log=log)
    run_step(f"disable {name}", ["update-rc.d", name, "disable"], log=log)
