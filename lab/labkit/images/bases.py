# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The images that setup makes: pause, and two Debian bases with Python.

debootstrap makes one tree. The base is that tree without files that a container never reads; the
build base has pip and venv too. Both are archives for `lab load`, and bases for `lab image build`.
"""

import shutil
import subprocess
from pathlib import Path

from labkit.host.places import SOURCES, Places
from labkit.images import rootfs
from labkit.images.archive import pack, write_archive
from labkit.images.builds import Build, content_hash
from labkit.images.programs import programs

PYTHON = "localhost/lab/python:1"
PYTHON_BUILD = "localhost/lab/python-build:1"
PAUSE = "localhost/lab/pause:1"
BASES = (PYTHON, PYTHON_BUILD)

_PYTHON_CONFIG = {
    "Cmd": ["python3"],
    "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
}


def pause_build(at: Places) -> Build:
    """Return the build of the pause image."""

    def make(scratch: Path, _log: Path) -> None:
        root = scratch / "root"
        root.mkdir()
        shutil.copy2(programs(at).pause, root / "pause")
        pack(root, scratch / "layer.tar")
        config = {"Entrypoint": ["/pause"]}
        write_archive(scratch / "layer.tar", scratch / "image.tar", tag=PAUSE, config=config)
        shutil.rmtree(root)
        (scratch / "layer.tar").unlink()

    program = programs(at).pause.parent.name
    digest = content_hash([SOURCES / "labkit/images/archive.py"], program, PAUSE)
    return Build("pause image", 1, at.builds / "images" / f"pause-{digest}", make)


def tree_build(at: Places) -> Build:
    """Return the build of the Debian tree that both bases come from."""

    def make(scratch: Path, log: Path) -> None:
        rootfs.bootstrap(scratch / "root", log)

    digest = content_hash([], rootfs.SUITE, *rootfs.INCLUDE)
    return Build("Debian tree", 60, at.builds / "images" / f"debian-{digest}", make)


def base_build(at: Places, tag: str) -> Build:
    """Return the build of a base image."""
    drop = rootfs.MACHINE_ONLY if tag == PYTHON_BUILD else rootfs.MACHINE_ONLY + rootfs.BUILD_ONLY
    name = tag.rsplit("/", maxsplit=1)[-1].replace(":", "-")

    def make(scratch: Path, _log: Path) -> None:
        root = scratch / "root"
        subprocess.run(["cp", "-a", str(tree_build(at).folder / "root"), str(root)], check=True)
        rootfs.strip(root, packages=drop)
        pack(root, scratch / "layer.tar")
        write_archive(scratch / "layer.tar", scratch / "image.tar", tag=tag, config=_PYTHON_CONFIG)
        shutil.rmtree(root)
        (scratch / "layer.tar").unlink()

    sources = [SOURCES / "labkit/images" / name for name in ("archive.py", "rootfs.py")]
    digest = content_hash(sources, tree_build(at).folder.name, tag)
    return Build(f"{tag} image", 6, at.builds / "images" / f"{name}-{digest}", make)


def builds(at: Places) -> list[Build]:
    """Return all image builds in the order of their dependencies."""
    return [pause_build(at), tree_build(at), base_build(at, PYTHON), base_build(at, PYTHON_BUILD)]


def archive(at: Places, tag: str) -> Path:
    """Return the archive of an image that setup makes."""
    build = pause_build(at) if tag == PAUSE else base_build(at, tag)
    return build.folder / "image.tar"
