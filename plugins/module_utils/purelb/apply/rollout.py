# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""How far the node agents' rollout is: which node has the present agent and a Lease by it.

The controller of DaemonSets restarts one node after the other, and an agent says itself when the
next one may leave (it is ready when its Lease counts and its addresses are usable). Nothing is
changed here; what is judged is pure, and the waiting is around it.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ..audit import cluster_reader
from ..core.audit import audit
from ..module.errors import ClusterError
from ..module.kube import Cluster, Kind, Object
from .readiness import pod_problems, progress

AGENT = "lbnodeagent"
DAEMON_SETS = Kind("apps", "v1", "daemonsets", namespaced=True)
REVISIONS = Kind("apps", "v1", "controllerrevisions", namespaced=True)
PODS = Kind("", "v1", "pods", namespaced=True)
REVISION_LABEL = "controller-revision-hash"
# A rollout takes some seconds for each node.
POLL_INTERVAL = 1.0


@dataclass(frozen=True)
class NodeState:
    """A node's agent. `begun`: the rollout has come to this node."""

    node: str
    pod: str
    done: bool
    begun: bool
    reason: str
    remediation: str = ""


@dataclass(frozen=True)
class Rollout:
    """One look at all nodes."""

    complete: bool
    reason: str
    nodes: Tuple[NodeState, ...] = ()

    @property
    def done(self) -> List[str]:
        """Nodes that have the present agent and its Lease."""
        return [state.node for state in self.nodes if state.done]

    def complaint(self, seconds: int) -> str:
        """What to say when nothing has moved for so long."""
        waiting = [state for state in self.nodes if not state.done]
        stuck = [state for state in waiting if state.begun] or waiting
        what = " ".join(f"{one.node}: {one.reason}. {one.remediation}" for one in stuck)
        others = [state.node for state in waiting if state not in stuck]
        rest = f"Not touched, with the agents of before: {', '.join(others)}. " if others else ""
        return (
            f"the node agents have not come further for {seconds} s: {what or self.reason + '.'} "
            f"{rest}Run again when that is mended"
        )


def node_state(
    daemon_set: Object,
    pods: Sequence[Object],
    leases: Mapping[str, audit.LeaseReport],
    *,
    revision: str,
) -> Rollout:
    """How far a rollout is; `revision` is the hash of what the Pods are to be."""
    states = tuple(
        sorted((_state(pod, leases, revision) for pod in pods), key=lambda state: state.node)
    )
    far = progress(daemon_set)
    reason = next((f"{s.node}: {s.reason}" for s in states if not s.done), far.reason)
    complete = far.done and all(state.done for state in states)
    return Rollout(complete, far.reason if complete else reason, states)


def _state(pod: Object, leases: Mapping[str, audit.LeaseReport], revision: str) -> NodeState:
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    node = _node_of(pod)
    where = f"kubectl -n {metadata['namespace']}"
    logs = f"Look at: {where} logs {name}."

    def not_done(reason: str, remediation: str = "", *, begun: bool = True) -> NodeState:
        return NodeState(
            node, name, done=False, begun=begun, reason=reason, remediation=remediation
        )

    if metadata.get("deletionTimestamp"):
        remediation = f"Look whether its kubelet answers: kubectl describe node {node}."
        return not_done(f"the agent of before has not ended (Pod {name})", remediation)
    if metadata.get("labels", {}).get(REVISION_LABEL) != revision:
        return not_done("it has the agent of before", begun=False)
    if not _is_ready(pod):
        why = "; ".join(pod_problems(pod)) or f"Pod {name} is not ready"
        start = f"Give it what it needs to start, or look at: {where} describe pod {name}."
        return not_done(why, start if pod["status"].get("phase") == "Pending" else logs)
    return _lease_state(pod, node, leases.get(node), not_done, logs)


def _lease_state(
    pod: Object,
    node: str,
    report: Optional[audit.LeaseReport],
    not_done: Callable[..., NodeState],
    logs: str,
) -> NodeState:
    name = pod["metadata"]["name"]
    if report is None:
        return not_done(f"there is no Lease of it, though Pod {name} is ready", logs)
    if report.lease.instance != pod["metadata"]["uid"]:
        return not_done(f"its Lease is of another Pod than {name}", logs)
    if not report.is_live:
        age = "never" if report.age is None else f"{report.age:.0f} s ago"
        remediation = f"{logs} Compare this machine's clock with the node's, too."
        return not_done(
            f"its Lease was renewed {age}, and lasts {report.lease.duration:g} s", remediation
        )
    return NodeState(node, name, done=True, begun=True, reason="its Lease is renewed")


def _node_of(pod: Object) -> str:
    """The node that a Pod is on, or is for: the controller says so by what it asks for."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    asked = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = asked.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")
    fields = (field for term in terms or () for field in term.get("matchFields") or ())
    named = (field["values"][0] for field in fields if field["key"] == "metadata.name")
    return str(next(named, "no node yet"))


def _is_ready(pod: Object) -> bool:
    return any(
        one["type"] == "Ready" and one["status"] == "True"
        for one in pod.get("status", {}).get("conditions") or ()
    )


def rollout_info(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_rollout_info."""
    if check_mode and params["wait"]:
        # What was only foretold is not there, and will not come.
        return _answer(Rollout(complete=False, reason="nothing is rolled out in check mode"))
    known = set(params["known"])
    seconds: int = params["wait_timeout"]
    deadline = time.monotonic() + seconds
    while True:
        rollout = look(cluster, namespace=params["namespace"])
        if rollout.complete or not params["wait"] or not known.issuperset(rollout.done):
            return _answer(rollout)
        if time.monotonic() >= deadline:
            raise ClusterError(rollout.complaint(seconds))
        # One that is restarted once more is news again when it is done.
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
    """How far the node agents of an installation are."""
    found = cluster.get(DAEMON_SETS, namespace=namespace, name=AGENT)
    if found is None:
        raise ClusterError(
            f"there is no DaemonSet {namespace}/{AGENT}: install PureLB there by the role "
            "purelb_install, or give the namespace in which it is"
        )
    daemon_set = {**found, "kind": "DaemonSet"}
    leases = cluster_reader.read_leases(cluster, namespace=namespace)
    reports = audit.audit(leases, (), wall_time=time.time()).leases
    return node_state(
        daemon_set,
        _owned(cluster, PODS, daemon_set),
        {report.lease.node: report for report in reports},
        revision=_present(_owned(cluster, REVISIONS, daemon_set)),
    )


def _owned(cluster: Cluster, kind: Kind, daemon_set: Object) -> List[Object]:
    """The objects of a kind that the DaemonSet has made."""
    labels = daemon_set["spec"]["selector"].get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    uid, namespace = daemon_set["metadata"]["uid"], daemon_set["metadata"]["namespace"]
    found = cluster.read_all(kind, namespace=namespace, convert=dict, labelSelector=selector)
    return [
        one
        for one in found
        if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences") or ())
    ]


def _present(revisions: Sequence[Object]) -> str:
    """The hash of the revision that Pods are made of now."""
    newest = max(revisions, key=lambda one: int(one["revision"]), default=None)
    return str(newest["metadata"]["labels"].get(REVISION_LABEL, "")) if newest else ""
