# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The agent restarts, freezes, runs out of memory, or runs twice.

Each test checks several addresses of both families and prints figures of this machine; the asserted
limits are the contract's.
"""

from __future__ import annotations

import contextlib
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from labkit.net.namespaces import netns
from labkit.probe.prober import Prober
from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import (
    AGENTS,
    CRASH,
    DAEMON_SET,
    GRACEFUL,
    LEASE_END,
    LEASES,
    agent_pod,
    agents_ready,
    eventually,
)
from tests.support.lab.faults import (
    holders_of,
    is_ready,
    longest_of,
    node_with_both_families,
    replace_agents,
    serve_addresses,
    wait_until_moved,
    wait_until_returned,
)

pytestmark = [pytest.mark.timeout(150), pytest.mark.safety]
SETTLED = 3.0
CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def vips(cluster, make_service):
    return serve_addresses(cluster, make_service)


def is_rolled_out(lab):
    daemon_set = lab.api.get(DAEMON_SET)
    status = daemon_set["status"]
    return (
        status["observedGeneration"] == daemon_set["metadata"]["generation"]
        and status.get("updatedNumberScheduled") == len(lab.nodes)
        and agents_ready(lab)
    )


@pytest.mark.thorough
def test_rolling_restart_interrupts_no_address_for_a_second(cluster, vips, figure):
    with Prober(cluster, *vips) as prober, record_holders(cluster, *vips) as holders:
        for vip in vips:
            prober.wait_for_answer(vip, after=0, seconds=15)
        start = time.monotonic()
        restarted_at = {"kubectl.kubernetes.io/restartedAt": datetime.now(UTC).isoformat()}
        template = {"metadata": {"annotations": restarted_at}}
        cluster.api.merge_patch(DAEMON_SET, {"spec": {"template": template}})
        eventually(lambda: is_rolled_out(cluster), "end of the restart", seconds=60)
        seconds = time.monotonic() - start
        time.sleep(SETTLED)
        gaps = {vip: prober.longest_gap(vip, since=start) for vip in vips}
    doubled = longest_of(holders.longest_doubled, vips)
    figure(
        f"rolled out in {seconds:.1f} s, client without answer {max(gaps.values()):.2f} s, "
        f"on two {doubled:.2f} s"
    )
    assert max(gaps.values()) < 1, gaps
    assert doubled < 1


def test_resumed_agent_holds_no_address_of_other_nodes(cluster, vips, figure):
    node, own = node_with_both_families(cluster, vips)
    before = restarts_of(cluster, node)
    cluster.kill(node, "lbnodeagent", "STOP")
    start = time.monotonic()
    try:
        with record_holders(cluster, *own) as frozen:
            eventually(lambda: not placed_on(cluster, node, own), "end by the kernel", seconds=11)
            gone = time.monotonic() - start
            wait_until_moved(cluster, node, own, seconds=CRASH)
            taken = time.monotonic() - start
            time.sleep(20 - taken)
    finally:
        cluster.kill(node, "lbnodeagent", "CONT")
    thawed = time.monotonic()
    with record_holders(cluster, *own) as holders:
        wait_until_returned(cluster, node, own, seconds=GRACEFUL)
        returned = time.monotonic() - thawed
        time.sleep(SETTLED)
    doubled = longest_of(holders.longest_doubled, own)
    figure(
        f"gone after {gone:.2f} s, taken after {taken:.2f} s, back {returned:.2f} s after it went "
        f"on, on two then {doubled:.2f} s"
    )
    assert longest_of(frozen.longest_doubled, own) == 0
    assert doubled < 1
    assert all(holders.sequence(vip)[-1] == {node} for vip in own)
    assert restarts_of(cluster, node) == before


def restarts_of(lab, node):
    return agent_pod(lab, node)["status"]["containerStatuses"][0]["restartCount"]


def placed_on(lab, node, vips):
    return [vip for vip, on in holders_of(lab, *vips).items() if node in on]


def ready_to_restart(lab, node):
    """Ensure that the kubelet restarts the container immediately, without a backoff."""
    if restarts_of(lab, node):
        replace_agents(lab, node)


def use_up_memory(lab, node):
    """Limit the agent's memory and send requests that need some; return its old pid."""
    pid = lab.pod_pid(node, "lbnodeagent")
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    (path,) = [path for _id, name, path in (x.split(":", 2) for x in lines) if name == "memory"]
    folder = CGROUPS / "memory" / path.lstrip("/")
    begin = time.monotonic()
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < begin + 10, "the agent lives on"
        with contextlib.suppress(OSError):  # busy, or gone
            used = (folder / "memory.usage_in_bytes").read_text()
            (folder / "memory.limit_in_bytes").write_text(used)
        with netns(lab.nodes[node].netns), contextlib.suppress(OSError):
            asking = socket.create_connection(("127.0.0.1", 7472), timeout=0.05)
            asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            asking.close()
    return pid


