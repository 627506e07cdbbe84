# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A virtual machine, for tests of kernel features that this machine's kernel may not have.

QEMU emulates the processor (TCG), so the machine needs no KVM. Its root is an initramfs with the
Python of the lab's Debian tree, this checkout's packages and the program to run.
"""

from __future__ import annotations

import lzma
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from labkit.host.places import places
from labkit.images.bases import tree_build
from labkit.images.kernel import GuestKernel, guest_kernel
from tests.support import ROOT

QEMU = "qemu-system-x86_64"
CPU = "qemu64,+rdrand"  # Python needs random numbers at its start
PYTHON = "usr/bin/python3.11"
# Of the Debian tree: the interpreter, its library, and the shared libraries next to it.
TREE = (PYTHON, "usr/lib/python3.11", "usr/lib/x86_64-linux-gnu")
LIBRARIES = ("ld-linux*", "libc.so*", "libm.so*", "libz.so*", "libexpat.so*", "libffi.so*")
LINKS = {
    "lib": "usr/lib",
    "lib64": "usr/lib64",
    "usr/lib64/ld-linux-x86-64.so.2": "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
}
CHECKOUT = ("agent/purelb_agent", "plugins/module_utils/purelb", "tests/support/lab")
INIT = "tests/support/lab/guest_init.py"


def missing() -> str:
    """Return why no virtual machine can be booted here, or an empty string."""
    if not shutil.which(QEMU):
        return f"{QEMU} is not installed: run 'lab/lab setup machine'"
    if guest_kernel(places()) is None:
        return "there is no kernel to boot: run 'lab/lab setup machine'"
    if not tree_build(places()).is_done:
        return "there is no Debian tree to boot: run 'lab/lab setup'"
    return ""


def run(folder: Path, program: Path, *, modules: tuple[str, ...], seconds: float) -> str:
    """Boot, load the kernel's modules, run a Python program, and return the console's output."""
    kernel = guest_kernel(places())
    assert kernel is not None
    initramfs = folder / "initramfs"
    _write_initramfs(initramfs, drivers(kernel, modules))
    append = (
        f"console=ttyS0 quiet panic=-1 rdinit=/{PYTHON} "
        "PYTHONPATH=/checkout/agent:/checkout/plugins/module_utils PYTHONDONTWRITEBYTECODE=1 "
        f"-- /checkout/{INIT} /checkout/{program.relative_to(ROOT)}"
    )
    command = [
        # Ends with this process, also if that is killed.
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *(QEMU, "-accel", "tcg", "-cpu", CPU, "-m", "512M", "-nodefaults", "-no-reboot"),
        *("-display", "none", "-serial", "stdio"),
        *("-kernel", str(kernel.image), "-initrd", str(initramfs)),
        *("-append", append),
    ]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=seconds, check=False, text=True, errors="replace",
    )  # fmt: skip
    return done.stdout


def drivers(kernel: GuestKernel, names: Iterable[str]) -> dict[str, bytes]:
    """Return the kernel's modules of these names, uncompressed, by their names in the initramfs.

    Debian compresses modules with xz from version 13 on.
    """
    found = {}
    for name in names:
        (path,) = kernel.modules.rglob(f"{name}.ko*")
        data = path.read_bytes()
        found[f"modules/{name}.ko"] = lzma.decompress(data) if path.suffix == ".xz" else data
    return found


def _write_initramfs(target: Path, more: Mapping[str, bytes]) -> None:
    """Write an archive in cpio's newc format, uncompressed: unpacking costs the guest seconds."""
    with target.open("wb") as archive:
        seen: set[str] = set()
        for name, mode, content in _entries(more):
            for parent in [*reversed(Path(name).parents)][1:]:
                if str(parent) not in seen:
                    seen.add(str(parent))
                    archive.write(_record(str(parent), stat.S_IFDIR | 0o755, b""))
            archive.write(_record(name, mode, content))
        # The kernel gives its console to the first process only if this device exists.
        archive.write(_record("dev/console", stat.S_IFCHR | 0o600, b"", device=(5, 1)))
        archive.write(_record("TRAILER!!!", 0, b""))


def _entries(more: Mapping[str, bytes]) -> Iterator[tuple[str, int, bytes]]:
    """Yield name, mode and content of each file and symbolic link."""
    tree = tree_build(places()).folder / "root"
    yield "dev/.keep", stat.S_IFREG | 0o644, b""
    for name, text in LINKS.items():
        yield name, stat.S_IFLNK | 0o777, text.encode()
    files = {str(path.relative_to(tree)): path for path in _tree_files(tree)}
    for folder in CHECKOUT:
        files |= {f"checkout/{p.relative_to(ROOT)}": p for p in (ROOT / folder).rglob("*.py")}
    for name, path in files.items():
        if path.is_symlink():
            yield name, stat.S_IFLNK | 0o777, str(path.readlink()).encode()
        else:
            yield name, path.stat().st_mode, path.read_bytes()
    for name, content in more.items():
        yield name, stat.S_IFREG | 0o644, content


def _tree_files(tree: Path) -> Iterator[Path]:
    yield tree / PYTHON
    for pattern in LIBRARIES:
        yield from (tree / "usr/lib/x86_64-linux-gnu").glob(pattern)
    for path in (tree / "usr/lib/python3.11").rglob("*"):
        if path.is_symlink() or path.is_file():
            yield path


def _record(name: str, mode: int, content: bytes, *, device: tuple[int, int] = (0, 0)) -> bytes:
    """Return one file of a newc archive: header of 13 hexadecimal fields, name, content."""
    encoded = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + encoded) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
