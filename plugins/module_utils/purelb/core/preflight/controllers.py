# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which other programs of a cluster give Services of type LoadBalancer their addresses.

They are recognised by what they run, not by the name that they were given: by the last part of
an image's name, which mirrors keep, and by the switches that their own documentation names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Callable, FrozenSet, Iterable, Iterator, Mapping, Tuple

Json = Mapping[str, Any]
_ENDED = frozenset({"Succeeded", "Failed"})
_ON = frozenset({"true", "1", "yes", "on"})
_OFF = frozenset({"false", "0", "no", "off"})
# What a k3s server was started with, also from its file, as a list in JSON.
_K3S_ARGUMENTS = "k3s.io/node-args"
_K3S_SWITCHES = ("servicelb", "--disable-cloud-controller")


@dataclass(frozen=True)
class Pod:
    """A Pod. `host_ports`: those that it takes on its node."""

    namespace: str
    name: str
    node: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    images: Tuple[str, ...] = ()
    arguments: Tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    host_ports: FrozenSet[int] = frozenset()
    has_ended: bool = False

    @property
    def programs(self) -> FrozenSet[str]:
        """The last parts of its images' names, without tag and digest."""
        return frozenset(image.rpartition("/")[2].partition(":")[0] for image in self.images)

    def is_on(self, variable: str) -> bool:
        """Whether a switch in its environment is on."""
        return self.environment.get(variable, "").lower() in _ON

    def is_off(self, variable: str) -> bool:
        """Whether a switch in its environment is off."""
        return self.environment.get(variable, "").lower() in _OFF

    def argument(self, name: str) -> str:
        """Return the value of an argument that is given as `name=value`; empty if it is not."""
        found = (text.partition("=")[2] for text in self.arguments if text.startswith(f"{name}="))
        return next(found, "")


@dataclass(frozen=True)
class Controller:
    """A program that gives Services addresses. `seen`: by what it was recognised.

    `takes_all`: also Services without a class. `way`: how to limit it to a class, or to switch it
    off.
    """

    name: str
    title: str
    seen: str
    takes_all: bool
    way: str


@dataclass(frozen=True)
class _Known:
    name: str
    title: str
    way: str
    # Whether a Pod is one of it that gives addresses, and whether to Services of a class only.
    is_one: Callable[[Pod], bool]
    is_limited: Callable[[Pod], bool] = lambda _pod: False


def _is_kube_vip(pod: Pod) -> bool:
    if pod.programs & {"kube-vip-cloud-provider", "kube-vip-cloud-controller"}:
        return True
    return bool(pod.programs & {"kube-vip", "kube-vip-iptables"}) and pod.is_on("svc_enable")


def _is_cloud_controller(pod: Pod) -> bool:
    """Whether a Pod runs the service controller of a cloud.

    That of RKE2 has it switched off; with it on, there are Pods of servicelb.
    """
    named = any("cloud-controller-manager" in program for program in pod.programs)
    controllers = pod.argument("--controllers").split(",")
    runs_it = "-service" not in controllers and (
        controllers == [""] or not {"*", "service"}.isdisjoint(controllers)
    )
    return named and runs_it and not pod.is_off("HCLOUD_LOAD_BALANCERS_ENABLED")


