# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The paths and builds of the lab's Go programs: the Kubernetes binary, containerd, pause.

Versions are pinned by the go.mod files next to the sources; only setup runs `go build`.
"""

import fcntl
import os
import re
from collections.abc import Mapping
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
# A compiler of one package ends soon, and collects its garbage too often by default.
_FASTER = {"GOGC": "300"}
# Without inlining, which costs a fifth of the compilers' time and saves these programs little.
_COMPILER = ("-gcflags", "all=-l")
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
    seconds: int  # expected duration on two cores with empty caches, together with the other builds
    arguments: tuple[str, ...]
    packages: tuple[str, ...] = (".",)

    @property
    def source(self) -> Path:
        """The folder with the go.mod."""
        return SOURCES / self.name


def builds(at: Places) -> list[Build]:
    """Return the Go builds: Kubernetes, containerd, pause."""
    return [kubernetes_build(at), containerd_build(at), pause_build(at)]


def programs(at: Places) -> Programs:
    """Return the paths of the programs, built or not."""
    containerd = containerd_build(at).folder
    return Programs(
        kubernetes=kubernetes_build(at).folder / "kubernetes",
        containerd=containerd / "containerd",
        ctr=containerd / "ctr",
        pause=pause_build(at).folder / "pause",
    )


def _build(at: Places, build: GoBuild) -> Build:
    def make(scratch: Path, log: Path) -> None:
        argv = ["go", "build", *_COMPILER, *build.arguments, "-o", f"{scratch}/", *build.packages]
        env = os.environ | _SETTINGS | _FASTER
        _build_library(at, log, env)
        # What runs at the same time, such as the checks of the code, is shorter.
        step, command = f"go build {build.name}", ["nice", *argv]
        run_step(step, command, log=log, cwd=build.source, env=env, expected=build.seconds)

    digest = content_hash([build.source], *_COMPILER, *build.arguments, *_SETTINGS.values())
    folder = at.builds / "programs" / f"{build.name}-{digest}"
    return Build(name=build.name, seconds=build.seconds, folder=folder, make=make)


def _build_library(at: Places, log: Path, env: Mapping[str, str]) -> None:
    """Put Go's own library into Go's build cache: two builds at once would compile it twice."""
    argv = ["nice", "go", "build", *_COMPILER, "std"]
    with (at.builds / "programs" / "library.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run_step("go build std", argv, log=log, env=env, expected=25)


def version_of(module: str, go_mod: str) -> str:
    """Read a module's pinned version from the text of a go.mod."""
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} v(\S+)", go_mod, re.MULTILINE)
    if not match:
        raise Problem(f"go.mod does not require {module}: restore it from version control")
    return match[1]


def kubernetes_build(at: Places) -> Build:
    """Return the build of the one program that has all components of Kubernetes."""
    version = version_of("k8s.io/kubernetes", (SOURCES / "kubernetes/go.mod").read_text())
    major, minor = version.split(".")[:2]
    package = "k8s.io/component-base/version"
    stamp = [f"gitVersion=v{version}", f"gitMajor={major}", f"gitMinor={minor}"]
    flags = " ".join([_STRIP, *(f"-X {package}.{s}" for s in stamp)])
    return _build(at, GoBuild("kubernetes", 420, ("-ldflags", flags)))


def containerd_build(at: Places) -> Build:
    """Return the build of containerd, its shim and ctr."""
    version = version_of(_CONTAINERD, (SOURCES / "containerd/go.mod").read_text())
    flags = f"{_STRIP} -X {_CONTAINERD}/version.Version=v{version}"
    packages = tuple(f"{_CONTAINERD}/cmd/{p}" for p in _CONTAINERD_PROGRAMS)
    tags = "no_btrfs,no_devmapper,no_zfs"  # their C headers are not on every machine
    return _build(at, GoBuild("containerd", 200, ("-tags", tags, "-ldflags", flags), packages))


def pause_build(at: Places) -> Build:
    """Return the build of the program of a Pod's sandbox."""
    return _build(at, GoBuild("pause", 3, ("-ldflags", _STRIP)))
