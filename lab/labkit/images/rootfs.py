# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""A Debian tree for containers: made by debootstrap, then freed of what no container reads.

Packages go by their own file lists, not by dpkg: half of them are essential to Debian, and none to
a container that runs one program. dpkg's status is kept true, for scanners of the image.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from labkit.errors import Problem
from labkit.host.progress import run_step

SUITE = "bookworm"
# The C++ library is for gRPC, as an official Python image has it.
INCLUDE = ("python3", "ca-certificates", "libstdc++6", "python3-venv", "python3-pip")

# Needed to build an image, not to run one.
BUILD_ONLY = (
    "python3-pip",
    "python3-venv",
    "python3.11-venv",
    "python3-pip-whl",
    "python3-setuptools-whl",
    "python3-setuptools",
    "python3-pkg-resources",
    "python3-wheel",
)
# Of a machine that installs packages, has disks and lets users log in.
MACHINE_ONLY = (
    "adduser",
    "apt",
    "bsdutils",
    "debconf",
    "debian-archive-keyring",
    "diffutils",
    "dpkg",
    "e2fsprogs",
    "gpgv",
    "init-system-helpers",
    "libapt-pkg6.0",
    "libblkid1",
    "libext2fs2",
    "libfdisk1",
    "libgcrypt20",
    "libgnutls30",
    "libhogweed6",
    "libidn2-0",
    "libmount1",
    "libnettle8",
    "libp11-kit0",
    "libpam-modules",
    "libpam-runtime",
    "libsemanage2",
    "libsepol2",
    "libsmartcols1",
    "libss2",
    "libsystemd0",
    "libudev1",
    "libunistring2",
    "login",
    "logsave",
    "mount",
    "ncurses-bin",
    "openssl",
    "passwd",
    "perl-base",
    "sysvinit-utils",
    "util-linux",
    "util-linux-extra",
)
# Of any package: never read by a program that runs; and what debootstrap took from this machine.
UNREAD = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bash-completion",
    "usr/share/pixmaps",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/lib/python3.11/pydoc_data",
    "etc/apt",
    "var/cache",
    "var/lib/apt",
    "var/log",
)
OF_THIS_MACHINE = ("etc/hostname", "etc/resolv.conf")


def bootstrap(
    root: Path,
    log: Path,
    *,
    include: Sequence[str] = INCLUDE,
    cache: Path | None = None,
    suite: str = SUITE,
) -> None:
    """Fetch and unpack Debian with these packages; keep what was fetched in a cache, if given."""
    options = ["--variant=minbase", f"--include={','.join(include)}"]
    if cache:
        options.append(f"--cache-dir={cache}")
    argv = ["debootstrap", *options, suite, str(root), mirror()]
    # Its mounts end with it, also when it is killed.
    run_step("debootstrap", ["unshare", "--mount", "--", *argv], log=log)


def mirror() -> str:
    """Return where this machine gets Debian's packages from."""
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(CREATED_BY)"],
        text=True,
        capture_output=True,
        check=False,
    )
    for line in done.stdout.splitlines():
        uri, suite, kind = line.split(" ", 2)
        if suite == SUITE and kind == "Packages":
            return uri
    raise Problem(f"apt has no source for {SUITE}: add one to /etc/apt/sources.list.d")


def strip(root: Path, *, packages: Iterable[str]) -> None:
    """Remove packages and files that nothing reads."""
    for package in packages:
        _remove_package(root, package)
    _forget(root / "var/lib/dpkg/status", set(packages))
    for name in UNREAD:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in OF_THIS_MACHINE:
        (root / name).unlink(missing_ok=True)
    for name in ("var/log", "var/cache"):
        (root / name).mkdir()
    shutil.rmtree(root / "var/lib/dpkg/info")


def _remove_package(root: Path, package: str) -> None:
    info = root / "var/lib/dpkg/info"
    lists = [p for p in (info / f"{package}.list", info / f"{package}:amd64.list") if p.exists()]
    names = [line.lstrip("/") for p in lists for line in p.read_text().splitlines()]
    # The deepest first; a folder that another package uses too is not empty and stays.
    for name in sorted(names, reverse=True):
        path = root / name
        if path.is_dir():
            _remove_compiled(path)
            with contextlib.suppress(OSError):  # not empty, or a link such as /bin
                path.rmdir()
        else:
            path.unlink(missing_ok=True)


def _remove_compiled(folder: Path) -> None:
    """Remove compiled modules whose source is gone: no package's file list has them."""
    cache = folder / "__pycache__"
    if not cache.is_dir():
        return
    for compiled in cache.iterdir():
        if not (folder / f"{compiled.name.split('.')[0]}.py").exists():
            compiled.unlink()
    with contextlib.suppress(OSError):
        cache.rmdir()


def _forget(status: Path, packages: set[str]) -> None:
    stanzas = status.read_text().split("\n\n")
    kept = [s for s in stanzas if s.partition("\n")[0].removeprefix("Package: ") not in packages]
    status.write_text("\n\n".join(kept))
