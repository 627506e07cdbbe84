# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

import json
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from labkit.images.archive import pack, write_archive
from labkit.images.rootfs import strip


@pytest.fixture
def tree(tmp_path: Path):
    """A minimal usr-merged Debian with packages a and b, which share a folder."""
    root = tmp_path / "root"
    info = root / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (root / "usr/bin").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    (root / "usr/share/doc").mkdir(parents=True)
    (root / "usr/share/doc/readme").touch()
    for package in ("a", "b"):
        (root / "usr/bin" / package).touch()
        (info / f"{package}.list").write_text(f"/.\n/bin\n/bin/{package}\n")
    status = "\n\n".join(f"Package: {p}\nVersion: 1" for p in ("a", "b"))
    (root / "var/lib/dpkg/status").write_text(status)
    return root


def test_stripped_package_is_removed_and_the_other_stays(tree: Path):
    strip(tree, packages=["a"])
    assert not (tree / "usr/bin/a").exists()
    assert (tree / "bin/b").exists()


def test_dpkg_status_lists_only_remaining_packages(tree: Path):
    strip(tree, packages=["a"])
    assert (tree / "var/lib/dpkg/status").read_text() == "Package: b\nVersion: 1"


def test_documentation_is_removed(tree: Path):
    strip(tree, packages=[])
    assert not (tree / "usr/share/doc").exists()
    assert (tree / "var/log").is_dir()


def test_archive_has_the_layers_digest_and_the_images_tag(tree: Path, tmp_path: Path):
    layer, archive = tmp_path / "layer.tar", tmp_path / "image.tar"
    pack(tree, layer)
    write_archive(layer, archive, tag="localhost/x:1", config={"Cmd": ["python3"]})
    with tarfile.open(archive) as tar:
        [image] = json.load(tar.extractfile("manifest.json"))
        config = json.load(tar.extractfile(image["Config"]))
    digest = sha256(layer.read_bytes()).hexdigest()
    assert image["RepoTags"] == ["localhost/x:1"]
    assert image["Layers"] == [f"{digest}.tar"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}"]
    assert config["config"] == {"Cmd": ["python3"]}
