# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

import lzma
from pathlib import Path

import pytest

from labkit.errors import StepFailed
from labkit.host.places import Places
from labkit.images import kernel
from labkit.images.kernel import GuestKernel, guest_kernel, kernel_build
from tests.support.lab.virtual_machine import drivers

DEBIAN_12, DEBIAN_13 = "lib/modules/6.1", "usr/lib/modules/6.12"


@pytest.fixture
def unpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Builds the kernel from a package with these modules; returns the lab's folders."""

    def build(modules: str) -> Places:
        def run_step(name: str, _command: list[str], *, log: Path, cwd: Path = tmp_path) -> None:
            if name.startswith("fetch"):
                (cwd / "kernel.deb").touch()
            elif name == "unpack":
                for file in ("boot/vmlinuz-6", "usr/share/doc/notes", f"{modules}/dummy.ko"):
                    path = log.parent / "scratch" / file
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.touch()

        monkeypatch.setattr(kernel, "run_step", run_step)
        monkeypatch.setattr(kernel, "_newest", lambda: "linux-image-6")
        at = Places(cache=tmp_path / "cache")
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        wanted = kernel_build(at)
        wanted.make(scratch, tmp_path / "log")
        wanted.folder.parent.mkdir(parents=True)
        scratch.rename(wanted.folder)
        return at

    return build


@pytest.mark.parametrize("modules", [DEBIAN_12, DEBIAN_13])
def test_unpacked_kernel_is_found_with_its_modules(unpack, modules: str):
    at = unpack(modules)
    folder = kernel_build(at).folder
    assert guest_kernel(at) == GuestKernel(folder / "boot/vmlinuz-6", folder / modules)
    assert not (folder / "usr/share").exists()


def test_package_without_modules_is_a_failed_step(unpack):
    with pytest.raises(StepFailed, match="linux-image-6 has no kernel or no modules"):
        unpack("etc")


def test_lab_without_an_unpacked_kernel_has_none(tmp_path: Path):
    assert guest_kernel(Places(cache=tmp_path)) is None


@pytest.mark.parametrize("name", ["dummy.ko", "dummy.ko.xz"])
def test_driver_is_uncompressed(tmp_path: Path, name: str):
    text = b"a module"
    (tmp_path / name).write_bytes(lzma.compress(text) if name.endswith(".xz") else text)
    assert drivers(GuestKernel(tmp_path / "vmlinuz", tmp_path), ["dummy"]) == {
        "modules/dummy.ko": text
    }
