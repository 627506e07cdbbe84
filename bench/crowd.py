# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes that are nothing but a Node object and a Lease, renewed as an agent would.

A process of its own (this file, run as a module), so that its cost is told from what is measured.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.bed import NAMESPACE, RENEWAL, SUBNET4, SUBNET6
from labkit.errors import LabError
from labkit.lab import Lab
from purelb.core import times
from purelb.core.addresses import parse_subnets
from purelb.core.api import codec
from purelb.core.model import Lease

# The subnets of the lab's nodes, which all compete for the same addresses.
_SUBNETS, _malformed = parse_subnets(["172.28.1.0/24", SUBNET4, SUBNET6])


def names(count: int) -> list[str]:
    """Names of so many nodes."""
    return [f"crowd-{number:03}" for number in range(count)]


def node(name: str, number: int) -> dict[str, Any]:
    """A Node that no DaemonSet selects: it has no label of an operating system."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"unschedulable": True},
        "status": {"addresses": [{"type": "InternalIP", "address": f"172.29.1.{number}"}]},
    }


def lease(name: str, uid: str) -> dict[str, Any]:
    """The Lease of a node, renewed now."""
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
    """So many nodes while this lasts; gives the pid of who renews their Leases."""
    argv = [sys.executable, "-m", "bench.crowd", str(count)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise LabError("the nodes that are only Leases did not come")
            yield process.pid
            if process.poll() is not None:
                raise LabError("whoever renews the Leases ended: no figure of this run is right")
        finally:
            process.kill()


def _live(lab: Lab, count: int) -> None:
    """Come, say so, and renew for ever, one Lease after the other at an even pace."""
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
            due += RENEWAL / count
            time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    _live(Lab.load(), int(sys.argv[1]))
