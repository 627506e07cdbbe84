# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The playbook load_image imports an image from an archive into nodes that cannot pull."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit.images.archive import pack, write_archive
from labkit.images.programs import programs
from labkit.inventory import inventory
from labkit.lab import Lab
from tests.support import ROOT
from tests.support.lab.cluster_queries import IMAGE
from tests.support.lab.faults import is_ready

pytestmark = pytest.mark.timeout(120)
ARCHIVE = ROOT / ".cache/image.tar"
OTHER = "localhost/purelb/loaded:1"


@pytest.fixture(scope="module")
def hosts(cluster: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inventory of the lab."""
    path = tmp_path_factory.mktemp("inventory") / "hosts.json"
    path.write_text(inventory(cluster.at, cluster.topology))
    return path


@pytest.fixture
def archive(cluster: Lab, tmp_path: Path) -> Iterator[Path]:
    """A small image that no node has; removed after the test."""
    root, layer, path = tmp_path / "root", tmp_path / "layer.tar", tmp_path / "image.tar"
    root.mkdir()
    shutil.copy2(programs(cluster.at).pause, root / "pause")
    pack(root, layer)
    write_archive(layer, path, tag=OTHER, config={"Entrypoint": ["/pause"]})
    yield path
    for node in cluster.nodes:
        cluster.ctr(node, "images", "remove", OTHER)


@pytest.fixture
def load(playbook: Callable[..., Any], hosts: Path) -> Callable[..., Any]:
    def run(archive: Path, *arguments: str, image: str = OTHER, check: bool = True) -> Any:
        return playbook(
            "--inventory", str(hosts), "purelb.purelb.load_image",
            "-e", f"purelb_install_image_archive={archive}",
            "-e", f"purelb_install_image={image}", *arguments, check=check,
        )  # fmt: skip

    return run


def changed(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Return the number of changed tasks by host."""
    found = re.findall(r"^(\w+) +: ok=\d+ +changed=(\d+)", done.stdout, re.MULTILINE)
    return {host: int(count) for host, count in found}


def of_each(cluster: Lab, count: int) -> dict[str, int]:
    """Return that number for each node, and none for the host that checks the call."""
    return {"localhost": 0, **dict.fromkeys(cluster.nodes, count)}


def pod(node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"loaded-{node}", "namespace": "default"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "loaded", "image": OTHER, "imagePullPolicy": "Never"}],
        },
    }


def test_pods_that_must_not_pull_start(cluster, load, archive):
    foretold = load(archive, "--check")
    assert changed(foretold) == of_each(cluster, 1)
    assert not any(OTHER in cluster.ctr(node, "images", "list", "-q") for node in cluster.nodes)
    assert changed(load(archive)) == of_each(cluster, 1)
    paths = [cluster.api.path_of(cluster.api.create(pod(node))) for node in cluster.nodes]
    try:
        for path in paths:
            cluster.api.wait(path, is_ready, what="Pod of the image")
    finally:
        for path in paths:
            cluster.api.delete(path)


@pytest.mark.thorough
def test_only_nodes_without_this_image_are_changed(cluster, load, archive):
    missing, other, *_rest = cluster.nodes
    load(archive)
    cluster.ctr(missing, "images", "remove", OTHER)
    cluster.ctr(other, "images", "tag", "--force", IMAGE, OTHER)
    none = of_each(cluster, 0)
    assert changed(load(archive)) == {**none, missing: 1, other: 1}
    assert changed(load(archive)) == none


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "image", "words"),
    [
        ("", OTHER, "set it to the archive that podman save"),
        ("/nowhere.tar", OTHER, "/nowhere.tar cannot be read as an archive of an image"),
        (__file__, OTHER, "cannot be read as an archive of an image"),
        (ARCHIVE, OTHER, f"has {IMAGE}, and not {OTHER}: set purelb_install_image to an image"),
    ],
    ids=["none", "missing", "no archive", "of another image"],
)
def test_invalid_archive_or_image_is_refused_with_the_remedy(load, path, image, words):
    done = load(path, image=image, check=False)
    assert done.returncode != 0
    assert words in " ".join(done.stdout.split())
