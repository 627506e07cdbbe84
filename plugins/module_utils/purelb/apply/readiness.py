# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Whether an applied object is ready, and if not, why.

Pure: the caller reads the object and decides when to read it again.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional

Object = Dict[str, Any]


class Progress(NamedTuple):
    """Whether an object is ready, with the reason; `refused`: it will not become ready."""

    done: bool
    reason: str
    refused: bool = False


def progress(obj: Optional[Object]) -> Progress:
    """Returns whether an applied object is ready; kinds without a rule are."""
    if obj is None:
        return Progress(done=False, reason="it does not exist")
    rule = RULES.get(obj["kind"])
    return rule(obj) if rule else Progress(done=True, reason="nothing to wait for")


def acceptance(obj: Optional[Object]) -> Progress:
    """Returns whether the condition Ready of the present generation is true."""
    if obj is None:
        return Progress(done=False, reason="it does not exist")
    generation = obj["metadata"].get("generation", 0)
    for condition in obj.get("status", {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition.get("observedGeneration", 0) >= generation:
            text = ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
            status = condition["status"]
            return Progress(status == "True", text, refused=status == "False")
    return Progress(
        done=False,
        reason="it has no condition Ready for its present generation; is the allocator up?",
    )


def conditions(obj: Object) -> List[str]:
    """Returns the conditions of an object, one text each."""
    return [
        f"{c['type']}={c['status']}" + (f" ({c['message']})" if c.get("message") else "")
        for c in obj.get("status", {}).get("conditions") or ()
    ]


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
        return Progress(done=False, reason="its controller has not observed the change yet")
    if updated < desired:
        return Progress(done=False, reason=f"{updated} of {desired} Pods run the new version")
    if present > desired:
        return Progress(done=False, reason=f"{present - desired} old Pods are still there")
    if available < desired:
        return Progress(done=False, reason=f"{available} of {desired} Pods are available")
    return Progress(done=True, reason=f"{available} of {desired} Pods are available")


RULES: Dict[str, Callable[[Object], Progress]] = {
    "CustomResourceDefinition": _definition,
    "Namespace": _namespace,
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
}
