# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Whether an object has become what it was applied for, and if not, what is missing.

Pure: the caller fetches the object and decides when to look again.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

Object = Dict[str, Any]


class Progress(NamedTuple):
    """An answer with its reason. What is refused will not be done by waiting."""

    done: bool
    reason: str
    refused: bool = False


def progress(obj: Optional[Object]) -> Progress:
    """How far an applied object is."""
    if obj is None:
        return Progress(done=False, reason="it is gone")
    judge = JUDGES.get(obj["kind"])
    return judge(obj) if judge else Progress(done=True, reason="there is nothing to wait for")


def acceptance(obj: Optional[Object]) -> Progress:
    """Whether the program that an object is for has accepted it as it is now."""
    if obj is None:
        return Progress(done=False, reason="it is gone")
    generation = obj["metadata"].get("generation", 0)
    for one in obj.get("status", {}).get("conditions") or ():
        if one["type"] == "Ready" and one.get("observedGeneration", 0) >= generation:
            text = ": ".join(filter(None, (one.get("reason"), one.get("message"))))
            return Progress(one["status"] == "True", text, refused=one["status"] == "False")
    return Progress(
        done=False, reason="there is no condition Ready of its present state; is the allocator up?"
    )


def conditions(obj: Object) -> List[str]:
    """The conditions that an object reports, in one line each."""
    return [
        f"{c['type']}={c['status']}" + (f" ({c['message']})" if c.get("message") else "")
        for c in obj.get("status", {}).get("conditions") or ()
    ]


def pod_problems(pod: Object) -> Iterator[str]:
    """Why a Pod is not ready: containers that wait, and a Pod that has no node."""
    name = pod["metadata"]["name"]
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"Pod {name}: {condition.get('reason')}: {condition.get('message')}"
    for container in [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]:
        state = container.get("state", {})
        waiting = state.get("waiting")
        if waiting:
            text = ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
            yield f"Pod {name}, container {container['name']}: {text}"
        elif "running" in state and not container.get("ready"):
            yield f"Pod {name}, container {container['name']}: runs but is not ready"


def _definition(obj: Object) -> Progress:
    established = any(
        c["type"] == "Established" and c["status"] == "True"
        for c in obj.get("status", {}).get("conditions") or ()
    )
    return Progress(established, "established" if established else "it is not established")


def _namespace(obj: Object) -> Progress:
    phase = obj.get("status", {}).get("phase")
    return Progress(phase == "Active", f"its phase is {phase}")


def _daemon_set(obj: Object) -> Progress:
    status = obj.get("status", {})
    desired = status.get("desiredNumberScheduled", 0)
    return _rollout(
        obj,
        desired=desired,
        updated=status.get("updatedNumberScheduled", 0),
        available=status.get("numberAvailable", 0),
        present=status.get("currentNumberScheduled", 0),
    )


def _deployment(obj: Object) -> Progress:
    status = obj.get("status", {})
    return _rollout(
        obj,
        desired=obj.get("spec", {}).get("replicas", 1),
        updated=status.get("updatedReplicas", 0),
        available=status.get("availableReplicas", 0),
        present=status.get("replicas", 0),
    )


def _rollout(obj: Object, *, desired: int, updated: int, available: int, present: int) -> Progress:
    if obj.get("status", {}).get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
        return Progress(done=False, reason="its controller has not seen the change yet")
    if updated < desired:
        return Progress(done=False, reason=f"{updated} of {desired} Pods are of the new version")
    if present > desired:
        return Progress(done=False, reason=f"{present - desired} old Pods are still there")
    if available < desired:
        return Progress(done=False, reason=f"{available} of {desired} Pods are available")
    return Progress(done=True, reason=f"{available} of {desired} Pods are available")


JUDGES: Dict[str, Callable[[Object], Progress]] = {
    "CustomResourceDefinition": _definition,
    "Namespace": _namespace,
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
}
