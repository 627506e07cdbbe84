# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""`lab setup`: installs Debian and Python packages, builds programs and base images, once.

Everything except the packages goes to the user's cache. A second run builds nothing. The parts can
run at the same time, each in a process of its own; a part waits for what another one is building.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence

from labkit.cluster import prerequisites
from labkit.host import packages
from labkit.host.places import Places
from labkit.host.progress import retry, run_step
from labkit.images import bases, builds, environment, kernel, programs
from labkit.images.builds import Build

# Debian starts these services on installation; the lab runs the programs itself, in its hosts.
_SERVICES = ("frr", "prometheus")


def setup(at: Places, parts: Sequence[str]) -> None:
    """Install and build what is missing of these parts, or of the lab's own if none is named."""
    start = time.monotonic()
    for part in parts or LAB:
        PARTS[part](at)
    if not parts:
        print(f"ready to go up; this took {time.monotonic() - start:.1f} s")


def _ensure(at: Places, wanted: Sequence[Build]) -> None:
    for build in wanted:
        if build.ensure(logs=at.cache / "logs"):
            print(left(_lab_builds(at)), flush=True)
    for parent in {build.folder.parent for build in wanted}:
        builds.prune(parent)


def _lab_builds(at: Places) -> list[Build]:
    return [*programs.builds(at), *bases.builds(at)]


def left(wanted: Sequence[Build]) -> str:
    """Return what is still to be built of these, and how long that takes on two cores."""
    missing = [f"{build.name} (about {build.seconds} s)" for build in wanted if not build.is_done]
    return f"to be built: {', '.join(missing) or 'nothing'}"


def _packages(at: Places) -> None:
    wanted = packages.lab()
    prerequisites.check(at, wanted)
    if _install(at, wanted):
        prerequisites.check(at, wanted)


def _python(at: Places) -> None:
    environment.ensure(at)
    builds.prune(environment.folder(at).parent)


def _kubernetes(at: Places) -> None:
    build = programs.kubernetes_build(at)
    if not build.is_done:
        # All others end before it.
        print(left(_lab_builds(at)), flush=True)
    _ensure(at, [build])


def _containerd(at: Places) -> None:
    _ensure(at, [programs.containerd_build(at)])


def _images(at: Places) -> None:
    _ensure(at, [programs.pause_build(at), *bases.builds(at)])


def _tests(at: Places) -> None:
    _install(at, packages.TESTS)


def _bench(at: Places) -> None:
    _install(at, packages.BENCH)


def _machine(at: Places) -> None:
    _install(at, packages.MACHINE)
    _ensure(at, [kernel.kernel_build(at)])


PARTS: dict[str, Callable[[Places], None]] = {
    "packages": _packages,
    "python": _python,
    "kubernetes": _kubernetes,
    "containerd": _containerd,
    "images": _images,
    "tests": _tests,
    "bench": _bench,
    "machine": _machine,
}
LAB = ("packages", "python", "kubernetes", "containerd", "images")


def _install(at: Places, wanted: Mapping[str, str]) -> bool:
    """Install the missing ones of these Debian packages; return whether any was missing."""
    missing = packages.missing(wanted)
    if not missing:
        return False
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    log = at.cache / "logs" / "apt.log"
    print(f"Debian packages: {', '.join(missing)}", flush=True)

    def apt(step: str, *argv: str) -> None:
        # Another apt of this machine holds its lock for a while.
        command = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", *argv]
        retry(lambda: run_step(step, command, log=log, env=env))

    apt("apt-get update", "update")
    apt("apt-get install", "install", "-y", "--no-install-recommends", *missing)
    for service in filter(missing.__contains__, _SERVICES):
        # Stop and disable it.
        run_step(f"stop {service}", ["invoke-rc.d", service, "stop"], log=log)
        run_step(f"disable {service}", ["update-rc.d", service, "disable"], log=log)
    return True
