# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What users and operators do to a cluster, one small step each.

Each returns the sentence that describes it, for the story of a workload. An object that is to be
changed must be there; what programs have written to it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from purelb.core.holding.peer_keys import PeerKeys
from purelb.core.model import Address
from purelb.core.names import (
    ADDRESSES_ANNOTATION,
    AFFINITY_ANNOTATION,
    AFFINITY_ENDPOINTS,
    ALLOW_LOCAL_ANNOTATION,
    DEFAULT_NAMESPACE,
    LEADER_LEASE,
    SERVICE_GROUP_ANNOTATION,
    SHARING_ANNOTATION,
)
from purelb.core.settings import TimingChoice
from purelb_agent.runtime.program import METRICS_PORT
from simulation.api.objects import Json
from simulation.cluster import Cluster
from simulation.manifests import KINDS, NET4, NET6, OTHER4, OTHER6
from simulation.member import Node
from simulation.node.http import ModelServer
from simulation.time.process import Process

# Seconds between two looks at whether an agent is ready.
_PROBE_PERIOD = 2.0


def _change(
    cluster: Cluster, kind: str, namespace: str, name: str, change: Callable[[Json], None]
) -> None:
    found = cluster.find(kind, namespace, name)
    if found is None:
        raise LookupError(f"there is no {kind} {name}")
    body = deepcopy(found)
    change(body)
    cluster.put(kind, namespace, name, body)


# Services


