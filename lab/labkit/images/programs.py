# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The paths and builds of the lab's Go programs: the Kubernetes binary, containerd, pause.

Versions are pinned by the go.mod files next to the sources; only setup runs `go build`.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import Problem
from labkit.host.places import SOURCES, Places
from labkit.host.progress import run_step
from labkit.images.builds import Build, content_hash

_CONTAINERD = "github.com/containerd/containerd/v2"
_STRIP = "-s -w"
# Without C, so that the build is the same whether this machine has a compiler for it or not.
_SETTINGS = {"GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "0"}
_CONTAINERD_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")


@dataclass(frozen=True)
class Programs:
    """The paths of what setup built."""

    kubernetes: Path
    containerd: Path
    ctr: Path
    pause: Path

    def missing(self) -> list[str]:
        """Return the names of the programs that are not built yet."""
        everything = (self.kubernetes, self.containerd, self.ctr, self.pause)
        return [p.name for p in everything if not p.exists()]


@dataclass(frozen=True)
class GoBuild:
    """What `go build` is called for."""

    name: str
    seconds: int  # expected duration on two cores with empty caches
    arguments: tuple[str, ...]
    packages: tuple[str, ...] = (".",)

    @property
    def source(self) -> Path:
        """The folder with the go.mod."""
        return SOURCES / self.name


def builds(at: Places) -> list[Build]:
    """Return the Go builds: Kubernetes, containerd, pause."""
    return [_build(at, build) for build in (_kubernetes(), _containerd(), _pause())]


def programs(at: Places) -> Programs:
    """Return the paths of the programs, built or not."""
    kubernetes, containerd, pause = (b.folder for b in builds(at))
    return Programs(
        kubernetes=kubernetes / "kubernetes",
        containerd=containerd / "containerd",
        ctr=containerd / "ctr",
        pause=pause / "pause",
    )


def _build(at: Places, build: GoBuild) -> Build:
    def make(scratch: Path, log: Path) -> None:
        argv = ["go", "build", *build.arguments, "-o", f"{scratch}/", *build.packages]
        env = os.environ | _SETTINGS
        # What runs at the same time, such as the checks of the code, is shorter.
        run_step(f"go build {build.name}", ["nice", *argv], log=log, cwd=build.source, env=env)

    digest = content_hash([build.source], *build.arguments, *_SETTINGS.values())
    folder = at.builds / "programs" / f"{build.name}-{digest}"
    return Build(name=build.name, seconds=build.seconds, folder=folder, make=make)


def version_of(module: str, go_mod: str) -> str:
    """Read a module's pinned version from the text of a go.mod."""
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} v(\S+)", go_mod, re.MULTILINE)
    if not match:
        raise Problem(f"go.mod does not require {module}: restore it from version control")
    return match[1]


def _kubernetes() -> GoBuild:
    version = version_of("k8s.io/kubernetes", (SOURCES / "kubernetes/go.mod").read_text())
    major, minor = version.split(".")[:2]
    package = "k8s.io/component-base/version"
    stamp = [f"gitVersion=v{version}", f"gitMajor={major}", f"gitMinor={minor}"]
    flags = " ".join([_STRIP, *(f"-X {package}.{s}" for s in stamp)])
    return GoBuild("kubernetes", 330, ("-ldflags", flags))


def _containerd() -> GoBuild:
    version = version_of(_CONTAINERD, (SOURCES / "containerd/go.mod").read_text())
    flags = f"{_STRIP} -X {_CONTAINERD}/version.Version=v{version}"
    packages = tuple(f"{_CONTAINERD}/cmd/{p}" for p in _CONTAINERD_PROGRAMS)
    tags = "no_btrfs,no_devmapper,no_zfs"  # their C headers are not on every machine
    return GoBuild("containerd", 60, ("-tags", tags, "-ldflags", flags), packages)


def _pause() -> GoBuild:
    return GoBuild("pause", 3, ("-ldflags", _STRIP))
