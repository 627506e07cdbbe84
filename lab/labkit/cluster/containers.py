# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""A node's containers, as its containerd left them on disk: no API server and no CLI is asked.

So a test can kill a program on a node while the API server is stopped or partitioned away.
"""

import json
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from labkit.cluster import daemons
from labkit.errors import Problem, StepFailed
from labkit.host.places import Places
from labkit.host.processes import Process, command_of, descendants, wait_until
from labkit.images import bases
from labkit.images.programs import programs
from labkit.topology import Host

_TASKS = "run/io.containerd.runtime.v2.task/k8s.io"


@dataclass(frozen=True)
class Container:
    """A container with a living first process."""

    name: str
    pod: str
    namespace: str
    pid: int


def containers(at: Places, node: Host) -> Iterator[Container]:
    """List the node's containers, without the pods' pause."""
    for bundle in (at.run / node.name / _TASKS).glob("*"):
        try:
            pid = int((bundle / "init.pid").read_text())
            notes = json.loads((bundle / "config.json").read_text())["annotations"]
        except (OSError, ValueError, KeyError):
            continue  # being made, or being removed
        if notes.get("io.kubernetes.cri.container-type") != "container" or not Process.of(pid):
            continue
        yield Container(
            name=notes["io.kubernetes.cri.container-name"],
            pod=notes["io.kubernetes.cri.sandbox-name"],
            namespace=notes["io.kubernetes.cri.sandbox-namespace"],
            pid=pid,
        )


def find_program(at: Places, node: Host, program: str) -> Process:
    """Find the container of that name, or the process with that word in its command line."""
    running = list(containers(at, node))
    named = [c.pid for c in running if c.name == program]
    inside = {pid for c in running for pid in {c.pid} | descendants([c.pid])}
    matching = named or sorted(pid for pid in inside if program in command_of(pid))
    for pid in matching:
        process = Process.of(pid)
        if process:
            return process
    known = ", ".join(sorted({c.name for c in running})) or "none"
    raise Problem(f"no program {program!r} in a pod of {node.name}: its containers are: {known}")


def load(at: Places, archive: Path, nodes: Sequence[Host]) -> None:
    """Import an archive into the nodes' containerd, all nodes at once; a base goes by its tag."""
    if str(archive) in bases.BASES:
        archive = bases.archive(at, str(archive))
    if not archive.is_file():
        raise Problem(f"there is no archive {archive}: name a docker-archive or OCI tar file")
    try:
        tarfile.open(archive, "r:").close()
    except tarfile.ReadError as error:
        hint = "unpack it, or make one with 'lab image build --output'"
        raise Problem(f"{archive} is no uncompressed tar file: {hint}") from error
    with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
        for future in [pool.submit(_import, at, archive, node) for node in nodes]:
            future.result()


def _import(at: Places, archive: Path, node: Host) -> None:
    ctr(at, node, "images", "import", "--local", str(archive.absolute()))


def ctr(at: Places, node: Host, *arguments: str) -> str:
    """Run the client of a node's containerd, for the images and containers of Kubernetes."""
    keeper = daemons.mount_keeper(at, node)
    client = ["nsenter", f"--mount=/proc/{keeper}/ns/mnt", "--", str(programs(at).ctr)]
    command = [*client, "--namespace", "k8s.io", *arguments]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode:
        raise StepFailed(f"ctr {' '.join(arguments)} on {node.name}", done.stderr)
    return done.stdout


def wait_for_runtime(at: Places, node: Host, *, seconds: float = 30) -> None:
    """Wait until a node's containerd answers."""
    daemon = daemons.find(at, node, "containerd")
    socket = at.run / node.name / "run/containerd.sock"

    def answers() -> bool:
        daemons.check_alive(at, daemon)
        return socket.exists()

    if not wait_until(answers, seconds=seconds):
        log = daemons.log_of(at, daemon.key)
        raise StepFailed(f"containerd of {node.name}", f"no socket in {seconds:.0f} s", log=log)
