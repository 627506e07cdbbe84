# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The progress of a rollout: which nodes run the current agent, and which of these renew a Lease.

The DaemonSet controller restarts one node after the other. An agent becomes ready, and so lets the
next one restart, when its Lease is valid and its addresses are usable. `node_state` is pure;
`rollout_info` reads and waits. Writes nothing.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ..audit import cluster_reader
from ..core.api.workloads import is_ready, node_of, pod_problems
from ..core.audit.audit import audit
from ..core.audit.report import LeaseReport
from ..module.errors import ClusterError
from ..module.kube import Cluster, Kind, Object
from .readiness import progress
from .refused_pods import refused_pods

REVISIONS = Kind("apps", "v1", "controllerrevisions", namespaced=True)
REVISION_LABEL = "controller-revision-hash"
# Seconds between two reads; a node takes several.
POLL_INTERVAL = 1.0


@dataclass(frozen=True)
class NodeState:
    """A node's agent. `begun`: the rollout has reached this node."""

    node: str
    pod: str
    done: bool
    begun: bool
    reason: str
    remediation: str = ""


@dataclass(frozen=True)
class Rollout:
    """The state of all nodes at one time."""

    complete: bool
    reason: str
    nodes: Tuple[NodeState, ...] = ()

    @property
    def done(self) -> List[str]:
        """Nodes that run the current agent, with a valid Lease."""
        return [state.node for state in self.nodes if state.done]

    def timeout_message(self, seconds: int, refused: Sequence[str] = ()) -> str:
        """Returns the error text for a rollout without progress: nodes, reasons, remediations.

        `refused`: what the API server says to Pods that its controller cannot make.
        """
        waiting = [state for state in self.nodes if not state.done]
        stuck = [state for state in waiting if state.begun] or waiting
        causes = " ".join(f"{state.node}: {state.reason}. {state.remediation}" for state in stuck)
        others = [state.node for state in waiting if state not in stuck]
        rest = f"Still with the previous agent: {', '.join(others)}. " if others else ""
        unmade = "".join(f"{text}. " for text in refused)
        return (
            f"the rollout has made no progress for {seconds} s: {causes or self.reason + '.'} "
            f"{unmade}{rest}Run again when that is fixed"
        )


def node_state(
    daemon_set: Object,
    pods: Sequence[Object],
    leases: Mapping[str, LeaseReport],
    *,
    revision: str,
) -> Rollout:
    """Returns the state of a rollout; `revision` is the hash of the current Pod template."""
    states = tuple(
        sorted((_state(pod, leases, revision) for pod in pods), key=lambda state: state.node)
    )
    whole = progress(daemon_set)
    reason = next(
        (f"{state.node}: {state.reason}" for state in states if not state.done), whole.reason
    )
    complete = whole.done and all(state.done for state in states)
    return Rollout(complete, whole.reason if complete else reason, states)


def _state(pod: Object, leases: Mapping[str, LeaseReport], revision: str) -> NodeState:
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    node = node_of(pod)
    kubectl = f"kubectl -n {metadata['namespace']}"
    logs = f"See: {kubectl} logs {name}."

    def not_done(reason: str, remediation: str = "", *, begun: bool = True) -> NodeState:
        return NodeState(
            node, name, done=False, begun=begun, reason=reason, remediation=remediation
        )

    if metadata.get("deletionTimestamp"):
        remediation = f"Check that its kubelet is up: kubectl describe node {node}."
        return not_done(f"the previous agent has not ended (Pod {name})", remediation)
    if metadata.get("labels", {}).get(REVISION_LABEL) != revision:
        return not_done("it runs the previous agent", begun=False)
    if not is_ready(pod):
        reason = "; ".join(pod_problems(pod)) or f"Pod {name} is not ready"
        events = f"See: {kubectl} describe pod {name}."
        return not_done(reason, events if pod["status"].get("phase") == "Pending" else logs)
    return _lease_state(pod, node, leases.get(node), not_done, logs)


def _lease_state(
    pod: Object,
    node: str,
    report: Optional[LeaseReport],
    not_done: Callable[..., NodeState],
    logs: str,
) -> NodeState:
    name = pod["metadata"]["name"]
    if report is None:
        return not_done(f"it has no Lease, although Pod {name} is ready", logs)
    if report.lease.instance != pod["metadata"]["uid"]:
        return not_done(f"its Lease belongs to another Pod than {name}", logs)
    if not report.is_live:
        age = "never" if report.age is None else f"{report.age:.0f} s ago"
        remediation = f"{logs} Also compare the clocks of this machine and the node."
        return not_done(
            f"its Lease was renewed {age}, and lasts {report.lease.duration:g} s", remediation
        )
    return NodeState(node, name, done=True, begun=True, reason="its Lease is renewed")


def rollout_info(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_rollout_info."""
    if check_mode and params["wait"]:
        # Check mode started no rollout, so there is nothing to wait for.
        return _answer(Rollout(complete=False, reason="nothing is rolled out in check mode"))
    known = set(params["known"])
    seconds: int = params["wait_timeout"]
    deadline = time.monotonic() + seconds
    while True:
        rollout = look(cluster, namespace=params["namespace"])
        if rollout.complete or not params["wait"] or not known.issuperset(rollout.done):
            return _answer(rollout)
        if time.monotonic() >= deadline:
            found = _daemon_set(cluster, namespace=params["namespace"])
            raise ClusterError(rollout.timeout_message(seconds, refused_pods(cluster, found)))
        # A node that restarts once more counts as progress again when it is done.
        known &= set(rollout.done)
        time.sleep(POLL_INTERVAL)


def _answer(rollout: Rollout) -> Dict[str, Any]:
    return {
        "changed": False,
        "complete": rollout.complete,
        "reason": rollout.reason,
        "done": rollout.done,
        "nodes": [asdict(state) for state in rollout.nodes],
    }


def look(cluster: Cluster, *, namespace: str) -> Rollout:
    """Returns the present state of the node agents of an installation."""
    daemon_set = _daemon_set(cluster, namespace=namespace)
    leases = cluster_reader.read_leases(cluster, namespace=namespace)
    reports = audit(leases, (), wall_time=time.time()).leases
    return node_state(
        daemon_set,
        _owned(cluster, cluster_reader.PODS, daemon_set),
        {report.lease.node: report for report in reports},
        revision=_newest_revision(_owned(cluster, REVISIONS, daemon_set)),
    )


def _daemon_set(cluster: Cluster, *, namespace: str) -> Object:
    found = cluster.get(cluster_reader.DAEMON_SETS, namespace=namespace, name=cluster_reader.AGENTS)
    if found is None:
        raise ClusterError(
            f"there is no DaemonSet {namespace}/{cluster_reader.AGENTS}: set namespace to that of "
            "PureLB, or install PureLB with the role purelb_install"
        )
    return {**found, "kind": "DaemonSet"}


def _owned(cluster: Cluster, kind: Kind, daemon_set: Object) -> List[Object]:
    """Returns the objects of a kind that the DaemonSet owns."""
    labels = daemon_set["spec"]["selector"].get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    uid, namespace = daemon_set["metadata"]["uid"], daemon_set["metadata"]["namespace"]
    found = cluster.read_all(kind, namespace=namespace, convert=dict, labelSelector=selector)
    return [
        obj
        for obj in found
        if any(owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences") or ())
    ]


def _newest_revision(revisions: Sequence[Object]) -> str:
    """Returns the hash of the newest revision; empty if there is none."""
    newest = max(revisions, key=lambda revision: int(revision["revision"]), default=None)
    return str(newest["metadata"]["labels"].get(REVISION_LABEL, "")) if newest else ""
