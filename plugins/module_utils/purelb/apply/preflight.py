# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Looks at a cluster before an installation. Its only write is a dry run of a Pod."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    TypeVar,
)

from ..audit.cluster_reader import AGENTS, DAEMON_SETS, NODES, PODS, SERVICES
from ..core.api import codec
from ..core.names import FIELD_MANAGERS, MARK
from ..core.preflight import controllers
from ..core.preflight.preflight import (
    Existing,
    Namespace,
    ProxyMode,
    Seen,
    Wanted,
    may_label,
    obstacles,
)
from ..module.errors import FORBIDDEN, ApiError, ClusterError
from ..module.kube import Cluster, Kind, Object

# It comes with the package kubernetes, whose absence `run` reports.
with contextlib.suppress(ImportError):
    import yaml

NAMESPACES = Kind("", "v1", "namespaces", namespaced=False)
CONFIG_MAPS = Kind("", "v1", "configmaps", namespaced=True)
_CILIUM = ("cilium.io/v2", "cilium.io/v2alpha1")
_CALICO = "crd.projectcalico.org/v1"
_LEVEL = "pod-security.kubernetes.io/enforce"

T = TypeVar("T")


def preflight_info(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: ARG001, FBT001 - reading is the same in check mode
    """The work of the module purelb_preflight_info."""
    agents = _agents(params["objects"])
    wanted = _wanted(agents, params["objects"])
    accepted = frozenset(params["accept"])
    look = _Look(cluster)
    existing = look.existing(wanted.namespace)
    seen = look.seen(wanted, agents)
    return {
        "changed": False,
        "obstacles": [
            asdict(obstacle) for obstacle in obstacles(wanted, existing, seen, accepted=accepted)
        ],
        "labels_namespace": may_label(wanted, seen.namespace, accepted),
    }


def _agents(objects: List[Object]) -> Object:
    for obj in objects:
        if obj.get("kind") == "DaemonSet":
            return obj
    raise ClusterError("objects has no DaemonSet: give the objects of the role purelb_install")


def _wanted(agents: Object, objects: List[Object]) -> Wanted:
    port, claims = _settings(agents)
    return Wanted(
        namespace=agents["metadata"]["namespace"],
        port=port,
        node_selector=agents["spec"]["template"]["spec"].get("nodeSelector") or {},
        claims_unclassed=claims,
        labels_namespace=any(obj.get("kind") == "Namespace" for obj in objects),
    )


def _settings(agents: Object) -> Tuple[int, bool]:
    """Returns the port of agents, and whether they claim Services without a class."""
    container = agents["spec"]["template"]["spec"]["containers"][0]
    ports = [port["containerPort"] for port in container.get("ports") or ()]
    switches = {entry["name"]: entry.get("value") for entry in container.get("env") or ()}
    return (ports or [0])[0], switches.get("PURELB_CLAIM_UNCLASSED") != "off"


class _Node(NamedTuple):
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class _Look:
    """Reads; what the user may not read is noted."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._unread: List[str] = []

    def existing(self, namespace: str) -> Optional[Existing]:
        """Returns what the namespace has of this installation."""
        found = self._cluster.get(DAEMON_SETS, namespace=namespace, name=AGENTS)
        return Existing(*_settings(found)) if found else None

    def seen(self, wanted: Wanted, agents: Object) -> Seen:
        """Returns what is in the cluster."""
        nothing: Tuple[str, ...] = ()
        no_pods: Tuple[controllers.Pod, ...] = ()
        no_nodes: Tuple[_Node, ...] = ()
        no_controllers: Tuple[controllers.Controller, ...] = ()
        pods = self._allowed(self._pods, no_pods)
        nodes = self._allowed(self._nodes, no_nodes)
        namespace = self._allowed(
            lambda: self._cluster.get(NAMESPACES, namespace=None, name=wanted.namespace), None
        )
        installations = self._allowed(self._installations, nothing)
        with_servicelb = (n.name for n in nodes if controllers.has_servicelb(n.annotations))
        found = [
            *controllers.controllers_of(pods),
            *(controllers.servicelb(name) for name in with_servicelb),
            *self._allowed(self._pools, no_controllers),
        ]
        return Seen(
            pods=pods,
            nodes={node.name: node.labels for node in nodes},
            # One that is known by its Pods may be known by a Node, too.
            controllers=tuple({controller.name: controller for controller in found}.values()),
            installations=tuple(sorted({*installations} - {wanted.namespace})),
            namespace=_namespace(namespace) if namespace else None,
            refusal=self._refusal(agents) if namespace else "",
            others=self._allowed(self._others, {}),
            service_proxy=self._allowed(self._service_proxy, ProxyMode()),
            unread=tuple(dict.fromkeys(self._unread)),
        )

    def _allowed(self, read: Callable[[], T], default: T) -> T:
        try:
            return read()
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            self._unread.append(str(error))
            return default

    def _installations(self) -> Tuple[str, ...]:
        """Returns the namespaces in which this collection has installed agents."""
        selector = ",".join(f"{key}={value}" for key, value in MARK.items())
        return tuple(
            self._cluster.read_all(
                DAEMON_SETS,
                convert=lambda obj: str(obj["metadata"]["namespace"]),
                labelSelector=selector,
            )
        )

    def _pods(self) -> Tuple[controllers.Pod, ...]:
        found = self._cluster.read_all(PODS, convert=controllers.pod_of)
        return tuple(pod for pod in found if not pod.has_ended)

    def _nodes(self) -> Tuple[_Node, ...]:
        def convert(obj: Object) -> _Node:
            metadata = obj["metadata"]
            return _Node(
                metadata["name"], metadata.get("labels") or {}, metadata.get("annotations") or {}
            )

        return tuple(self._cluster.read_all(NODES, convert=convert))

    def _pools(self) -> Tuple[controllers.Controller, ...]:
        """Returns the controllers that need no Pod of their own, by their pools."""
        known = (self._names(version, "CiliumLoadBalancerIPPool") for version in _CILIUM)
        cilium = next(filter(None, known), ())
        calico = self._names(_CALICO, "IPPool", use="LoadBalancer")
        return tuple(
            convert(names)
            for convert, names in (
                (controllers.pools_of_cilium, cilium),
                (controllers.pools_of_calico, calico),
            )
            if names
        )

    def _names(self, api_version: str, name: str, *, use: str = "") -> Tuple[str, ...]:
        kind = self._cluster.kind(api_version, name)
        if kind is None:
            return ()
        found = self._cluster.read_all(kind, convert=dict)
        return tuple(
            obj["metadata"]["name"]
            for obj in found
            if not use or use in (obj.get("spec", {}).get("allowedUses") or ())
        )

    def _refusal(self, agents: Object) -> str:
        """Returns what the API server says to a Pod of the agents; empty if it would take it."""
        template = agents["spec"]["template"]
        # The account may not exist yet; each namespace has a default one.
        spec = {k: v for k, v in template["spec"].items() if k != "serviceAccountName"}
        metadata = {
            "generateName": "purelb-preflight-",
            "namespace": agents["metadata"]["namespace"],
        }
        labels = template["metadata"].get("labels") or {}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "labels": labels}}
        try:
            self._cluster.create(PODS, {**pod, "spec": spec}, dry_run=True)
        except ApiError as error:
            if "is forbidden: User " not in str(error):
                return str(error)
            self._unread.append(str(error))
        return ""

    def _others(self) -> Mapping[str, Tuple[str, ...]]:
        """Returns the Services without a class that have addresses of others, by their writer."""
        found: Dict[str, List[str]] = {}
        services = self._cluster.read_all(
            SERVICES, convert=codec.service_of, fieldSelector="spec.type=LoadBalancer"
        )
        for service in services:
            writers: FrozenSet[str] = service.address_writers - FIELD_MANAGERS
            has_addresses = service.addresses or service.other_ingress
            if service.load_balancer_class is None and has_addresses:
                for writer in sorted(writers):
                    found.setdefault(writer, []).append(str(service.key))
        return {writer: tuple(keys) for writer, keys in found.items()}

    def _service_proxy(self) -> ProxyMode:
        """Returns what kube-proxy is told, where kubeadm and kubespray keep it."""
        found = self._cluster.get(CONFIG_MAPS, namespace="kube-system", name="kube-proxy") or {}
        try:
            told = yaml.safe_load((found.get("data") or {}).get("config.conf") or "{}")
        except yaml.YAMLError:
            told = {}
        if not isinstance(told, dict):
            return ProxyMode()
        ipvs = told.get("ipvs") or {}
        return ProxyMode(str(told.get("mode") or ""), bool(ipvs.get("strictARP")))


def _namespace(body: Object) -> Namespace:
    labels = body["metadata"].get("labels") or {}
    return Namespace(MARK.items() <= labels.items(), labels.get(_LEVEL) or "")
