# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Image archives with one layer, written by hand: what `docker save` would make of a folder.

A base image then needs no image tool at all. Times of files stay as they are, because Python
compares a module's with the one in its compiled form.
"""

import io
import json
import tarfile
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any


def pack(root: Path, layer: Path) -> None:
    """Write a folder's files into a layer; owners by number only, as names are this machine's."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uname = info.gname = ""
        return info

    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.iterdir()):
            tar.add(path, arcname=path.name, filter=plain)


def write_archive(layer: Path, archive: Path, *, tag: str, config: Mapping[str, Any]) -> None:
    """Write a docker-archive of one layer; `config` is the image's Config (Cmd, Env, ...)."""
    with layer.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    image = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created_by": "lab setup"}],
        }
    ).encode()
    name = f"{sha256(image).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [tag], "Layers": [f"{digest}.tar"]}]
    with tarfile.open(archive, "w") as tar:
        tar.add(layer, arcname=f"{digest}.tar")
        _add_bytes(tar, name, image)
        _add_bytes(tar, "manifest.json", json.dumps(manifest).encode())


def _add_bytes(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
