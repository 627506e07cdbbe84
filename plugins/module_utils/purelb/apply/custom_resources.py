# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""ServiceGroups and LBNodeAgents from options: checked, applied, and waited for.

An object is checked with the rules of the programs that will read it, before the API server is
asked; errors name the option. What is legal and hardly meant so becomes a warning.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, TypeVar

from ..core import names
from ..core.api import custom_resources, validation
from ..core.errors import ObjectError
from ..core.model import ServiceGroup
from ..module import specs
from ..module.errors import ClusterError
from ..module.fields import fields_of, option_path
from ..module.kube import Cluster, Object
from ..module.manifests import reference, without_managed_fields
from .objects import POLL_INTERVAL, ObjectApplier, ObjectResult, result_of
from .readiness import acceptance

API_VERSION = f"{names.API_GROUP}/{names.API_VERSION}"
T = TypeVar("T")
Params = Dict[str, Any]


def manage_service_group(cluster: Cluster, params: Params, check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_service_group."""
    body = _body("ServiceGroup", params, specs.service_group().options)
    if params["state"] == "absent":
        return _remove(cluster, body, params, check_mode=check_mode)
    group = _checked(validation.check_group, body)
    warnings = list(validation.group_suspicions(group, _others(cluster, body, _group_or_none)))
    outcome = _keeper(cluster, params, check_mode=check_mode).apply([body])[0]
    if params["wait"] and not check_mode:
        outcome = _accepted(cluster, outcome, timeout=params["wait_timeout"])
    return {**_result(outcome), "warnings": warnings}


def manage_node_agent(cluster: Cluster, params: Params, check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_lb_node_agent."""
    body = _body("LBNodeAgent", params, specs.node_agent().options)
    if params["state"] == "absent":
        return _remove(cluster, body, params, check_mode=check_mode)
    config = _checked(validation.check_agent, body)
    warnings = list(
        validation.agent_suspicions(config, _others(cluster, body, custom_resources.node_config_of))
    )
    outcome = _keeper(cluster, params, check_mode=check_mode).apply([body])[0]
    return {**_result(outcome), "warnings": warnings}


def _body(kind: str, params: Params, options: specs.Options) -> Object:
    marks = {part: params[part] for part in ("labels", "annotations") if params[part] is not None}
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": params["name"], "namespace": params["namespace"], **marks},
        "spec": fields_of(params, options),
    }


def _checked(check: Callable[[Object], T], body: Object) -> T:
    """The record of an object; an error names the option, not the field."""
    try:
        return check(body)
    except ObjectError as error:
        raise ObjectError(error.where, option_path(error.field), error.problem) from error


def _group_or_none(body: Object) -> Optional[ServiceGroup]:
    """The group, if it can be read: somebody else's mistake is not this task's."""
    try:
        return custom_resources.service_group_of(body)
    except ObjectError:
        return None


def _others(cluster: Cluster, body: Object, convert: Callable[[Object], Optional[T]]) -> List[T]:
    """The records of the other objects of this kind in the same namespace."""
    # In check mode the definitions may be missing still.
    kind = cluster.kind(API_VERSION, body["kind"])
    if kind is None:
        return []
    own = body["metadata"]["name"]
    found = cluster.read_all(
        kind,
        namespace=body["metadata"]["namespace"],
        convert=lambda obj: None if obj["metadata"]["name"] == own else convert(obj),
    )
    return [one for one in found if one is not None]


def _keeper(cluster: Cluster, params: Params, *, check_mode: bool) -> ObjectApplier:
    # An object like these is there, or gone, as soon as the API server says so.
    own = {**params, "wait": False, "wait_timeout": 0}
    return ObjectApplier(cluster, own, check_mode=check_mode)


def _remove(cluster: Cluster, body: Object, params: Params, *, check_mode: bool) -> Dict[str, Any]:
    return _result(_keeper(cluster, params, check_mode=check_mode).delete([body])[0])


def _result(outcome: ObjectResult) -> Dict[str, Any]:
    """What the module returns: a task is about one object, so its result is, too."""
    whole = result_of([outcome])
    after = outcome.after
    return {
        "changed": whole["changed"],
        "action": outcome.action,
        "object": without_managed_fields(after) if after else None,
        "diff": whole["diff"],
    }


def _accepted(cluster: Cluster, outcome: ObjectResult, *, timeout: int) -> ObjectResult:
    """The outcome with the object as the allocator has accepted it."""
    asked = outcome.asked
    kind = cluster.kind(API_VERSION, asked["kind"])
    deadline = time.monotonic() + timeout
    while kind is not None:
        found = cluster.get(
            kind, namespace=asked["metadata"]["namespace"], name=asked["metadata"]["name"]
        )
        state = acceptance(found)
        if state.done:
            return ObjectResult(outcome.before, found, asked)
        if state.refused:
            raise ClusterError(f"{reference(asked)} is not accepted: {state.reason}")
        if time.monotonic() >= deadline:
            raise ClusterError(
                f"{reference(asked)} is not accepted after {timeout} s: {state.reason}"
            )
        time.sleep(POLL_INTERVAL)
    raise ClusterError(f"{reference(asked)}: its kind is no longer served")
