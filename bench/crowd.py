# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes: a Node object and a Lease each, renewed at the rate of an agent.

A process of its own renews them (this file, run as a module), so that its processor time is not
part of what is measured.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.bed import NAMESPACE, NODES, SUBNET4, SUBNET6, timing
from labkit.errors import LabError
from labkit.lab import Lab
from purelb.core import times
from purelb.core.addresses import parse_subnets
from purelb.core.api import codec
from purelb.core.model import Lease

# The subnets of the lab's nodes, which all compete for the same addresses.
_SUBNETS, _malformed = parse_subnets(["172.28.1.0/24", SUBNET4, SUBNET6])


def names(count: int) -> list[str]:
    """Return the names of this many nodes."""
    return [f"crowd-{number:03}" for number in range(count)]


def node(name: str, number: int) -> dict[str, Any]:
    """Return a Node without an operating system label, so that no DaemonSet selects it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"unschedulable": True},
        "status": {"addresses": [{"type": "InternalIP", "address": f"172.29.1.{number}"}]},
    }


def lease(name: str, uid: str) -> dict[str, Any]:
    """Return the Lease of a node, renewed now."""
    renewed = Lease(
        node=name,
        subnets=_SUBNETS,
        instance=uid,
        holder=name,
        node_uid=uid,
        renew_time=time.time(),
    )
    return codec.lease_body(renewed, namespace=NAMESPACE)


@contextmanager
def crowd(count: int) -> Iterator[int]:
    """Create simulated nodes and renew their Leases; yield the pid of the renewing process."""
    argv = [sys.executable, "-m", "bench.crowd", str(count)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise LabError("the simulated nodes could not be created")
            yield process.pid
            if process.poll() is not None:
                raise LabError("the process that renews the Leases ended: the figures are invalid")
        finally:
            process.kill()


def _renew_all(lab: Lab, count: int) -> None:
    """Create the nodes, print an empty line, and renew their Leases forever at an even rate."""
    bodies = {}
    for number, name in enumerate(names(count)):
        uid = lab.api.create(node(name, number))["metadata"]["uid"]
        bodies[name] = lab.api.create(lease(name, uid))
    print(flush=True)
    due = time.monotonic()
    while True:
        for name, body in bodies.items():
            body["spec"]["renewTime"] = times.format_time(time.time())
            bodies[name] = lab.api.call("PUT", lab.api.path_of(body), body)
            due += timing(count + NODES).renew_period / count
            time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    _renew_all(Lab.load(), int(sys.argv[1]))
