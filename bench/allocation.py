# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The allocator with many Services at once: speed, writes, start-up time, memory.

No node agent runs and kube-proxy ignores the Services, so only the allocator and the API server are
measured. Requests are counted in the API server's audit log.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from bench import bed
from bench.figures import Figure, progress
from bench.idle import resident_mib
from labkit.lab import Lab

_ALLOCATOR = f"system:serviceaccount:{bed.NAMESPACE}:allocator"
_DEPLOYMENT = f"/apis/apps/v1/namespaces/{bed.NAMESPACE}/deployments/allocator"
_DAEMON_SET = f"/apis/apps/v1/namespaces/{bed.NAMESPACE}/daemonsets/lbnodeagent"
_GROUP = f"/apis/purelb.io/v2/namespaces/{bed.NAMESPACE}/servicegroups/default"
_PODS = f"/api/v1/namespaces/{bed.NAMESPACE}/pods"
_FROM_EMPTY, _AT_START = 1000, 5000
# In no node's subnet, and large enough for all Services.
_POOLS = {
    "v4pool": {"pool": "10.77.0.0/18", "subnet": "10.77.0.0/16"},
    "v6pool": {"pool": "fd77::/64", "subnet": "fd77::/64"},
}


def _service(number: int) -> dict[str, Any]:
    """Return a dual-stack Service without endpoints and node ports (a cluster has too few)."""
    made = bed.service(number)
    del made["spec"]["selector"]
    made["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": "none"}
    made["spec"]["allocateLoadBalancerNodePorts"] = False
    return made


def _scale(lab: Lab, replicas: int) -> None:
    lab.api.merge_patch(_DEPLOYMENT, {"spec": {"replicas": replicas}})
    bed.eventually(lambda: len(_pods(lab, "allocator")) == replicas, "pods of the allocator", 60)


def _pods(lab: Lab, component: str) -> list[dict[str, Any]]:
    return lab.api.items(_PODS, labelSelector=f"component={component}")


def _remove_agents(lab: Lab) -> None:
    spec = {"template": {"spec": {"nodeSelector": {"no-node": "has-this"}}}}
    lab.api.merge_patch(_DAEMON_SET, {"spec": spec})
    bed.eventually(lambda: not _pods(lab, "lbnodeagent"), "end of the agents", 120)


def _create(lab: Lab, numbers: Iterable[int]) -> None:
    for number in numbers:
        lab.api.create(_service(number))
        if number % 500 == 0:
            progress(f"{number} Services created")


def _wait_until_served(lab: Lab, count: int) -> None:
    """Wait for the counts in the pool's status, as listing thousands of Services is expensive."""

    def served() -> bool:
        status = lab.api.get(_GROUP).get("status", {})
        return all(status.get(f"allocated{family}") == count for family in ("IPv4", "IPv6"))

    bed.eventually(served, f"addresses for {count} Services", 180)


def writes(lines: Iterable[str]) -> tuple[Counter[str], float]:
    """Return the allocator's writes by resource, and the time span of Service writes."""
    counted: Counter[str] = Counter()
    times = []
    for line in lines:
        entry = json.loads(line)
        if (
            entry["user"]["username"] != _ALLOCATOR
            or entry["stage"] != "ResponseComplete"
            or entry["verb"] not in ("create", "patch", "update")
        ):
            continue
        about = entry["objectRef"]
        counted["/".join(filter(None, (about["resource"], about.get("subresource"))))] += 1
        if about["resource"] == "services":
            times.append(datetime.fromisoformat(entry["stageTimestamp"]).timestamp())
    return counted, max(times) - min(times)


def _log_times(lab: Lab, *events: str) -> list[float]:
    """Return the times at which the newest allocator logged these events."""
    path = max(
        lab.at.run.glob(f"*/pods/{bed.NAMESPACE}_allocator*/*/*.log"),
        key=lambda p: p.stat().st_mtime,
    )
    lines, found = path.read_text().splitlines(), []
    for event in events:
        entries = (json.loads(line.partition(" F ")[2]) for line in lines)
        entry = next(entry for entry in entries if entry["msg"] == event)
        found.append(datetime.fromisoformat(entry["ts"]).timestamp())
    return found


def measure(*, runs: int) -> list[Figure]:
    """Measure allocation for 1,000 new Services, then start-up with 5,000, in this many runs."""
    speeds, per_service, starts, memory = [], [], [], []
    with bed.bed() as lab:
        _remove_agents(lab)
        lab.api.merge_patch(_GROUP, {"spec": {"local": _POOLS}})
        for run in range(runs):
            progress(f"run {run + 1} of {runs}: {_FROM_EMPTY} Services without an address")
            _scale(lab, 0)
            _create(lab, range(_FROM_EMPTY))
            position = lab.audit_log.stat().st_size
            _scale(lab, 1)
            _wait_until_served(lab, _FROM_EMPTY)
            with lab.audit_log.open() as log:
                log.seek(position)
                counted, seconds = writes(log)
            about = sum(n for what, n in counted.items() if what.startswith("services"))
            speeds.append(seconds / _FROM_EMPTY * 1000)
            per_service.append(about / _FROM_EMPTY)
            progress(f"writes: {dict(counted)}")
            if run < runs - 1:
                _delete(lab, range(_FROM_EMPTY))
        _create(lab, range(_FROM_EMPTY, _AT_START))
        _wait_until_served(lab, _AT_START)
        for _run in range(runs):
            starts.append(_start(lab))
            memory.append(_memory(lab))
    return _figures(speeds, per_service, starts, memory)


def _delete(lab: Lab, numbers: Iterable[int]) -> None:
    for number in numbers:
        lab.api.delete(f"{bed.SERVICES}/bench-{number:04}")


def _start(lab: Lab) -> float:
    """Restart the allocator; return the seconds from its start until it is ready."""
    _scale(lab, 0)
    _scale(lab, 1)
    lab.api.wait(_DEPLOYMENT, lambda d: d["status"].get("readyReplicas") == 1, seconds=60)
    began, ready = _log_times(lab, "started", "ready")
    return ready - began


def _memory(lab: Lab) -> float:
    (pod,) = _pods(lab, "allocator")
    return resident_mib(lab.pod_pid(pod["spec"]["nodeName"], "allocator"))


def _figures(
    speeds: Sequence[float],
    per_service: Sequence[float],
    starts: Sequence[float],
    memory: Sequence[float],
) -> list[Figure]:
    empty, full = f"{_FROM_EMPTY} from empty", f"{_AT_START} at start"
    return [
        Figure(empty, "time for a Service", "ms", tuple(speeds), aim=10.0),
        Figure(empty, "writes for a Service", "", tuple(per_service), aim=2.01),
        Figure(full, "start-up until ready", "s", tuple(starts), aim=5.0),
        Figure(full, "memory (RSS)", "MiB", tuple(memory), aim=100.0),
    ]
