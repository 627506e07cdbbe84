# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A PureLB of the first generation, as far as a migration can see it.

Its definitions (v1 only), objects, annotations and addresses in status are as PureLB 0.13 has them.
Its programs are stand-ins: an allocator that does nothing, and agents that put the addresses that
they are told on their node and take them away when they are told to end.
"""

from __future__ import annotations

import json
from typing import Any

from labkit.lab import Lab

NAMESPACE = "purelb"
_TEXT = {"type": "string"}
_POOL = {
    "type": "object",
    "required": ["pool", "subnet"],
    "properties": {"pool": _TEXT, "subnet": _TEXT, "aggregation": {**_TEXT, "default": "default"}},
}
_GROUP = {
    "local": {
        "type": "object",
        "properties": {
            "pool": _TEXT,
            "subnet": _TEXT,
            "aggregation": _TEXT,
            "v4pool": _POOL,
            "v6pool": _POOL,
            "v4pools": {"type": "array", "items": _POOL},
            "v6pools": {"type": "array", "items": _POOL},
        },
    },
    "netbox": {
        "type": "object",
        "required": ["tenant", "url"],
        "properties": {"tenant": _TEXT, "url": _TEXT, "aggregation": _TEXT},
    },
}
_AGENT = {
    "local": {
        "type": "object",
        "properties": {
            "localint": {**_TEXT, "default": "default"},
            "extlbint": {**_TEXT, "default": "kube-lb0"},
            "sendgarp": {"type": "boolean", "default": False},
        },
    }
}
_READY = "/tmp/ready"  # noqa: S108 - in a container of its own
_CORE = "ansible_collections.purelb.purelb.plugins.module_utils.purelb.core"
# What an agent of v1 does for those who look from outside: addresses without end, told of once.
_HOLD = f"""
import ipaddress, os, signal, sys
from purelb_agent.netlink import Kernel
from purelb_agent.sockets import FrameSender
from {_CORE}.model import InterfaceAddress
from {_CORE}.packets import build_announcement
from {_CORE}.plan import Put
kernel = Kernel()
link = next(one for one in kernel.links() if one.name == "eth0")
held = [ipaddress.ip_address(one) for one in os.environ["ADDRESSES"].split()]
if os.environ["NODE"] != os.environ["HOLDER"]:
    held = []
length = {{4: 24, 6: 64}}
def end(*_ignored):
    for one in held:
        kernel.remove(InterfaceAddress(link.index, one, length[one.version]))
    sys.exit()
signal.signal(signal.SIGTERM, end)
for one in held:
    kernel.put(Put(link.index, one, length[one.version], None, None, True, True, True))
    FrameSender().send("eth0", build_announcement(link.mac, one))
open("{_READY}", "w").close()
while True:
    signal.pause()
"""


def definition(kind: str, short: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A definition as controller-gen makes it."""
    plural = f"{kind.lower()}s"
    schema = {
        "type": "object",
        "properties": {
            "apiVersion": _TEXT,
            "kind": _TEXT,
            "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object"},
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.purelb.io",
            "annotations": {"controller-gen.kubebuilder.io/version": "v0.14.0"},
        },
        "spec": {
            "group": "purelb.io",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


DEFINITIONS = (definition("ServiceGroup", "sg", _GROUP), definition("LBNodeAgent", "lbna", _AGENT))


def old(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A v1 object."""
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "purelb.io/v1", "kind": kind, "metadata": meta, "spec": spec}


def _program(kind: str, name: str, image: str, command: str, **pod: Any) -> dict[str, Any]:
    labels = {"app": "purelb", "component": name}
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["/opt/purelb/bin/python3", "-c", command],
        **pod.pop("container", {}),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 10, "containers": [container], **pod},
            },
        },
    }


def programs(image: str, holder: str, addresses: list[str]) -> list[dict[str, Any]]:
    """The allocator, and agents of which the one on `holder` has the addresses."""
    sleep = "import signal; signal.signal(15, lambda *a: exit()); signal.pause()"
    node = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    container = {
        "env": [
            {"name": "NODE", "valueFrom": node},
            {"name": "HOLDER", "value": holder},
            {"name": "ADDRESSES", "value": " ".join(addresses)},
        ],
        "readinessProbe": {"exec": {"command": ["test", "-e", _READY]}, "periodSeconds": 1},
        "securityContext": {"runAsUser": 0, "capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}},
    }
    return [
        _program("Deployment", "allocator", image, sleep),
        _program("DaemonSet", "lbnodeagent", image, _HOLD, hostNetwork=True, container=container),
    ]


def allocated(name: str, addresses: list[str], **annotations: str) -> dict[str, Any]:
    """A Service for the web server that the v1 allocator has given addresses."""
    marks = {"purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {**marks, "purelb.io/announcing-IPv4": "n1,eth0", **annotations},
        },
        "spec": {
            "type": "LoadBalancer",
            "ipFamilyPolicy": "RequireDualStack",
            "selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": 8080}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": one} for one in addresses]}},
    }


def provide_service(lab: Lab, service: dict[str, Any]) -> str:
    """Create a Service with its status; returns its path."""
    path = lab.api.path_of(lab.api.create(service))
    lab.api.merge_patch(f"{path}/status", json.loads(json.dumps({"status": service["status"]})))
    return path
