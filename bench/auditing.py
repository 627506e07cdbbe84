# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The cost of the audit modules in a large cluster: time, processor time and memory of one run.

Leases, Services, Nodes and Pods are written to a real API server, but nothing acts on them: the
programs select no Node, and a label makes kube-proxy ignore the Services. Each run is a process, as
with Ansible. The baseline is the cost of a module that reads one empty list.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

import yaml

from bench.bed import NAMESPACE, run_lab
from bench.figures import ROOT, Figure, progress
from labkit.errors import LabError
from labkit.lab import Lab
from purelb.core.addresses import parse_subnets
from purelb.core.api import codec
from purelb.core.election.election import rank
from purelb.core.leadership.leader import LeaderRecord
from purelb.core.leadership.locks import lease_spec
from purelb.core.model import Lease
from purelb.core.names import (
    ADDRESS_PROTOCOL,
    API_GROUP,
    API_VERSION,
    EXCLUDE_LABEL,
    LEADER_LEASE,
)

AIM_SECONDS, AIM_MB = 3.0, 150.0
MODULES = ("purelb_lease_info", "purelb_verify")
_SUBNETS, _malformed = parse_subnets(["10.0.0.0/8"])
_FIRST = IPv4Address("10.1.0.0")
_WRITERS = 4
_SERVICES = "/api/v1/namespaces/default/services"
_CRDS = ROOT / "roles/purelb_install/files/crds"
# Seconds; written once, and still valid when the last run ends.
_LONG = 3600.0
# Runs between us and the module: a child's peak memory starts with that of its parent.
_LAUNCHER = """
import resource, subprocess, sys, time
begun = time.monotonic()
done = subprocess.run([sys.executable, sys.argv[1]])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
seconds = time.monotonic() - begun
print(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, file=sys.stderr)
sys.exit(done.returncode)
"""


@dataclass(frozen=True)
class Size:
    """The size of a cluster: Leases, and Services with one address each."""

    leases: int
    services: int

    def __str__(self) -> str:
        return f"{self.leases} x {self.services}"


SIZES = (Size(1000, 5000),)


def names(size: Size) -> list[str]:
    """Return the names of the simulated nodes."""
    return [f"n{number:04}" for number in range(size.leases)]


def winners(size: Size) -> list[str]:
    """Return the winner of each Service's address."""
    nodes = names(size)
    return [rank(nodes, _FIRST + number)[0] for number in range(size.services)]


def lease(name: str) -> dict[str, Any]:
    """Return a node's Lease, renewed now; without an owner, as there is no Node object."""
    renewed = Lease(
        node=name,
        subnets=_SUBNETS,
        instance=name,
        holder=name,
        duration=_LONG,
        renew_time=time.time(),
    )
    body = codec.lease_body(renewed, namespace=NAMESPACE)
    del body["metadata"]["ownerReferences"]
    return body


_LABELS = {"component": "lbnodeagent"}
_NOWHERE = {"example.com/bench": "nowhere"}


def program(kind: str, name: str) -> dict[str, Any]:
    """Return a program of PureLB that selects no Node."""
    container = {"name": name, "image": "example.com/purelb:bench"}
    labels = {"component": name}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            **({"replicas": 0} if kind == "Deployment" else {}),
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"nodeSelector": _NOWHERE, "containers": [container]},
            },
        },
    }


def node(name: str) -> dict[str, Any]:
    """Return a Node."""
    ready = {"type": "Ready", "status": "True"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"conditions": [ready]},
    }


def pod(node_name: str) -> dict[str, Any]:
    """Return the Pod of a Node's agent."""
    (container,) = program("DaemonSet", "lbnodeagent")["spec"]["template"]["spec"]["containers"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"agent-{node_name}", "namespace": NAMESPACE, "labels": _LABELS},
        "spec": {
            "nodeName": node_name,
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],
        },
    }


def lock() -> dict[str, Any]:
    """Return the lock of the leading allocator."""
    now = time.time()
    held = LeaderRecord("allocator", duration=_LONG, acquire_time=now, renew_time=now)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEADER_LEASE, "namespace": NAMESPACE},
        "spec": lease_spec(held),
    }


def group(size: Size) -> dict[str, Any]:
    """Return the ServiceGroup that has the Services' addresses."""
    pool = f"{_FIRST}-{_FIRST + size.services - 1}"
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "ServiceGroup",
        "metadata": {"name": "default", "namespace": NAMESPACE},
        "spec": {"local": {"v4pool": {"pool": pool, "subnet": str(_SUBNETS[0])}}},
    }


def service(number: int, winner: str) -> dict[str, Any]:
    """Return a Service with an address that its winner announces."""
    address = _FIRST + number
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": f"audit-{number:05}",
            "namespace": "default",
            "labels": {"service.kubernetes.io/service-proxy-name": "another"},
            "annotations": {
                "purelb.io/allocated-by": "PureLB",
                "purelb.io/allocated-from": "default",
                "purelb.io/pool-type": "local",
                "purelb.io/announcing-IPv4": f"{winner},eth0,{address}",
            },
        },
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "purelb.io/purelb-v2",
            # There are fewer node ports than Services.
            "allocateLoadBalancerNodePorts": False,
            "ports": [{"port": 80}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": str(address)}]}},
    }


@dataclass(frozen=True)
class Objects:
    """The objects of a cluster, and the collected results of its nodes."""

    leases: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    pods: list[dict[str, Any]]
    group: dict[str, Any]
    services: list[dict[str, Any]]
    seen: dict[str, dict[str, Any]]

    def arguments(self, module: str) -> dict[str, Any]:
        """Return a module's arguments; those of purelb_verify include the nodes' results."""
        if module != "purelb_verify":
            return {}
        return {"nodes": self.seen, "examine": ["nodes"], "fail_on": "never"}


