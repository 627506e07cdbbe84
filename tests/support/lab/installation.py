# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Installs PureLB with a default ServiceGroup and a web server on the lab, and removes PureLB."""

from __future__ import annotations

import hashlib
import json
import subprocess
from typing import Any

from labkit.lab import Lab
from tests.support import ROOT
from tests.support.lab.cluster_queries import (
    AGENTS,
    IMAGE,
    VIPS_V4,
    VIPS_V6,
    eventually,
    run_ansible,
)
from tests.support.lab.faults import is_ready

ARCHIVE = ROOT / ".cache/image.tar"
# The demo's web server answers with the name of its pod.
SERVER = (ROOT / "demo/server.py").read_text()
# Who may announce evictions: tests.
REPORTERS = ["kubernetes-admin"]
# Who may write what only the programs of this installation write: tests that put addresses there by
# hand, and the programs of a second installation in tests of its policies.
WRITERS = REPORTERS + [
    f"system:serviceaccount:admission-test:{name}" for name in ("allocator", "lbnodeagent")
]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_OF_PURELB = (
    "/api/v1/namespaces/purelb-system",
    f"{_CRDS}/servicegroups.purelb.io",
    f"{_CRDS}/lbnodeagents.purelb.io",
)
# What `make demo` leaves on the same lab, for a subnet in which no node is any more.
_OF_DEMO = (
    "/api/v1/namespaces/default/services/demo-lan2",
    "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups/lan2",
    "/apis/purelb.io/v2/namespaces/purelb-system/lbnodeagents/demo",
)
_WEB = "/apis/apps/v1/namespaces/default/deployments/web"


def web_server(name: str) -> dict[str, Any]:
    """Return the Deployment of the web server, with one pod per node."""
    apart = {
        "labelSelector": {"matchLabels": {"app": name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    # One per node, also after a node was away: tests use the pod of a certain node.
                    "affinity": {"podAntiAffinity": {_REQUIRED: [apart]}},
                    "containers": [
                        {
                            "name": name,
                            "image": IMAGE,
                            "imagePullPolicy": "Never",
                            "command": ["/opt/purelb/bin/python3", "-c", SERVER],
                            # So that it answers while the node's agent is busy.
                            "resources": {"requests": {"cpu": "50m"}},
                            "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
                        }
                    ],
                },
            },
        },
    }


# With which the lab's PureLB is installed; each run of the role needs them.
SETTINGS = {
    "purelb_install_annotation_writers": WRITERS,
    "purelb_install_eviction_reporters": REPORTERS,
    # The image was loaded a moment ago, and kubelets tell of it half a minute later.
    "purelb_install_check_image": False,
}


def run_playbook(lab: Lab, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook on the lab with the collection under test.

    All installations let the same users write, so that tests may follow each other in any order;
    arguments override them.
    """
    kubeconfig = str(lab.kubeconfig)
    return run_ansible("-e", json.dumps(SETTINGS), *arguments, check=check, KUBECONFIG=kubeconfig)


def install(lab: Lab, image: str = IMAGE) -> None:
    """Install PureLB from an image that the archive has, the ServiceGroup and the web server."""
    lab.load_image(ARCHIVE)
    run_playbook(lab, "purelb.purelb.install", "-e", f"purelb_install_image={image}")
    for path in _OF_DEMO:
        lab.api.delete(path)
    _restart_older_programs(lab)
    lab.api.apply(
        {
            "apiVersion": "purelb.io/v2",
            "kind": "ServiceGroup",
            "metadata": {"name": "default", "namespace": "purelb-system"},
            "spec": {
                "local": {
                    "v4pool": {"pool": VIPS_V4, "subnet": "172.28.1.0/24"},
                    "v6pool": {"pool": VIPS_V6, "subnet": "fd28:0:0:1::/64"},
                }
            },
        }
    )
    install_web_server(lab)


def _restart_older_programs(lab: Lab) -> None:
    """Replace all pods on a lab that stayed up, if the image has changed: its name has not."""
    with ARCHIVE.open("rb") as archive:
        digest = hashlib.file_digest(archive, "sha256").hexdigest()
    running = lab.at.run / "archive-of-purelb"
    if running.exists() and running.read_text() != digest:
        old = {pod["metadata"]["uid"] for pod in lab.api.items(AGENTS)}
        lab.api.delete(AGENTS)
        eventually(lambda: _are_others_ready(lab, old), "pods of the new image", seconds=60)
    running.write_text(digest)


def _are_others_ready(lab: Lab, old: set[str]) -> bool:
    pods = lab.api.items(AGENTS)
    ready = [pod for pod in pods if pod["metadata"]["uid"] not in old and is_ready(pod)]
    return len(ready) == len(pods) >= len(old)


def remove(lab: Lab) -> None:
    """Remove PureLB with its definitions and objects, unless nothing of it is there."""
    if not any(lab.api.exists(path) for path in _OF_PURELB):
        return
    variables = ("purelb_install_state=absent", "purelb_install_remove_crds=true")
    options = [part for variable in variables for part in ("-e", variable)]
    run_playbook(lab, "purelb.purelb.install", *options)


def install_web_server(lab: Lab) -> None:
    """Apply the web server and wait until it is ready."""
    lab.api.apply(web_server("web"))
    wait_for_web(lab)


def wait_for_web(lab: Lab) -> None:
    """Wait until every pod of the web server is ready."""
    lab.api.wait(
        _WEB,
        lambda d: d["status"].get("readyReplicas") == d["spec"]["replicas"],
        what="web server",
        seconds=60,
    )