@pytest.mark.thorough
def test_agent_out_of_memory_restarts_and_keeps_its_addresses(cluster, vips, figure):
    node, own = node_with_both_families(cluster, vips)
    ready_to_restart(cluster, node)
    wait_until_returned(cluster, node, own, seconds=GRACEFUL)
    with Prober(cluster, *own) as prober, record_holders(cluster, *own) as holders:
        for vip in own:
            prober.wait_for_answer(vip, after=0, seconds=15)
        start = time.monotonic()
        old = use_up_memory(cluster, node)
        eventually(lambda: restarted(cluster, node), "restart", seconds=CRASH)
        seconds = time.monotonic() - start
        time.sleep(LEASE_END)  # as long as the Lease of the killed agent could have lasted
        gap = max(prober.longest_gap(vip, since=start) for vip in own)
    status = restarted(cluster, node)
    figure(f"ready again after {seconds:.2f} s, client without answer {gap:.2f} s")
    assert status["lastState"]["terminated"]["reason"] == "OOMKilled"
    assert cluster.pod_pid(node, "lbnodeagent") != old
    assert all(holders.sequence(vip) == [{node}] for vip in own)
    assert gap < 1


def restarted(lab, node):
    """Return the status of the agent's container once it is ready after a restart."""
    (status,) = agent_pod(lab, node)["status"]["containerStatuses"]
    return status if status["restartCount"] and status["ready"] else None


@pytest.fixture
def second_agent(cluster):
    """Starts a second agent on a node; deletes it after the test."""
    path = f"{AGENTS}/second"

    def start(node):
        template = cluster.api.get(DAEMON_SET)["spec"]["template"]["spec"]
        (container,) = template["containers"]
        container["args"] = [a.replace("port=7472", "port=7473") for a in container["args"]]
        container["ports"] = [{"name": "monitoring", "containerPort": 7473}]
        meta = {"name": "second", "namespace": "purelb-system", "labels": {"app": "second"}}
        spec = {**template, "nodeName": node}
        cluster.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        cluster.api.wait(path, is_ready, what="second agent", seconds=20)
        return path

    yield start
    cluster.api.delete(path, gracePeriodSeconds=0)


def lease_of(lab, node):
    return lab.api.get(f"{LEASES}/purelb-node-{node}")


def instance(lab, node):
    return lease_of(lab, node)["metadata"]["annotations"]["purelb.io/instance"]


@pytest.mark.thorough
@pytest.mark.parametrize("last", ["first", "second"])
def test_second_agent_moves_no_address_and_interrupts_briefly_at_its_end(
    cluster, vips, second_agent, last, figure
):
    """`last`: the agent whose instance is in the Lease when the second one ends."""
    node, own = node_with_both_families(cluster, vips)
    uids = {"first": agent_pod(cluster, node)["metadata"]["uid"]}
    with record_holders(cluster, *vips) as both:
        path = second_agent(node)
        uids["second"] = cluster.api.get(path)["metadata"]["uid"]
        for name in ({*uids} - {last}).pop(), last:
            eventually(lambda n=name: instance(cluster, node) == uids[n], f"write of the {name}")
    with record_holders(cluster, *vips) as holders:
        cluster.api.delete(path)
        eventually(lambda: not cluster.api.exists(path), "end of the second")
        time.sleep(SETTLED)
        wait_until_returned(cluster, node, own, seconds=GRACEFUL)
    unheld = longest_of(holders.longest_unheld, vips)
    away = longest_of(lambda vip: holders.seconds_with(vip, lambda on: bool(on - {node})), own)
    doubled = longest_of(holders.longest_doubled, vips)
    figure(f"on no node {unheld:.2f} s as it left, on others {away:.2f} s, on two {doubled:.2f} s")
    assert all(len(both.sequence(vip)) == 1 for vip in vips)
    assert doubled < 1
    assert unheld < 1
    assert away < 2
    assert instance(cluster, node) == uids["first"]