def objects(size: Size) -> Objects:
    """Return the objects of a cluster without findings."""
    nodes, won = names(size), winners(size)
    held: dict[str, list[int]] = {name: [] for name in nodes}
    for number, winner in enumerate(won):
        held[winner].append(number)
    return Objects(
        [lease(name) for name in nodes],
        [node(name) for name in nodes],
        [pod(name) for name in nodes],
        group(size),
        [service(number, winner) for number, winner in enumerate(won)],
        {name: _seen(index, held[name]) for index, name in enumerate(nodes)},
    )


def _seen(index: int, held: Iterable[int]) -> dict[str, Any]:
    """Return what purelb_vip_info would return on a node."""
    own = _address(IPv4Address("10.0.0.1") + index, None)
    vips = [_address(_FIRST + number, 7) for number in held]
    eth0 = {"name": "eth0", "index": 2, "mac": f"02:00:00:00:{index >> 8:02x}:{index & 255:02x}"}
    state = {"up": True, "state": "up", "default_metrics": {"IPv4": 0}, "addresses": [own, *vips]}
    return {"time": time.time(), "interfaces": [{**eth0, **state}]}


def _address(address: IPv4Address, lifetime: int | None) -> dict[str, Any]:
    return {
        "address": str(address),
        "prefix_length": _SUBNETS[0].prefixlen,
        "valid_lifetime": lifetime,
        "preferred_lifetime": lifetime,
        "flags": [],
        "protocol": ADDRESS_PROTOCOL if lifetime else 0,
    }


def measure(sizes: Sequence[Size], *, runs: int) -> list[Figure]:
    """Measure all modules in clusters of these sizes, each in a new lab."""
    figures: list[Figure] = []
    for size in sizes:
        made = objects(size)
        with _cluster(made) as lab:
            at = {"kubeconfig": str(lab.kubeconfig)}
            empty = {**at, "kind": "ServiceGroup"}
            base = [spend("purelb_objects_info", empty)[0] for _ in range(runs)]
            for module in MODULES:
                progress(f"{size}: {module}")
                spent = [_audit(module, at, made) for _ in range(runs)]
                figures += _figures(str(size), module, spent, base)
    return figures


@dataclass(frozen=True)
class Spent:
    """The cost of one run of a module."""

    seconds: float
    cpu: float
    megabytes: float


def _audit(module: str, at: dict[str, Any], made: Objects) -> Spent:
    """Run a module and return its cost. Raises LabError unless it found all objects in order."""
    spent, result = spend(module, {**at, **made.arguments(module)})
    found = {name: len(result[name]) for name in ("leases", "vips", "findings")}
    if found != {"leases": len(made.leases), "vips": len(made.services), "findings": 0}:
        raise LabError(f"{module} did not see the cluster that was written: {found}")
    return spent


def _figures(
    case: str, module: str, spent: Iterable[Spent], base: Iterable[Spent]
) -> Iterator[Figure]:
    spent, base = tuple(spent), tuple(base)

    def figure(
        what: str, unit: str, pick: Callable[[Spent], float], aim: float | None = None
    ) -> Figure:
        values, baseline = tuple(map(pick, spent)), tuple(map(pick, base))
        return Figure(case, f"{module}: {what}", unit, values, baseline, aim)

    yield figure("duration", "s", lambda run: run.seconds, AIM_SECONDS)
    yield figure("processor", "s", lambda run: run.cpu)
    yield figure("memory", "MB", lambda run: run.megabytes, AIM_MB)


def spend(module: str, arguments: dict[str, Any]) -> tuple[Spent, dict[str, Any]]:
    """Run a module as Ansible does, without Ansible; return its cost and its result."""
    given = json.dumps({"ANSIBLE_MODULE_ARGS": arguments})
    argv = [sys.executable, "-c", _LAUNCHER, str(ROOT / f"plugins/modules/{module}.py")]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}/.ansible/collections"}
    done = subprocess.run(argv, env=env, input=given, text=True, capture_output=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return Spent(*map(float, done.stderr.splitlines()[-1].split())), result


@contextmanager
def _cluster(made: Objects) -> Iterator[Lab]:
    """Start a new lab with these objects and end it afterwards; first end one that is up."""
    run_lab("down")
    try:
        run_lab("up", "--nodes", "1")
        lab = Lab.load()
        _write(lab, made)
        yield lab
    finally:
        run_lab("down")


def _write(lab: Lab, made: Objects) -> None:
    progress(f"writing {len(made.leases)} nodes and {len(made.services)} Services")
    lab.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    # The lab's own nodes have no agent, on purpose.
    for name in lab.nodes:
        lab.api.merge_patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {EXCLUDE_LABEL: ""}}})
    for path in _CRDS.glob("*.yaml"):
        definition = yaml.safe_load(path.read_text())
        lab.api.create(definition)
        lab.api.wait(
            lab.api.path_of(definition),
            lambda d: any(c["type"] == "Established" for c in d["status"].get("conditions") or ()),
        )

    def put(service: dict[str, Any]) -> None:
        lab.api.create(service)
        path = f"{_SERVICES}/{service['metadata']['name']}/status"
        lab.api.merge_patch(path, {"status": service["status"]})

    with ThreadPoolExecutor(_WRITERS) as pool:
        programs = program("DaemonSet", "lbnodeagent"), program("Deployment", "allocator")
        list(pool.map(lab.api.create, [*programs, lock(), made.group, *made.leases, *made.nodes]))
        list(pool.map(lab.api.create, made.pods))
        list(pool.map(put, made.services))
