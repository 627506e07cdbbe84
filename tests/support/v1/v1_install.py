# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Installs a fake PureLB v1, as far as a migration sees it.

Definitions (v1 only), objects, annotations and addresses in status are those of PureLB 0.13. The
programs are fakes: an allocator that does nothing, and agents that put the addresses of Services on
their node and remove them at their end.
"""

from __future__ import annotations

import argparse
import http
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from labkit.api import ApiError
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
# The visible behaviour of a v1 agent: it puts the addresses of Services that v1 serves on its
# interface, with an unlimited lifetime, and announces them once. It removes them when v1 does not
# serve the Service any more, and on SIGTERM.
_HOLD = f"""
import ipaddress, json, os, signal, ssl, sys, time, urllib.request
from purelb_agent.node.netlink import Kernel
from purelb_agent.node.sockets import FrameSender
from purelb.core.model import InterfaceAddress
from purelb.core.node import rtnetlink
from purelb.core.node.packets import build_announcement
from purelb.core.node.plan import Put
account = "/var/run/secrets/kubernetes.io/serviceaccount"
trust = ssl.create_default_context(cafile=account + "/ca.crt")
host = os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
rtnetlink.MARK = b""  # v1 marks nothing
kernel = Kernel()
link = next(link for link in kernel.links() if link.name == "eth0")
length = {{4: 24, 6: 64}}
held = set()
def wanted():
    if os.environ["NODE"] != os.environ["HOLDER"]:
        return set()
    token = "Bearer " + open(account + "/token").read()
    url = "https://" + host + "/api/v1/services"
    request = urllib.request.Request(url, headers={{"Authorization": token}})
    with urllib.request.urlopen(request, context=trust, timeout=5) as answer:
        services = json.load(answer)["items"]
    return {{
        ipaddress.ip_address(entry["ip"])
        for service in services
        if service["spec"]["type"] == "LoadBalancer"
        and service["spec"].get("loadBalancerClass") in (None, "purelb.io/purelb")
        and service["metadata"].get("annotations", {{}}).get("purelb.io/allocated-by") == "PureLB"
        for entry in service["status"]["loadBalancer"].get("ingress", [])
    }}
def hold(addresses):
    for vip in held - addresses:
        kernel.remove(InterfaceAddress(link.index, vip, length[vip.version]))
    for vip in addresses - held:
        kernel.put(Put(link.index, vip, length[vip.version], None, None, True, True, False))
        FrameSender().send("eth0", build_announcement(link.mac, vip))
    held.clear()
    held.update(addresses)
def end(*_ignored):
    hold(set())
    os._exit(0)
