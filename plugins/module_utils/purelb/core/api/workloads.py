# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The DaemonSet and the Deployment of PureLB with their Pods, as records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, Iterator, Mapping, Tuple

from ..election.draining import NodeInfo, Taint

Json = Mapping[str, Any]
_NO_SCHEDULE = frozenset({"NoSchedule", "NoExecute"})
# Taints of a Node's condition. Pods of a DaemonSet tolerate them, or wait until it is Ready again:
# they never exclude the Node. Kubernetes' page "DaemonSet", "Taints and tolerations".
_CONDITION_TAINTS = frozenset(
    f"node.kubernetes.io/{condition}"
    for condition in (
        "disk-pressure",
        "memory-pressure",
        "network-unavailable",
        "not-ready",
        "pid-pressure",
        "unreachable",
        "unschedulable",
    )
)


@dataclass(frozen=True)
class ProgramPod:
    """A Pod of a program; `problems` say why it is not ready."""

    name: str
    node: str = ""
    image: str = ""
    problems: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Toleration:
    """A toleration of a Pod template; an empty field stands for all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Whether Pods with this toleration run on a Node with the taint."""
        if self.effect not in ("", taint.effect):
            return False
        if not self.key:
            return self.operator == "Exists"
        return self.key == taint.key and (self.operator == "Exists" or self.value == taint.value)


@dataclass(frozen=True)
class Program:
    """The DaemonSet or Deployment of a program, with its Pods.

    `environment` has the variables with a literal value of its first container.
    """

    title: str
    is_present: bool = True
    image: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Tuple[Toleration, ...] = ()
    pods: Tuple[ProgramPod, ...] = ()

    def exclusion(self, node: NodeInfo) -> str:
        """Return why a DaemonSet has no Pod on a Node; empty if it should have one."""
        for key, value in self.node_selector.items():
            if node.labels.get(key) != value:
                return f"its nodeSelector wants {key}={value}"
        for taint in node.taints:
            if taint.effect not in _NO_SCHEDULE or taint.key in _CONDITION_TAINTS:
                continue
            if not any(toleration.covers(taint) for toleration in self.tolerations):
                return f"it does not tolerate the taint {taint.key}"
        return ""


def program_of(body: Json, pods: Iterable[ProgramPod], *, title: str) -> Program:
    """Return the record of a DaemonSet or Deployment."""
    spec = body["spec"]["template"]["spec"]
    container = spec["containers"][0]
    return Program(
        title,
        image=container.get("image") or "",
        environment={
            entry["name"]: entry["value"]
            for entry in container.get("env") or ()
            if "value" in entry
        },
        node_selector=dict(spec.get("nodeSelector") or {}),
        tolerations=tuple(map(_toleration_of, spec.get("tolerations") or ())),
        pods=tuple(pods),
    )


def _toleration_of(body: Json) -> Toleration:
    return Toleration(
        body.get("key") or "",
        body.get("operator") or "Equal",
        body.get("value") or "",
        body.get("effect") or "",
    )


def program_pod_of(body: Json) -> ProgramPod:
    """Return the record of a Pod."""
    name, status = body["metadata"]["name"], body.get("status") or {}
    image = next((c.get("image") for c in body["spec"].get("containers") or ()), "") or ""
    problems = tuple(pod_problems(body))
    if body["metadata"].get("deletionTimestamp"):
        problems = (f"Pod {name}: is being deleted", *problems)
    elif not problems and not is_ready(body):
        why = filter(None, (status.get("reason"), status.get("message")))
        problems = (": ".join((f"Pod {name}: is not ready ({status.get('phase')})", *why)),)
    return ProgramPod(name, node_of(body), image, problems)


def is_ready(pod: Json) -> bool:
    """Whether the condition Ready of a Pod is true."""
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod.get("status", {}).get("conditions") or ()
    )


def node_of(pod: Json) -> str:
    """Return the node of a Pod; before it is scheduled, the one that its node affinity names."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms")
    fields = (entry for term in terms or () for entry in term.get("matchFields") or ())
    named = (entry["values"][0] for entry in fields if entry["key"] == "metadata.name")
    return str(next(named, "no node yet"))


def pod_problems(pod: Json) -> Iterator[str]:
    """Yield why a Pod is not ready: not scheduled, or a container waits, ended or is not ready."""
    name = pod["metadata"]["name"]
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"Pod {name}: {condition.get('reason')}: {condition.get('message')}"
    for container in [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]:
        problem = _container_problem(container)
        if problem:
            yield f"Pod {name}, container {container['name']}: {problem}"


def _container_problem(status: Json) -> str:
    """Return what keeps a container from being ready; empty if nothing does."""
    state = status.get("state", {})
    waiting, ended = state.get("waiting"), state.get("terminated")
    if waiting:
        last = status.get("lastState", {}).get("terminated")
        before = f"ended before with {_exit(last)}" if last else ""
        return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"), before)))
    if ended and ended.get("exitCode"):
        return f"ended with {_exit(ended)}"
    return "runs but is not ready" if "running" in state and not status.get("ready") else ""


def _exit(ended: Json) -> str:
    return f"exit code {ended.get('exitCode')} ({ended.get('reason')})"
