# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""A node's running containers, read from containerd's files.

It needs neither the API server nor a command-line client, so a test can kill a program on a node
while the API server is stopped or partitioned away.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from labkit.errors import Problem
from labkit.host.places import Places
from labkit.host.processes import Process, command_of, descendants
from labkit.topology import Host

_TASKS = "run/io.containerd.runtime.v2.task/k8s.io"


@dataclass(frozen=True)
class Container:
    """A container whose first process runs."""

    name: str
    pod: str
    namespace: str
    pid: int


def containers(at: Places, node: Host) -> Iterator[Container]:
    """List the node's running containers, except the pods' pause containers."""
    for bundle in (at.run / node.name / _TASKS).glob("*"):
        try:
            pid = int((bundle / "init.pid").read_text())
            notes = json.loads((bundle / "config.json").read_text())["annotations"]
        except (OSError, ValueError, KeyError):
            continue  # it is being created or removed
        if notes.get("io.kubernetes.cri.container-type") != "container" or not Process.of(pid):
            continue
        yield Container(
            name=notes["io.kubernetes.cri.container-name"],
            pod=notes["io.kubernetes.cri.sandbox-name"],
            namespace=notes["io.kubernetes.cri.sandbox-namespace"],
            pid=pid,
        )


def find_program(at: Places, node: Host, program: str) -> Process:
    """Return the process of a container by its name, or of a program in a pod.

    A program is found by a word of its command line.
    """
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
