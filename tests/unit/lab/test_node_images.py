# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

import io
import json
import tarfile
from pathlib import Path

import pytest

from labkit.cluster.node_images import has_images, image_ids
from labkit.errors import Problem

HEADER = "REF TYPE DIGEST SIZE PLATFORMS LABELS"
TAG, ID = "localhost/x:1", "sha256:abc"


def listing(*rows: tuple[str, str]) -> str:
    """The output of `ctr images ls` with these names and digests."""
    return "\n".join(
        [HEADER, *(f"{name} docker.v2+json {digest} 9.9 MiB" for name, digest in rows)]
    )


def archive(path: Path, name: str, data: object) -> Path:
    text = json.dumps(data).encode()
    member = tarfile.TarInfo(name)
    member.size = len(text)
    with tarfile.open(path, "w") as tar:
        tar.addfile(member, io.BytesIO(text))
    return path


def test_a_docker_archive_gives_the_id_of_each_tag(tmp_path: Path):
    images = [{"Config": "abc.json", "RepoTags": [TAG]}, {"Config": "blobs/d", "RepoTags": None}]
    path = archive(tmp_path / "image.tar", "manifest.json", images)
    assert image_ids(path) == {TAG: ID}


def test_an_oci_archive_gives_no_ids(tmp_path: Path):
    assert image_ids(archive(tmp_path / "image.tar", "index.json", {})) == {}


def test_a_missing_archive_is_refused(tmp_path: Path):
    with pytest.raises(Problem, match="there is no archive"):
        image_ids(tmp_path / "image.tar")


def test_a_file_that_is_not_a_tar_is_refused(tmp_path: Path):
    (tmp_path / "image.tar").write_text("text")
    with pytest.raises(Problem, match="no uncompressed tar file"):
        image_ids(tmp_path / "image.tar")


@pytest.mark.parametrize(
    ("rows", "images", "expected"),
    [
        ([(TAG, "sha256:m1"), (ID, "sha256:m1")], {TAG: ID}, True),
        ([(TAG, "sha256:m2"), (ID, "sha256:m1")], {TAG: ID}, False),
        ([(ID, "sha256:m1")], {TAG: ID}, False),
        ([(TAG, "sha256:m1")], {TAG: ID}, False),
        ([(TAG, "sha256:m1"), (ID, "sha256:m1")], {TAG: ID, "localhost/y:1": ID}, False),
        ([(TAG, "sha256:m1"), (ID, "sha256:m1")], {}, False),
        ([], {TAG: ID}, False),
    ],
    ids=["current", "tag replaced", "tag removed", "id unknown", "one of two", "oci", "empty node"],
)
def test_a_node_has_an_image_if_each_tag_and_its_id_name_one_manifest(
    rows: list[tuple[str, str]], images: dict[str, str], *, expected: bool
):
    assert has_images(listing(*rows), images) is expected
