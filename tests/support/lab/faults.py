# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers of fault tests: holders of many addresses, agents with changed pods, events, metrics."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_interface
from typing import Any

from labkit.lab import Lab
from labkit.net.namespaces import ip_batch, netns
from labkit.probe.addresses import addresses_on
from purelb.core.api.codec import lease_of
from purelb.core.model import Address
from purelb.core.node.plan import Put
from purelb_agent.node.netlink import Kernel
from tests.support.lab.cluster_queries import (
    AGENTS,
    DAEMON_SET,
    LEASES,
    addresses_of,
    agents_ready,
    allocator_pods,
    delete_agent,
    eventually,
    fetch,
    leader,
    metric,
)

EVENTS = "/api/v1/namespaces/{}/events"
ALLOCATOR = "/apis/apps/v1/namespaces/purelb-system/deployments/allocator"
Json = dict[str, Any]
# As in the Kubernetes documentation: kubectl taint nodes n1
# node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
OUT_OF_SERVICE = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "nodeshutdown",
    "effect": "NoExecute",
}


def holders_of(lab: Lab, *vips: str) -> dict[str, set[str]]:
    """Return the nodes that have each of these addresses; reads each node once."""
    on = {node: addresses_on(lab, node) for node in lab.nodes}
    return {vip: {node for node in on if ip_address(vip) in on[node]} for vip in vips}


def leave_marked(lab: Lab, node: str, *addresses: str) -> None:
    """Put addresses with masks on eth0 as an agent does, with a lifetime as of another agent."""

    async def put() -> None:
        kernel = Kernel()
        index = next(link.index for link in kernel.links() if link.name == "eth0")
        for one in map(ip_interface, addresses):
            length = one.network.prefixlen
            kernel.put(
                Put(index, one.ip, length, 300, 300, no_prefix_route=True, no_dad=True, is_new=True)
            )
        kernel.close()

    with netns(lab.hosts[node].netns):
        asyncio.run(put())


def serve_addresses(lab: Lab, make_service: Callable[..., str], **how: Any) -> list[str]:
    """Create four dual-stack Services; return their addresses when each is on one node."""
    paths = [make_service(**how) for _number in range(4)]
    return [vip for path in paths for vip in addresses_of(lab, path)]


def node_with_both_families(lab: Lab, vips: list[str]) -> tuple[str, list[str]]:
    """Return a node that has some of these addresses in both families, and those addresses."""

    def settled() -> dict[str, set[str]] | None:
        # A new agent is ready when it has its addresses, which may be before others left them.
        where = holders_of(lab, *vips)
        return where if all(len(on) == 1 for on in where.values()) else None

    where = eventually(settled, "holder for each address")
    for node in lab.nodes:
        own = [vip for vip in vips if where[vip] == {node}]
        if {":" in vip for vip in own} == {True, False}:
            return node, own
    raise AssertionError(f"no node has addresses of both families: {where}")


def wait_for_candidates(lab: Lab, *subnets: str, count: int | None = None) -> None:
    """Wait until every agent knows that every node has these subnets, so that all elect alike.

    With `count`, that so many nodes have them.

    Who hears of a Service before a peer's Lease takes an address of that peer for a while.
    """
    nodes = len(lab.nodes) if count is None else count
    wanted = {f'purelb_election_candidates{{subnet="{s}"}} {nodes:.1f}' for s in subnets}

    def lacking() -> dict[str, set[str]]:
        urls = {name: host.v4 for name, host in lab.nodes.items()}
        told = {name: fetch(lab, at, path="/metrics", port=7472) for name, at in urls.items()}
        return {
            name: left for name, text in told.items() if (left := wanted - {*text.splitlines()})
        }

    eventually(lambda: not lacking(), f"candidates in {subnets}", seconds=30)


def wait_until_moved(lab: Lab, node: str, own: list[str], *, seconds: float) -> None:
    """Wait until each of these addresses is on exactly one other node."""
    eventually(
        lambda: all(len(on) == 1 and node not in on for on in holders_of(lab, *own).values()),
        f"takeover of the addresses of {node}",
        seconds=seconds,
    )


def wait_until_returned(lab: Lab, node: str, own: list[str], *, seconds: float) -> None:
    """Wait until each of these addresses is on this node only."""
    eventually(
        lambda: all(on == {node} for on in holders_of(lab, *own).values()),
        f"return of {', '.join(own)} to {node}",
        seconds=seconds,
    )


def longest_of(seconds: Callable[[str], float], vips: Iterable[str]) -> float:
    """Return the maximum of `seconds` over these addresses."""
    return max(seconds(vip) for vip in vips)


def metric_of(lab: Lab, node: str, name: str) -> float:
    """Return the value of an agent's metric."""
    return metric(fetch(lab, lab.nodes[node].v4, path="/metrics", port=7472), name)


