# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Container images on the nodes: imports an archive into each containerd that lacks its image."""

import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from labkit.cluster import daemons
from labkit.errors import Problem, StepFailed
from labkit.host.places import Places
from labkit.host.processes import wait_until
from labkit.images import bases
from labkit.images.programs import programs
from labkit.topology import Host


def load(at: Places, archive: Path, nodes: Sequence[Host]) -> None:
    """Import an archive, or a base image by its tag, into all given nodes in parallel.

    Skips a node that has the same image under the same tags: an import costs 3.5 s of processor
    time on each node, the check 0.1 s.
    """
    if str(archive) in bases.BASES:
        archive = bases.archive(at, str(archive))
    images = image_ids(archive)
    with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
        for future in [pool.submit(_load, at, archive, images, node) for node in nodes]:
            future.result()


def image_ids(archive: Path) -> dict[str, str]:
    """Return the image id (the digest of its configuration) of each tag in a docker-archive.

    Returns an empty mapping for an OCI archive, which may name its images in several ways.
    Raises Problem if the file does not exist or is not an uncompressed tar file.
    """
    if not archive.is_file():
        raise Problem(f"there is no archive {archive}: name a docker-archive or OCI tar file")
    try:
        with tarfile.open(archive, "r:") as tar:
            if "manifest.json" not in tar.getnames():
                return {}
            file = tar.extractfile("manifest.json")
            manifest = json.load(file) if file else []
    except tarfile.ReadError as error:
        hint = "unpack it, or make one with 'lab image build --output'"
        raise Problem(f"{archive} is no uncompressed tar file: {hint}") from error
    return {
        tag: f"sha256:{Path(image['Config']).stem}"
        for image in manifest
        for tag in image.get("RepoTags") or ()
    }


def has_images(listing: str, images: Mapping[str, str]) -> bool:
    """Whether the output of `ctr images ls` has every tag with the image id that it should have.

    containerd's Kubernetes plugin names each image by its id too, so a tag is current if it and
    the id refer to the same manifest.
    """
    rows = (line.split() for line in listing.splitlines()[1:])
    digests = {row[0]: row[2] for row in rows if len(row) > 2}  # noqa: PLR2004 - REF TYPE DIGEST
    return bool(images) and all(
        tag in digests and digests[tag] == digests.get(image) for tag, image in images.items()
    )


def _load(at: Places, archive: Path, images: Mapping[str, str], node: Host) -> None:
    if not has_images(ctr(at, node, "images", "ls"), images):
        ctr(at, node, "images", "import", "--local", str(archive.absolute()))


def ctr(at: Places, node: Host, *arguments: str) -> str:
    """Run the client of a node's containerd in the namespace of Kubernetes; return its output."""
    process = daemons.mount_keeper(at, node)
    client = ["nsenter", f"--mount=/proc/{process}/ns/mnt", "--", str(programs(at).ctr)]
    command = [*client, "--namespace", "k8s.io", *arguments]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode:
        raise StepFailed(f"ctr {' '.join(arguments)} on {node.name}", done.stderr)
    return done.stdout


def wait_for_runtime(at: Places, node: Host, *, seconds: float = 30) -> None:
    """Wait until a node's containerd has opened its socket."""
    daemon = daemons.find(at, node, "containerd")
    socket = at.run / node.name / "run/containerd.sock"

    def is_listening() -> bool:
        daemons.check_alive(at, daemon)
        return socket.exists()

    if not wait_until(is_listening, seconds=seconds):
        log = daemons.log_of(at, daemon.key)
        raise StepFailed(f"containerd of {node.name}", f"no socket in {seconds:.0f} s", log=log)