signal.signal(signal.SIGTERM, end)
while True:
    try:
        wished = wanted()
        # An end between a change and its record would leave the address, or remove it twice.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        hold(wished)
        open("{_READY}", "w").close()
    except OSError as error:
        print(error, flush=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    time.sleep(0.1)
"""


def definition(kind: str, short: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a definition like those of controller-gen."""
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


def v1_object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a v1 object."""
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


def permissions() -> list[dict[str, Any]]:
    """Return the agents' permissions."""
    name = "purelb:v1"
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    rules = [{"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]}]
    account = {"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    return [
        {**rbac, "kind": "ClusterRole", "rules": rules},
        {**rbac, "kind": "ClusterRoleBinding", "subjects": [account], "roleRef": role},
    ]


def programs(image: str, holder: str) -> list[dict[str, Any]]:
    """Return the allocator, and the agents, of which the one on `holder` has all addresses."""
    sleep = "import signal; signal.signal(15, lambda *a: exit()); signal.pause()"
    node = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    container = {
        "env": [
            {"name": "NODE", "valueFrom": node},
            {"name": "HOLDER", "value": holder},
        ],
        # A startup probe only: a readiness probe every second on every node would be expensive.
        "startupProbe": {
            "exec": {"command": ["test", "-e", _READY]},
            "periodSeconds": 1,
            "failureThreshold": 60,
        },
        "securityContext": {"runAsUser": 0, "capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}},
    }
    return [
        _program("Deployment", "allocator", image, sleep),
        _program("DaemonSet", "lbnodeagent", image, _HOLD, hostNetwork=True, container=container),
    ]


def allocated(name: str, addresses: list[str], **annotations: str) -> dict[str, Any]:
    """Return a Service for the web server with addresses from the v1 allocator."""
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
        "status": {"loadBalancer": {"ingress": [{"ip": address} for address in addresses]}},
    }


# The addresses of the two Services, and the pools of the two groups.
WEB = ["172.28.1.225", "fd28:0:0:1::225"]
SHOP = ["172.28.1.226", "fd28:0:0:1::226"]
NEAR = {
    "v4pool": {"pool": "172.28.1.220-172.28.1.239", "subnet": "172.28.1.0/24"},
    "v6pool": {"pool": "fd28:0:0:1::220-fd28:0:0:1::239", "subnet": "fd28:0:0:1::/64"},
}
FAR = {
    "v4pool": {"pool": "10.100.9.0/28", "subnet": "10.100.9.0/24", "aggregation": "/32"},
    "v6pool": {"pool": "fd28:100:9::/124", "subnet": "fd28:100:9::/64", "aggregation": "/128"},
}
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SERVICES = (
    allocated("old-web", WEB),
    allocated("old-shop", SHOP, **{"purelb.io/service-group": "default"}),
)


def provide(lab: Lab, image: str) -> list[str]:
    """Install v1 with its holder n1, two groups and two Services; return the Services' paths.

    The nodes must have the image, whose libraries the programs use.
    """
    api = lab.api
    for crd in DEFINITIONS:
        path = api.path_of(api.apply(crd))
        api.wait(path, lambda d: d and "conditions" in d.get("status", {}))
    # The agents use the nodes' network.
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    meta = {"name": NAMESPACE, "labels": privileged}
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    objects = [
        v1_object("ServiceGroup", "default", {"local": NEAR}),
        v1_object("ServiceGroup", "far", {"local": FAR}),
        v1_object("LBNodeAgent", "default", {"local": {"sendgarp": True}}),
    ]
    for body in objects:
        _create_when_served(partial(api.create, body))
    for body in (*permissions(), *programs(image, "n1")):
        api.create(body)
    return [_provide_service(lab, service) for service in _SERVICES]


def remove(lab: Lab) -> None:
    """Remove all that `provide` created, and what a migration has left of it."""
    api = lab.api
    for service in _SERVICES:
        api.delete(api.path_of(service))
    for crd in DEFINITIONS:
        # The conversion webhook may not run any more, and the API server would wait for it.
        path = api.path_of(crd)
        if api.exists(path):
            api.merge_patch(path, {"spec": {"conversion": {"strategy": "None", "webhook": None}}})
            api.delete(path)
    for body in permissions():
        api.delete(api.path_of(body))
    namespace = f"/api/v1/namespaces/{NAMESPACE}"
    api.delete(namespace)
    for path in (*(f"{_CRDS}/{crd['metadata']['name']}" for crd in DEFINITIONS), namespace):
        api.wait(path, lambda n: n is None, seconds=60)


def _create_when_served(create: Callable[[], Any]) -> None:
    """Create an object; retry for 30 s while the API server does not serve its kind yet."""
    deadline = time.monotonic() + 30
    while True:
        try:
            create()
        except ApiError as error:
            # The second one while it prepares the storage.
            not_yet = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.TOO_MANY_REQUESTS)
            if error.status not in not_yet or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _provide_service(lab: Lab, service: dict[str, Any]) -> str:
    """Create a Service with its status; return its path."""
    path = lab.api.path_of(lab.api.create(service))
    lab.api.merge_patch(f"{path}/status", {"status": service["status"]})
    return path


def main() -> None:
    """Install v1 on the lab, or remove it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["up", "down"], help="install or remove v1")
    parser.add_argument("--image", required=True, help="an image of this PureLB on the nodes")
    options = parser.parse_args()
    lab = Lab.load()
    remove(lab)
    if options.action == "up":
        provide(lab, options.image)


if __name__ == "__main__":
    main()
