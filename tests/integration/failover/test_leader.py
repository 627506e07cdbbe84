# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The leading allocator fails in several ways: the time until new Services get addresses again.

In all cases no address is allocated twice, and a process without the lock writes nothing.
"""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest

from labkit.host.processes import Process
from tests.support.lab.cluster_queries import (
    AGENTS,
    GRACEFUL,
    LEASES,
    agents_ready,
    allocator_pods,
    eventually,
    ingress,
    leader,
    lease_info,
)
from tests.support.lab.faults import is_ready

pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]
# Seconds: the lock's duration with a margin.
CRASH = 15.0 + 3.0
LOCK = f"{LEASES}/purelb-allocator"
REPLICAS = 2


def holder(lab):
    return lab.api.get(LOCK)["spec"].get("holderIdentity") or ""


def stands_by(lab, pod):
    """Whether the process itself is a standby; the pod's status may be older than a cut."""
    url = f"http://{pod['status'].get('podIP')}:7472/readyz"
    curl = ["curl", "-sS", "--fail", "--max-time", "1", url]
    return is_ready(pod) and lab.run_in(pod["spec"]["nodeName"], curl, check=False).returncode == 0


def is_whole(lab):
    pods = allocator_pods(lab)
    return len(pods) == REPLICAS and all(stands_by(lab, p) for p in pods) and bool(leader(lab))


@pytest.fixture
def leading(cluster):
    """The pod of the leader, on another node than the standby."""
    eventually(lambda: is_whole(cluster), "two allocators", seconds=60)
    pods = allocator_pods(cluster)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == REPLICAS
    yield leader(cluster)
    eventually(lambda: is_whole(cluster), "two allocators again", seconds=60)


def process_of(lab, pod):
    node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
    (pid,) = {c.pid for c in lab.containers(node) if (c.pod, c.name) == (name, "allocator")}
    return Process.of(pid)


def served(lab, path, *, since, limit):
    """Wait until the Service has both addresses; return the seconds since `since`."""
    lab.api.wait(path, lambda s: len(ingress(s)) == 2, what="addresses", seconds=limit + 20)
    seconds = time.monotonic() - since
    given = Counter(vip for s in lab.api.items("/api/v1/services") for vip in ingress(s))
    assert set(given.values()) == {1}, given
    return seconds


def writes_of(lab, pod):
    """Return the write requests of an allocator's pod with their answers."""
    who = pod["metadata"]["name"]
    entries = map(json.loads, lab.audit_log.read_text().splitlines())
    return [
        (entry["requestURI"], entry["responseStatus"]["code"])
        for entry in entries
        if entry["verb"] not in ("get", "list", "watch")
        and who in entry["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name", ())
    ]


def test_killed_leader_is_replaced(cluster, leading, make_service, figure):
    make_service()
    before, transitions = holder(cluster), cluster.api.get(LOCK)["spec"]["leaseTransitions"]
    start = time.monotonic()
    process_of(cluster, leading).send(9)
    seconds = served(cluster, make_service(), since=start, limit=CRASH)
    figure(f"new Service served {seconds:.2f} s after the leader was killed")
    assert seconds < CRASH
    assert holder(cluster) != before
    assert cluster.api.get(LOCK)["spec"]["leaseTransitions"] == transitions + 1


def test_frozen_leader_is_replaced_and_ends_when_resumed(
    cluster, leading, make_service, logs, figure
):
    make_service()
    frozen, start = process_of(cluster, leading), time.monotonic()
    frozen.send(19)
    try:
        # The frozen leader sees this Service only when it is resumed, still without an address.
        seconds = served(cluster, make_service(), since=start, limit=CRASH)
        make_service()
        wrote = writes_of(cluster, leading)
    finally:
        resumed = time.monotonic()
        frozen.send(18)
    eventually(lambda: not frozen.is_alive, "end of the process", seconds=10)
    ended = time.monotonic() - resumed
    figure(f"served after {seconds:.2f} s, ended {ended:.2f} s after it was resumed")
    assert seconds < CRASH
    assert writes_of(cluster, leading) == wrote
    # The container runtime writes the log after the process has ended.
    eventually(lambda: any("leadershipLost" in line for line in logs.news()), "line in the log")
    served(cluster, make_service(), since=start, limit=CRASH)


@pytest.mark.thorough
def test_leader_cut_off_from_the_api_is_replaced(cluster, leading, make_service, figure):
    node, process = leading["spec"]["nodeName"], process_of(cluster, leading)
    start = time.monotonic()
    cluster.partition(node)
    try:
        seconds = served(cluster, make_service(), since=start, limit=CRASH)
        eventually(lambda: not process.is_alive, "end of the process", seconds=10)
    finally:
        cluster.heal(node)
    figure(f"new Service served {seconds:.2f} s after the cut")
    assert seconds < CRASH
    eventually(lambda: agents_ready(cluster), "return of the node", seconds=60)


def test_deleted_leader_hands_over(cluster, leading, make_service, figure):
    # What the machine takes for a Service while nothing happens is not the handover's.
    start = time.monotonic()
    usual = served(cluster, make_service(), since=start, limit=GRACEFUL)
    process, before = process_of(cluster, leading), holder(cluster)
    cluster.api.delete(f"{AGENTS}/{leading['metadata']['name']}")
    eventually(lambda: holder(cluster) != before, "release", seconds=10)
    start = time.monotonic()
    seconds = served(cluster, make_service(), since=start, limit=GRACEFUL)
    eventually(lambda: not process.is_alive, "end of the process", seconds=10)
    figure(f"new Service served {seconds:.2f} s after the release, {usual:.2f} s before it")
    assert seconds < GRACEFUL


@pytest.mark.thorough
def test_deleted_lock_is_written_again_by_its_holder(cluster, leading, make_service):
    before = holder(cluster)
    cluster.api.delete(LOCK)
    eventually(lambda: cluster.api.exists(LOCK) and holder(cluster), "lock")
    assert holder(cluster) == before
    served(cluster, make_service(), since=time.monotonic(), limit=GRACEFUL)


def lock_seen(lab):
    (lock,) = lease_info(lab.kubeconfig)["leader_locks"]
    return lock


@pytest.mark.thorough
def test_audit_names_the_leader(cluster, leading):
    lock = lock_seen(cluster)
    assert (lock["kind"], lock["name"], lock["state"]) == ("Lease", "purelb-allocator", "held")
    assert lock["holder"].startswith(f"{leading['metadata']['name']}_")
    # On a busy machine a renewal, or the audit itself, is late once.
    eventually(lambda: lock_seen(cluster)["age"] < 3, "lock that was just renewed")
