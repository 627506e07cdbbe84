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
from labkit.images.builds import Build, Make, content_hash

_CONTAINERD = "github.com/containerd/containerd/v2"
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


def builds(at: Places) -> list[Build]:
    """Return the Go builds: Kubernetes, containerd, pause."""
    return [
        _build(at, "kubernetes", 330, _make_kubernetes),
        _build(at, "containerd", 60, _make_containerd),
        _build(at, "pause", 3, _make_pause),
    ]


def programs(at: Places) -> Programs:
    """Return the paths of the programs, built or not."""
    kubernetes, containerd, pause = (b.folder for b in builds(at))
    return Programs(
        kubernetes=kubernetes / "hyper",
        containerd=containerd / "containerd",
        ctr=containerd / "ctr",
        pause=pause / "pause",
    )


def _build(at: Places, name: str, seconds: int, make: Make) -> Build:
    digest = content_hash([SOURCES / name])
    folder = at.builds / "programs" / f"{name}-{digest}"
    return Build(name=name, seconds=seconds, folder=folder, make=make)


def version_of(module: str, go_mod: str) -> str:
    """Read a module's pinned version from the text of a go.mod."""
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} v(\S+)", go_mod, re.MULTILINE)
    if not match:
        raise Problem(f"go.mod does not require {module}: restore it from version control")
    return match[1]


def _make_kubernetes(scratch: Path, log: Path) -> None:
    source = SOURCES / "kubernetes"
    version = version_of("k8s.io/kubernetes", (source / "go.mod").read_text())
    major, minor = version.split(".")[:2]
    package = "k8s.io/component-base/version"
    stamp = [f"gitVersion=v{version}", f"gitMajor={major}", f"gitMinor={minor}"]
    flags = " ".join(["-s -w", *(f"-X {package}.{s}" for s in stamp)])
    _go_build("kubernetes", source, log, "-ldflags", flags, "-o", f"{scratch}/hyper", ".")


def _make_containerd(scratch: Path, log: Path) -> None:
    source = SOURCES / "containerd"
    version = version_of(_CONTAINERD, (source / "go.mod").read_text())
    flags = f"-s -w -X {_CONTAINERD}/version.Version=v{version}"
    packages = [f"{_CONTAINERD}/cmd/{p}" for p in _CONTAINERD_PROGRAMS]
    tags = "no_btrfs,no_devmapper,no_zfs"  # their C headers are not on every machine
    _go_build(
        "containerd", source, log, "-tags", tags, "-ldflags", flags, "-o", f"{scratch}/", *packages
    )


def _make_pause(scratch: Path, log: Path) -> None:
    _go_build("pause", SOURCES / "pause", log, "-ldflags", "-s -w", "-o", f"{scratch}/pause", ".")


def _go_build(name: str, source: Path, log: Path, *argv: str) -> None:
    env = os.environ | {"GOFLAGS": "-buildvcs=false"}
    # What runs at the same time, such as the checks of the code, is shorter.
    run_step(f"go build {name}", ["nice", "go", "build", *argv], log=log, cwd=source, env=env)