def add_service(
    cluster: Cluster,
    name: str,
    *,
    families: Sequence[str] = ("IPv4",),
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> str:
    """Create a Service of type LoadBalancer, by default with IPv4 alone."""
    policy = "SingleStack" if len(families) == 1 else "RequireDualStack"
    wanted = {
        "type": "LoadBalancer",
        "ports": [{"port": 80, "protocol": "TCP"}],
        "ipFamilies": list(families),
        "ipFamilyPolicy": policy,
    }
    body = {"metadata": {"annotations": dict(annotations or {})}, "spec": {**wanted, **spec}}
    cluster.put("services", "default", name, body)
    return f"the Service {name} is created, with {' and '.join(families)}"


def add_local_service(cluster: Cluster, name: str, nodes: Sequence[str]) -> str:
    """Create a Service whose address is to be where its endpoints are."""
    annotations = {ALLOW_LOCAL_ANNOTATION: "true", AFFINITY_ANNOTATION: AFFINITY_ENDPOINTS}
    move_endpoints(cluster, name, nodes)
    add_service(
        cluster,
        name,
        families=cluster.shape.families,
        annotations=annotations,
        externalTrafficPolicy="Local",
    )
    return f"the Local Service {name} is created, with endpoints on {', '.join(nodes)}"


def local_services(cluster: Cluster) -> list[str]:
    """Return the Services whose addresses are to be where their endpoints are."""
    return [
        stored.key.name
        for stored in cluster.api.objects.of_kind(KINDS["services"], "default")
        if AFFINITY_ANNOTATION in stored.body["metadata"].get("annotations", {})
    ]


def endpoints(cluster: Cluster, service: str) -> set[str]:
    """Return the nodes with an endpoint of a Service."""
    found = cluster.find("slices", "default", f"{service}-1") or {"endpoints": ()}
    return {each["nodeName"] for each in found["endpoints"] if each["conditions"]["ready"]}


def move_endpoints(
    cluster: Cluster, service: str, nodes: Sequence[str], unready: Sequence[str] = ()
) -> str:
    """Let a Service have an endpoint on each of these nodes, and on no other one."""
    endpoints = [
        {"nodeName": name, "addresses": ["10.0.0.1"], "conditions": {"ready": is_ready}}
        for names, is_ready in ((nodes, True), (unready, False))
        for name in names
    ]
    labels = {"kubernetes.io/service-name": service}
    body = {"metadata": {"labels": labels}, "addressType": "IPv4", "endpoints": endpoints}
    cluster.put("slices", "default", f"{service}-1", body)
    ready = f"ready ones of {service} on {', '.join(nodes) or 'no node'}"
    return f"endpoints move: {ready}, others on {', '.join(unready) or 'no node'}"


def ask_for(cluster: Cluster, service: str, *addresses: Address) -> str:
    """Ask for certain addresses, by annotation."""
    wanted = ",".join(map(str, addresses))
    _annotate(cluster, service, ADDRESSES_ANNOTATION, wanted)
    return f"{service} asks for {wanted}"


def share(cluster: Cluster, service: str, key: str, port: int) -> str:
    """Let a Service share its address with others of this key, on a port of its own."""

    def change(body: Json) -> None:
        body["metadata"].setdefault("annotations", {})[SHARING_ANNOTATION] = key
        body["spec"]["ports"] = [{"port": port, "protocol": "TCP"}]

    _change(cluster, "services", "default", service, change)
    return f"{service} shares by the key {key}, with port {port}"


def change_group(cluster: Cluster, service: str, group: str) -> str:
    """Ask for an address of another ServiceGroup."""
    _annotate(cluster, service, SERVICE_GROUP_ANNOTATION, group)
    return f"{service} asks for an address of the group {group}"


def change_type(cluster: Cluster, service: str, kind: str) -> str:
    """Make a Service of another type, for example ClusterIP, and back."""
    _change(cluster, "services", "default", service, lambda body: body["spec"].update(type=kind))
    return f"{service} becomes a Service of type {kind}"


def _annotate(cluster: Cluster, service: str, name: str, text: str) -> None:
    def change(body: Json) -> None:
        body["metadata"].setdefault("annotations", {})[name] = text

    _change(cluster, "services", "default", service, change)


# Groups and configurations


def put_remote_group(cluster: Cluster, name: str, **pools: str) -> str:
    """Create a ServiceGroup of addresses that all nodes have: `v4` and `v6` are its ranges."""
    remote = {f"{family}pools": [{"pool": pool, "subnet": pool}] for family, pool in pools.items()}
    cluster.put("groups", DEFAULT_NAMESPACE, name, {"spec": {"remote": remote}})
    return f"the group {name} has the ranges {', '.join(pools.values())} for all nodes"


def put_group(cluster: Cluster, name: str, **pools: str) -> str:
    """Create or change a ServiceGroup: `v4` and `v6` are its ranges, `other4` those of OTHER4."""
    nets = {"v4": NET4, "v6": NET6, "other4": OTHER4, "other6": OTHER6}
    subnets = {name: (f"v{net.version}pools", net) for name, net in nets.items()}
    local: dict[str, list[Json]] = {}
    for family, pool in pools.items():
        field, subnet = subnets[family]
        local.setdefault(field, []).append({"pool": pool, "subnet": str(subnet)})
    before = cluster.find("groups", DEFAULT_NAMESPACE, name) or {}
    cluster.put("groups", DEFAULT_NAMESPACE, name, {**before, "spec": {"local": local}})
    return f"the group {name} has the ranges {', '.join(pools.values())}"


def drop_group(cluster: Cluster, name: str) -> str:
    """Delete a ServiceGroup."""
    cluster.drop("groups", DEFAULT_NAMESPACE, name)
    return f"the group {name} is deleted"


def configure(
    cluster: Cluster,
    name: str,
    *,
    local: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
) -> str:
    """Create or change an LBNodeAgent, for all nodes or those with these labels."""
    selector = {"nodeSelector": {"matchLabels": dict(labels)}} if labels else {}
    cluster.put("configs", DEFAULT_NAMESPACE, name, {"spec": {"local": dict(local), **selector}})
    whom = f"nodes with {dict(labels)}" if labels else "all nodes"
    return f"the LBNodeAgent {name} says {dict(local)} for {whom}"


def unconfigure(cluster: Cluster, name: str) -> str:
    """Delete an LBNodeAgent."""
    cluster.drop("configs", DEFAULT_NAMESPACE, name)
    return f"the LBNodeAgent {name} is deleted"


# Nodes


def label(cluster: Cluster, node: Node, **labels: str) -> str:
    """Set labels of a Node."""
    _change(
        cluster,
        "nodes",
        "",
        node.name,
        lambda body: body["metadata"].setdefault("labels", {}).update(labels),
    )
    return f"{node.name} gets the labels {labels}"


def unlabel(cluster: Cluster, node: Node, key: str) -> str:
    """Take a label off a Node."""
    _change(cluster, "nodes", "", node.name, lambda body: body["metadata"]["labels"].pop(key, None))
    return f"{node.name} loses the label {key}"


def taint(cluster: Cluster, node: Node, key: str) -> str:
    """Put a taint on a Node, in addition to those that it has."""

    def change(body: Json) -> None:
        body["spec"].setdefault("taints", []).append({"key": key, "effect": "NoSchedule"})

    _change(cluster, "nodes", "", node.name, change)
    return f"{node.name} gets the taint {key}"


def untaint(cluster: Cluster, node: Node, key: str) -> str:
    """Take a taint off a Node."""

    def change(body: Json) -> None:
        taints = body["spec"].get("taints") or ()
        body["spec"]["taints"] = [found for found in taints if found["key"] != key]

    _change(cluster, "nodes", "", node.name, change)
    return f"{node.name} loses the taint {key}"


def connect_other_segment(cluster: Cluster, *nodes: Node) -> str:
    """Give nodes a second interface, eth1, with an address on a segment of its own."""
    if len(cluster.segments) == 1:
        cluster.add_segment("other", (OTHER4, OTHER6))
    for node in nodes:
        cluster.connect(node, cluster.segments[1])
    return f"{', '.join(node.name for node in nodes)} get an interface on {OTHER4} and {OTHER6}"


def delete_node(cluster: Cluster, node: Node) -> str:
    """Delete a Node: its Pods end at once, and its Lease is collected some seconds later."""
    cluster.drop("nodes", "", node.name)
    cluster.stop_agent(node)
    return f"the Node {node.name} is deleted, and its agent gets SIGTERM"


def create_node(cluster: Cluster, node: Node) -> str:
    """Let a machine join again under its name: a new Node object, and a new agent."""
    cluster.register(node)
    cluster.start_agent(node)
    return f"the Node {node.name} is there again, with a new agent"


# Agents


def restart_agent(cluster: Cluster, node: Node) -> str:
    """Replace an agent by a new Pod with the settings of its node, after it has ended in order."""
    agent = node.agent
    if agent is not None and _runs(agent):
        agent.on_end(partial(cluster.start_agent, node))
        cluster.stop_agent(node)
    else:
        cluster.start_agent(node)
    return f"the agent of {node.name} is restarted, with the timing {node.timing}"


def roll_out(
    cluster: Cluster, timing: TimingChoice, *, noted: Callable[[], None] = lambda: None
) -> str:
    """Give all agents another timing: one is restarted when the one before it is ready.

    A node without a running agent is passed over: its next agent has the new timing. `noted` is
    called when an agent is ready, and at the end.
    """
    waiting = list(cluster.nodes.values())
    for node in waiting:
        node.timing = timing

    def next_one() -> None:
        noted()
        running = (node for node in waiting if _runs(node.agent))
        node = next(running, None)
        if node is not None:
            del waiting[: waiting.index(node) + 1]
            restart_agent(cluster, node)
            _when_ready(cluster, node, node.agent, next_one)

    next_one()
    return f"a roll-out of {timing} begins"


def _runs(agent: Process | None) -> bool:
    return agent is not None and not (agent.is_dead or agent.has_ended)


def _when_ready(
    cluster: Cluster, node: Node, before: Process | None, proceed: Callable[[], None]
) -> None:
    """Proceed when the successor of an agent has been ready for a while, or if none will come."""

    def probe() -> None:
        agent = node.agent
        server = cluster.network.servers.get((node.addresses[0], METRICS_PORT))
        if agent is not None and agent.is_dead:
            proceed()
            return
        if agent is not before and agent is not None and server and server.process is agent:
            agent.deliver(look, server)
        cluster.timeline.after(_PROBE_PERIOD, proceed if answers else probe)

    answers: list[bool] = []

    def look(server: ModelServer) -> None:
        if server.is_ready():
            answers.append(True)

    cluster.timeline.after(_PROBE_PERIOD, probe)


def give_keys(node: Node, keys: PeerKeys | None) -> str:
    """Let the kubelet write another version of the peers' keys, which the agent reads at once.

    None takes the Secret away, which only the next agent of the node notices.
    """
    node.keys = keys
    return f"{node.name} has the peers' keys {' '.join(keys.ids) if keys else 'none'}"


def leader(cluster: Cluster) -> str:
    """Return the allocator that leads by its lock, also if that has ended; else the first one."""
    lock = cluster.find("leases", DEFAULT_NAMESPACE, LEADER_LEASE)
    holder = lock["spec"].get("holderIdentity") if lock else ""
    return holder.partition("_")[0] if holder else min(cluster.allocators)


def kill_leader(cluster: Cluster) -> str:
    """Let the allocator that leads die at once; its lock stays until its end."""
    name = leader(cluster)
    process = cluster.allocators[name]
    if not (process.is_dead or process.has_ended):
        process.kill()
        cluster.kubelets[f"allocator/{name}"].container_ended(process)
        cluster.way(f"allocator/{name}").abandon()
    return f"{name}, which leads, is killed"
