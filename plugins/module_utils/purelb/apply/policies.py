# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Checks whether the API server enforces the admission policies of an installation.

A policy takes effect some time after it was created, each on its own, and its status does not say
when. So each policy is sent a write that it must refuse: a dry run as the ServiceAccount that the
policy limits, or as the user of the module where it limits everybody else. A write that passes
changes nothing.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Optional, Tuple

from ..audit.cluster_reader import NODES, SERVICES
from ..core import names
from ..module.errors import FORBIDDEN, ApiError, ClusterError
from ..module.kube import Cluster, Kind

LEASES = Kind("coordination.k8s.io", "v1", "leases", namespaced=True)
EVENTS = Kind("", "v1", "events", namespaced=True)
# Every cluster has it: the API server itself creates it.
SERVICE = "kubernetes"
# Neither program may write a label of any object, nor a Lease of this name.
LABELS = {"metadata": {"labels": {f"{names.API_GROUP}/policy-check": "true"}}}
LEASE = "purelb-policy-check"
# Only the programs may write it.
MARK = {"metadata": {"annotations": {names.ALLOCATED_FROM_ANNOTATION: "policy-check"}}}
_POLICY = Kind(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", namespaced=False
)
_PATCHES = {"services": LABELS, "annotations": MARK}
# Only the node and listed reporters may create it.
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "purelb-policy-check", "namespace": "default"},
    "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "purelb-policy-check"},
    "reason": names.PREEMPT_EVENT_REASON,
}
# A policy was seen to take effect after 0.1 to 2 s.
POLL_INTERVAL = 0.3
# Seconds after which a 403 from something else than the policy is taken as permanent: permissions
# take effect within a few, a webhook or a policy of another owner refuses for good.
FORBIDDEN_TIMEOUT = 30
CANNOT_IMPERSONATE = "cannot impersonate resource"

# Program and resource of each policy that a dry run can reach. The allocator may write only the
# status of a ServiceGroup, where the API server drops what `allocator-groups` would refuse.
POLICIES = (
    ("lbnodeagent", "leases"),
    ("lbnodeagent", "services"),
    ("allocator", "leases"),
    ("allocator", "services"),
    ("reserved", "annotations"),
)
DRAINING_POLICIES = (("allocator", "nodes"), ("eviction", "events"))
# Those that limit everybody but the programs.
_FOR_OTHERS = ("reserved", "eviction")


@dataclass(frozen=True)
class PolicyState:
    """Whether a policy is enforced; `enforced` is None where that could not be observed."""

    name: str
    enforced: Optional[bool]
    reason: str
    # Seconds for which more attempts may change the answer; None: until the timeout.
    retry_for: Optional[float] = None

    def is_pending(self, elapsed: float) -> bool:
        """Whether more attempts may change the answer after so many seconds."""
        return self.retry_for is None or elapsed < self.retry_for


def policies_info(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_policies_info."""
    pending = POLICIES + (DRAINING_POLICIES if params["draining"] else ())
    start = time.monotonic()
    states: Dict[Tuple[str, str], PolicyState] = {}
    while True:
        for program, resource in pending:
            states[program, resource] = _state(cluster, params["namespace"], program, resource)
        elapsed = time.monotonic() - start
        pending = tuple(key for key in pending if states[key].is_pending(elapsed))
        if not pending or not params["wait"] or check_mode:
            break
        if elapsed >= params["wait_timeout"]:
            _raise_if_unenforced(list(states.values()), params["wait_timeout"])
            break
        time.sleep(POLL_INTERVAL)
    # In check mode the ServiceAccounts may not exist yet.
    return _answer(list(states.values()), warn=not check_mode)


def _raise_if_unenforced(states: List[PolicyState], seconds: int) -> None:
    """Raise an error if a write passed that a policy should have refused."""
    passed = [state.name for state in states if state.enforced is False]
    if passed:
        raise ClusterError(
            f"the API server does not enforce {', '.join(passed)} after {seconds} s: check that "
            "the ValidatingAdmissionPolicy and its ValidatingAdmissionPolicyBinding exist, and "
            "that kube-apiserver runs the admission plugin ValidatingAdmissionPolicy"
        )


def _answer(states: List[PolicyState], *, warn: bool) -> Dict[str, Any]:
    keys = ("name", "enforced", "reason")
    return {
        "changed": False,
        "enforced": all(state.enforced for state in states),
        "policies": [{key: asdict(state)[key] for key in keys} for state in states],
        "warnings": [
            f"cannot observe whether {state.name} is enforced: {state.reason}"
            for state in states
            if warn and state.enforced is None
        ],
    }


def _state(cluster: Cluster, namespace: str, program: str, resource: str) -> PolicyState:
    """Send a write that the policy must refuse."""
    name = f"{program}-{resource}.{namespace}.purelb.io"
    is_for_others = program in _FOR_OTHERS
    user = cluster.user() if is_for_others else f"system:serviceaccount:{namespace}:{program}"
    try:
        _write(
            cluster if is_for_others else cluster.impersonate(user), cluster, namespace, resource
        )
    except ApiError as error:
        text = str(error)
        if f"ValidatingAdmissionPolicy '{name}'" in text:
            return PolicyState(name, enforced=True, reason="it refuses writes", retry_for=0)
        if CANNOT_IMPERSONATE in text:
            reason = (
                f"this user may not act as {user}; the verb impersonate on serviceaccounts in "
                f"namespace {namespace} allows it"
            )
            return PolicyState(name, enforced=None, reason=reason, retry_for=0)
        if f'User "{user}" cannot' in text:
            text = f"{user} has no permission for the write"
            if is_for_others:
                return PolicyState(name, enforced=None, reason=text, retry_for=0)
        retry_for = FORBIDDEN_TIMEOUT if error.status == FORBIDDEN else None
        return PolicyState(name, enforced=None, reason=text, retry_for=retry_for)
    if is_for_others and _is_writer(cluster, name, user):
        reason = f"{user} may write what it refuses to others"
        return PolicyState(name, enforced=None, reason=reason, retry_for=0)
    return PolicyState(name, enforced=False, reason="a write passed that it should refuse")


def _is_writer(cluster: Cluster, name: str, user: str) -> bool:
    """Whether the policy names the user as one that may write."""
    policy = cluster.get(_POLICY, namespace=None, name=name) or {"spec": {}}
    conditions = policy["spec"].get("matchConditions") or ()
    return any(json.dumps(user) in condition["expression"] for condition in conditions)


def _write(account: Cluster, cluster: Cluster, namespace: str, resource: str) -> None:
    if resource == "leases":
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": namespace},
        }
        account.create(LEASES, body, dry_run=True)
    elif resource == "events":
        account.create(EVENTS, EVENT, dry_run=True)
    elif resource in _PATCHES:
        patch = _PATCHES[resource]
        account.patch(SERVICES, namespace="default", name=SERVICE, patch=patch, dry_run=True)
    else:
        node = next(iter(cluster.items(NODES)), None)
        if node is None:
            raise ApiError("the cluster has no Node", status=404)
        name = node["metadata"]["name"]
        account.patch(NODES, namespace=None, name=name, patch=LABELS, dry_run=True)