# As MetalLB ("--lb-class"), kube-vip ("lb_class_only") and k3s ("ServiceLB") document them.
_KNOWN = (
    _Known(
        "metallb",
        "MetalLB",
        "start its controller and its speakers with --lb-class",
        lambda pod: any("metallb" in image for image in pod.images),
        lambda pod: bool(pod.argument("--lb-class")),
    ),
    _Known(
        "kube-vip",
        "kube-vip",
        "set lb_class_only for it, or svc_enable to false",
        _is_kube_vip,
        lambda pod: pod.is_on("lb_class_only") or pod.is_off("lb_class_legacy_handling"),
    ),
    _Known(
        "servicelb",
        "servicelb of k3s",
        "start every k3s server with --disable=servicelb",
        lambda pod: "klipper-lb" in pod.programs,
    ),
    _Known(
        "openelb",
        "OpenELB",
        "remove it",
        lambda pod: any("openelb" in image for image in pod.images),
    ),
    _Known(
        "kube-router",
        "kube-router",
        "start it without --run-loadbalancer",
        lambda pod: "kube-router" in pod.programs and pod.argument("--run-loadbalancer") == "true",
    ),
    _Known(
        "aws-load-balancer-controller",
        "the AWS load balancer controller",
        "set its enableServiceMutatorWebhook to false",
        lambda pod: "aws-load-balancer-controller" in pod.programs,
    ),
    _Known(
        "cloud-controller",
        "the load balancers of a cloud",
        "start the cloud controller manager with --controllers=*,-service",
        _is_cloud_controller,
    ),
    _Known(
        "purelb",
        "another PureLB",
        "replace a PureLB v1 with the playbook purelb.purelb.migrate, or remove it",
        # Those of v1 and of the Go implementation have an image each.
        lambda pod: (
            any("purelb" in image for image in pod.images)
            and not pod.programs.isdisjoint({"lbnodeagent", "allocator"})
        ),
    ),
)


def pod_of(body: Json) -> Pod:
    """Return the record of a Pod."""
    metadata, spec = body["metadata"], body["spec"]
    containers = spec.get("containers") or ()
    ports = [port for container in containers for port in container.get("ports") or ()]
    return Pod(
        metadata["namespace"],
        metadata["name"],
        node=spec.get("nodeName") or "",
        labels=dict(metadata.get("labels") or {}),
        images=tuple(container.get("image") or "" for container in containers),
        arguments=tuple(
            text
            for container in containers
            for text in (*(container.get("command") or ()), *(container.get("args") or ()))
        ),
        environment={
            entry["name"]: entry["value"]
            for container in containers
            for entry in container.get("env") or ()
            if "value" in entry
        },
        # With the network of the host, the API server sets the host's port too.
        host_ports=frozenset(port["hostPort"] for port in ports if port.get("hostPort")),
        has_ended=(body.get("status") or {}).get("phase") in _ENDED,
    )


def controllers_of(pods: Iterable[Pod]) -> Iterator[Controller]:
    """Yield the known controllers among the Pods, each once; one that takes all comes first."""
    running = tuple(pods)
    for known in _KNOWN:
        found = [pod for pod in running if known.is_one(pod)]
        unlimited = [pod for pod in found if not known.is_limited(pod)]
        for pod in (unlimited or found)[:1]:
            seen = f"Pod {pod.namespace}/{pod.name}"
            yield Controller(known.name, known.title, seen, bool(unlimited), known.way)


def has_servicelb(annotations: Mapping[str, str]) -> bool:
    """Whether a Node's annotations say that it is a k3s server with servicelb.

    Without a Service of type LoadBalancer it has no Pods.
    """
    try:
        arguments = [str(each) for each in json.loads(annotations.get(_K3S_ARGUMENTS, "[]"))]
    except (TypeError, ValueError):
        return False
    if arguments[:1] != ["server"]:
        return False
    words = {word for text in arguments for word in text.replace("=", ",").split(",")}
    return words.isdisjoint(_K3S_SWITCHES)


def servicelb(node: str) -> Controller:
    """Return servicelb as one of a k3s server's arguments."""
    known = next(known for known in _KNOWN if known.name == "servicelb")
    seen = f"the k3s server {node} runs without --disable=servicelb"
    return Controller(known.name, known.title, seen, takes_all=True, way=known.way)


def pools_of_cilium(names: Tuple[str, ...]) -> Controller:
    """Return Cilium's LB IPAM; it sleeps until there is a pool."""
    seen = f"CiliumLoadBalancerIPPool {names[0]}"
    way = "set default-lb-service-ipam to none in Cilium's configuration, or remove its pools"
    return Controller("cilium", "the LB IPAM of Cilium", seen, takes_all=True, way=way)


def pools_of_calico(names: Tuple[str, ...]) -> Controller:
    """Return Calico's load balancer addresses; they need a pool for this use."""
    seen = f"IPPool {names[0]} with the use LoadBalancer"
    way = "set assignIPs to RequestedServicesOnly in its KubeControllersConfiguration"
    return Controller("calico", "the load balancer of Calico", seen, takes_all=True, way=way)
