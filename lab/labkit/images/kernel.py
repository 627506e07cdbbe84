# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Debian's cloud kernel for tests that boot a virtual machine: unpacked, never installed.

An installed one would be the kernel that this machine boots next time.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import Problem, StepFailed
from labkit.host.places import Places
from labkit.host.progress import run_step
from labkit.images import rootfs
from labkit.images.builds import Build, content_hash

PACKAGE = "linux-image-cloud-amd64"


@dataclass(frozen=True)
class GuestKernel:
    """A kernel to boot and the folder of its modules."""

    image: Path
    modules: Path


def kernel_build(at: Places) -> Build:
    """Return the build of the unpacked kernel."""

    def make(scratch: Path, log: Path) -> None:
        # The lists may be older than the mirror's packages.
        run_step("apt-get update", ["apt-get", "update", "-q"], log=log)
        package = _newest()
        run_step(f"fetch {package}", ["apt-get", "download", "-q", package], log=log, cwd=scratch)
        (archive,) = scratch.glob("*.deb")
        run_step("unpack", ["dpkg-deb", "--extract", str(archive), str(scratch)], log=log)
        archive.unlink()
        shutil.rmtree(scratch / "usr/share")  # documentation
        if _kernel_in(scratch) is None:
            raise StepFailed("unpack", f"{package} has no kernel or no modules", log=log)

    digest = content_hash([], rootfs.SUITE, PACKAGE)
    return Build("Debian kernel", 5, at.builds / "kernels" / f"debian-{digest}", make)


def guest_kernel(at: Places) -> GuestKernel | None:
    """Return the kernel that setup unpacked, or None."""
    return _kernel_in(kernel_build(at).folder)


def _kernel_in(folder: Path) -> GuestKernel | None:
    image = next(folder.glob("boot/vmlinuz-*"), None)
    # Debian 12 has the modules in /lib, later versions in /usr/lib.
    modules = next((m for top in ("lib", "usr/lib") for m in folder.glob(f"{top}/modules/*")), None)
    return GuestKernel(image, modules) if image and modules else None


def _newest() -> str:
    """Return the package with the kernel itself, which the named one depends on."""
    done = subprocess.run(
        ["apt-cache", "depends", "--important", PACKAGE],
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    for line in done.stdout.splitlines():
        word, _colon, package = line.strip().partition(": ")
        if word == "Depends" and package.startswith("linux-image-"):
            return package
    raise Problem(f"apt does not know {PACKAGE}: add a source for {rootfs.SUITE}")