def events_of(lab: Lab, uid: str, reason: str, *, namespace: str = "default") -> list[Json]:
    """Return the events with this reason about an object."""
    about = f"involvedObject.uid={uid},reason={reason}"
    return lab.api.items(EVENTS.format(namespace), fieldSelector=about)


def is_ready(pod: Json) -> bool:
    """Whether all containers of a pod are ready and it is not terminating."""
    statuses = pod["status"].get("containerStatuses", ())
    is_leaving = "deletionTimestamp" in pod["metadata"]
    return bool(statuses) and not is_leaving and all(status["ready"] for status in statuses)


def agents_replaced(lab: Lab) -> bool:
    """Whether all agents are ready and no earlier one is still terminating."""
    pods = lab.api.items(AGENTS, labelSelector="component=lbnodeagent")
    return len(pods) == len(lab.nodes) and all(map(is_ready, pods)) and agents_ready(lab)


def replace_agents(lab: Lab, *nodes: str) -> None:
    """Delete the agents' pods on these nodes and wait for the new ones."""
    for node in nodes:
        delete_agent(lab, node)
    eventually(lambda: agents_replaced(lab), "new agents", seconds=30)


@contextmanager
def agents_with(lab: Lab, *nodes: str, change: Callable[[Json], None]) -> Iterator[None]:
    """Run the agents of these nodes with a changed pod template; other agents keep running."""
    spec = lab.api.get(DAEMON_SET)["spec"]
    template = copy.deepcopy(spec["template"]["spec"])
    change(template)
    on_delete = {"type": "OnDelete", "rollingUpdate": None}
    body = {"updateStrategy": on_delete, "template": {"spec": template}}
    try:
        _patch_agents(lab, body)
        replace_agents(lab, *nodes)
        yield
    finally:
        try:
            _patch_agents(lab, {"template": {"spec": spec["template"]["spec"]}})
            replace_agents(lab, *nodes)
        finally:
            _patch_agents(lab, {"updateStrategy": spec["updateStrategy"]})


@contextmanager
def without_fence(lab: Lab) -> Iterator[None]:
    """Run all agents without the fence, as where the kernel forbids it."""

    def change(template: Json) -> None:
        set_variable(template, "PURELB_FENCE", "off")

    with agents_with(lab, *lab.nodes, change=change):
        yield


def _patch_agents(lab: Lab, spec: Json) -> None:
    """Change the DaemonSet; wait for its controller, which else replaces a pod by an old one."""
    generation = lab.api.merge_patch(DAEMON_SET, {"spec": spec})["metadata"]["generation"]
    lab.api.wait(
        DAEMON_SET,
        lambda d: d["status"].get("observedGeneration", 0) >= generation,
        what="DaemonSet seen by its controller",
    )


def keep_addresses(lab: Lab, path: str, *vips: str) -> None:
    """Make a Service ask for the addresses that it has.

    One that is new and does not would get others when another host has these.
    """
    asked = {"metadata": {"annotations": {"purelb.io/addresses": ",".join(vips)}}}
    lab.api.merge_patch(path, asked)


def duplicates_in_leases(lab: Lab) -> dict[str, set[Address]]:
    """Return the addresses that agents list as another host's, by node."""
    leases = [lease_of(lease) for lease in lab.api.get(LEASES)["items"]]
    return {lease.node: set(lease.duplicates) for lease in leases if lease and lease.duplicates}


@contextmanager
def without_allocator(lab: Lab) -> Iterator[None]:
    """Let no allocator run, so that what a test writes to Services stays."""
    if not lab.api.exists(ALLOCATOR):
        yield
        return
    before = lab.api.get(ALLOCATOR)["spec"]["replicas"]
    lab.api.merge_patch(ALLOCATOR, {"spec": {"replicas": 0}})
    try:
        # A terminating Pod still allocates but does not count as a replica.
        eventually(lambda: not allocator_pods(lab), "end of the allocators", seconds=60)
        yield
    finally:
        lab.api.merge_patch(ALLOCATOR, {"spec": {"replicas": before}})
        lab.api.wait(
            ALLOCATOR,
            lambda d: d["status"].get("readyReplicas") == before,
            what="allocators",
            seconds=60,
        )
        eventually(lambda: leader(lab), "leader", seconds=40)


def set_variable(template: Json, name: str, value: str) -> None:
    """Set a variable of the agent's environment in a pod template."""
    (container,) = template["containers"]
    others = [variable for variable in container["env"] if variable["name"] != name]
    container["env"] = [*others, {"name": name, "value": value}]


def ip(lab: Lab, host: str, *commands: str) -> None:
    """Run `ip` commands on a host."""
    ip_batch(commands, namespace=lab.hosts[host].netns)
