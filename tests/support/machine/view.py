# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a command that sees no file of any package which its target does not install.

    python -m tests.support.machine.view lab -- make demo

The command and its children have a mount namespace of their own, with an overlay over /usr and /opt
that hides the rest: programs, libraries and data, by name and by path. Left are the base of every
Debian, make, Go, Python, and the packages of `labkit.host.packages`. A view can be inside another
one: the tests see their packages, and the labs that they start do not. Network namespaces are the
same in both.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from labkit.host import packages
from tests.support import ROOT
from tests.support.machine import debian

WANTED: Mapping[str, Mapping[str, str]] = {
    "lab": packages.lab(),
    "tests": {**packages.lab(), **packages.TESTS},
    "all": {**packages.lab(), **packages.TESTS, **packages.MACHINE},
}
# What README.md asks for and is a package on every machine; Go and Python may be anything.
_README = "make"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LISTS = Path("/var/lib/dpkg/info")
_TOPS = ("/usr", "/opt")
_PROGRAMS = ("/usr/bin", "/usr/sbin")
_NAMESPACES = "/run/netns"
_INSIDE = "--inside"
# Set in a view, to its name.
_VARIABLE = "MACHINE_VIEW"


def inner(which: str, command: Sequence[str]) -> list[str]:
    """Return what runs a command in another view if this process is in one, else unchanged."""
    if _VARIABLE not in os.environ:
        return list(command)
    return [sys.executable, "-m", __name__, which, "--", *command]


def files_of_packages() -> dict[str, set[str]]:
    """Return the paths of each installed package, as they are after links such as /bin."""
    moved = {f"/{top}/": f"/usr/{top}/" for top in ("bin", "sbin", "lib", "lib32", "lib64")}
    found: dict[str, set[str]] = {}
    for listing in _LISTS.glob("*.list"):
        paths = found.setdefault(listing.stem.partition(":")[0], set())
        for line in listing.read_text().splitlines():
            top = next((old for old in moved if line.startswith(old)), None)
            paths.add(moved[top] + line.removeprefix(top) if top else line)
    return found


def needed_programs() -> dict[str, Path]:
    """Return where Go and this Python are installed."""
    go = shutil.which("go")
    assert go, "there is no go"
    return {"go": Path(go).resolve().parents[1], "python": Path(sys.base_prefix).resolve()}


def _owners(files: Mapping[str, set[str]], programs: Iterable[Path]) -> Iterator[str]:
    """Yield the packages that Go and Python come from, if they come from packages."""
    for top in programs:
        for name in ("go", "python3.11"):
            path = str((top / "bin" / name).resolve())
            yield from (package for package, paths in files.items() if path in paths)


def hidden_paths(wanted: Iterable[str]) -> set[str]:
    """Return the paths of this machine that a target with these packages must not see."""
    shown = subprocess.run(
        ["dpkg-query", "--show", f"--showformat={debian.FORMAT}"],
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    installed, files = debian.parse(shown.stdout), files_of_packages()
    programs = needed_programs().values()
    own = [_README, *_owners(files, programs)]
    kept = debian.closure(installed, [*wanted, *own])
    present = {path for top in _TOPS for path in _walk(top)}
    visible = {path for name in kept for path in files[name]}
    unpackaged = _unpackaged(visible, [*programs, *_wheels()])
    return debian.topmost({*debian.foreign(files, kept, present), *unpackaged})


def _wheels() -> list[Path]:
    """Return the folder that pip takes packages from on this machine, if it has one."""
    return [Path(text) for text in os.environ.get("PIP_FIND_LINKS", "").split() if text[0] == "/"]


def _walk(top: str) -> Iterator[str]:
    for folder, folders, names in os.walk(top):
        yield folder
        yield from (f"{folder}/{name}" for name in (*folders, *names))


def _unpackaged(visible: set[str], kept: Iterable[Path]) -> Iterator[str]:
    """Yield what was installed without a package: in /usr/local, in /opt, among the programs."""
    for folder in ("/usr/local", "/opt"):
        yield from _outside(Path(folder), [path for path in kept if path.is_relative_to(folder)])
    for folder in _PROGRAMS:
        for path in Path(folder).iterdir():
            # A link of Debian's alternatives belongs to no package, what it leads to does.
            if visible.isdisjoint([str(path), str(path.resolve())]):
                yield str(path)


def _outside(folder: Path, kept: list[Path]) -> Iterator[str]:
    for entry in folder.iterdir():
        if not any(path.is_relative_to(entry) for path in kept):
            yield str(entry)
        elif entry not in kept:
            yield from _outside(entry, kept)


def hide(paths: Iterable[str], scratch: Path) -> None:
    """Hide these paths in the mount namespace of this process, which must be its own."""
    scratch.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "view", str(scratch))
    for path in paths:
        mask = scratch / path.lstrip("/")
        mask.parent.mkdir(parents=True, exist_ok=True)
        # An overlay takes such a device for "removed".
        os.mknod(mask, stat.S_IFCHR | 0o600, os.makedev(0, 0))
    # An overlay shows one file system: what is mounted below is covered one by one, too.
    covered = [*_TOPS, *_mounted_below(_TOPS)]
    whole = {point: scratch / f"mounts/{number}" for number, point in enumerate(covered)}
    for point, copy in whole.items():
        copy.mkdir(parents=True)
        _mount("--bind", point, str(copy))
    for point, copy in whole.items():
        mask = scratch / point.lstrip("/")
        if mask.is_dir():
            _mount("-t", "overlay", "-o", f"lowerdir={mask}:{copy}", "overlay", point)
        elif Path(point).is_dir() and point not in _TOPS:
            _mount("--bind", str(copy), point)


def _mounted_below(tops: Iterable[str]) -> list[str]:
    """Return the folders below these on which something is mounted, the outer ones first."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    below = {p for p in points if any(p.startswith(f"{top}/") for top in tops)}
    return sorted(point for point in below if Path(point).is_dir())


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _show_all() -> None:
    """Remove the overlays of the outer view, here only: overlays over overlays are limited."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    ours = {point for device, point, *_options in mounts if device == "overlay"} & set(_TOPS)
    for top in ours:  # with what is mounted below
        subprocess.run(["umount", "--lazy", top], check=True)


def _share_namespaces() -> None:
    """Let views inside this one see each other's network namespaces, and nothing else."""
    Path(_NAMESPACES).mkdir(exist_ok=True)
    _mount("--bind", _NAMESPACES, _NAMESPACES)
    _mount("--make-shared", _NAMESPACES)


def _environment(which: str) -> dict[str, str]:
    own = [str(path / "bin") for path in needed_programs().values() if path != Path("/usr")]
    return {**os.environ, "PATH": ":".join([*own, _PATH]), _VARIABLE: which}


def main() -> None:
    """Run the command; this process becomes it."""
    arguments = sys.argv[1:]
    is_first = _VARIABLE not in os.environ
    if arguments[:1] != [_INSIDE]:
        propagation = "private" if is_first else "unchanged"
        own = ["unshare", "--mount", "--propagation", propagation, "--"]
        again = [*own, sys.executable, "-m", str(__spec__ and __spec__.name), _INSIDE, *arguments]
        os.execvp(again[0], again)  # noqa: S606 - becomes it
    _inside, which, _dashes, *command = arguments
    environment = _environment(which)
    if is_first:
        _share_namespaces()
    else:
        _show_all()
    hide(hidden_paths(WANTED[which]), ROOT / ".cache/view")
    os.execvpe(command[0], command, environment)  # noqa: S606 - becomes it


if __name__ == "__main__":
    main()
