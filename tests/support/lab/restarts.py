# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Restarts the cluster's own components after an outage, and waits until they work again.

A component that cannot reach the API retries with a backoff of up to a minute. A restart saves that
time. PureLB's programs, which the tests are about, are never restarted here.
"""

from __future__ import annotations

from typing import Any

from labkit.cluster import daemons
from labkit.images.bases import PAUSE
from labkit.lab import Lab
from tests.support.lab.cluster_queries import eventually

NOTICED = 90.0
_STORE = ("etcd", "kube-apiserver")
_CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
_ON_NODES = ("kubelet", "kube-proxy")
Json = dict[str, Any]


def restart_control_plane(lab: Lab) -> None:
    """Start the stopped components of the control plane, and wait for the API."""
    for name in _STORE:
        if not daemons.find(lab.at, lab.hosts["control"], name).process.is_alive:
            lab.start("control", name)
    eventually(lab.api.is_ready, "ready API", seconds=60)


def restart_clients(lab: Lab) -> None:
    """Restart the cluster's clients of the API; containers keep running."""
    clients = [("control", name) for name in _CONTROLLERS]
    clients += [(node, name) for node in lab.nodes for name in _ON_NODES]
    for host, name in clients:
        if daemons.find(lab.at, lab.hosts[host], name).process.is_alive:
            lab.kill(host, name)
        lab.start(host, name)


def wait_until_noticed(lab: Lab, name: str) -> None:
    """Wait until every node runs a new pod and reaches a new Service; delete both afterwards."""
    service, pods = _service(name), [_pod(f"{name}-{node}", node) for node in lab.nodes]
    address = lab.api.create(service)["spec"]["clusterIP"]
    for pod in pods:
        lab.api.create(pod)
    curl = ["curl", "-s", "-o", "/dev/null", "--max-time", "1", address]
    for node, pod in zip(lab.nodes, pods, strict=True):
        lab.api.wait(lab.api.path_of(pod), _runs, what=f"new pod on {node}", seconds=NOTICED)
        eventually(
            lambda n=node: lab.run_in(n, curl, check=False).returncode == 0,
            f"new Service on {node}",
            seconds=NOTICED,
        )
    for thing in (service, *pods):
        lab.api.delete(lab.api.path_of(thing))


def _runs(pod: Json) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _service(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }


def _pod(name: str, node: str) -> Json:
    container = {"name": "pause", "image": PAUSE, "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
