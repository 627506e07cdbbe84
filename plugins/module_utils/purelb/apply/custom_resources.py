# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Applies ServiceGroups and LBNodeAgents built from module options.

An object is validated with the rules of the programs that read it, before any request is sent;
errors name the option. Valid but probably unintended settings produce a warning.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

from ..audit import cluster_reader
from ..core import names
from ..core.api import custom_resources, validation
from ..core.api.nodes import node_info_of
from ..core.errors import ObjectError
from ..core.model import Address
from ..core.node.configuration import NodeConfig
from ..module import specs
from ..module.errors import FORBIDDEN, ApiError, ClusterError
from ..module.fields import fields_of, option_path
from ..module.kube import Cluster, Object
from ..module.manifests import reference, without_managed_fields
from ..module.polling import poll
from .objects import ObjectApplier, ObjectResult, result_of
from .readiness import Progress, acceptance

API_VERSION = f"{names.API_GROUP}/{names.API_VERSION}"
T = TypeVar("T")
Params = Dict[str, Any]


def manage_service_group(cluster: Cluster, params: Params, check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_service_group."""
    body = _body("ServiceGroup", params, specs.service_group().options)
    if params["state"] == "absent":
        return _remove(cluster, body, params, check_mode=check_mode)
    group = _checked(validation.check_group, body)
    # Another object that is invalid is not an error of this task.
    others = _others(cluster, body, cluster_reader.valid_group)
    around = _surroundings(cluster, params["namespace"])
    warnings = list(validation.group_warnings(group, others, around))
    outcome = _applier(cluster, params, check_mode=check_mode).apply([body])[0]
    if params["wait"] and not check_mode:
        outcome = _accepted(cluster, outcome, timeout=params["wait_timeout"])
    return {**_result(outcome), "warnings": warnings}


def manage_node_agent(cluster: Cluster, params: Params, check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_lb_node_agent."""
    body = _body("LBNodeAgent", params, specs.node_agent().options)
    convert = custom_resources.node_config_of
    if params["state"] == "absent":
        warnings = _deselected(cluster, _others(cluster, body, convert))
        return {**_remove(cluster, body, params, check_mode=check_mode), "warnings": warnings}
    # Agents skip an object without it.
    body["spec"].setdefault("local", {})
    config = _checked(validation.check_agent, body)
    others = _others(cluster, body, convert)
    warnings = [
        *validation.agent_warnings(config, others),
        *_deselected(cluster, [*others, config]),
    ]
    outcome = _applier(cluster, params, check_mode=check_mode).apply([body])[0]
    return {**_result(outcome), "warnings": warnings}


def _surroundings(cluster: Cluster, namespace: str) -> validation.Surroundings:
    """Returns what Leases and Nodes say; nothing of what may not be read: it is for advice only."""
    taken: Dict[Address, str] = {}
    try:
        leases = cluster_reader.read_leases(cluster, namespace=namespace)
        for lease in leases:
            taken.update(dict.fromkeys(lease.duplicates, "another host"))
        for node in cluster.read_all(cluster_reader.NODES, convert=node_info_of):
            taken.update(dict.fromkeys(node.addresses, f"node {node.name}"))
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return validation.Surroundings()
    subnets = frozenset(subnet for lease in leases for subnet in lease.subnets)
    return validation.Surroundings(subnets, taken)


def _deselected(cluster: Cluster, configs: Sequence[NodeConfig]) -> List[str]:
    """Returns a warning if nodes announce nothing with these LBNodeAgents."""
    known = [config for config in configs if config.has_local]
    if not known or not all(config.selector for config in known):
        return []
    try:
        nodes = cluster.read_all(cluster_reader.NODES, convert=node_info_of)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return [f"whether each node has an LBNodeAgent is not known: {error}"]
    return list(validation.deselected_warnings(known, {n.name: n.labels for n in nodes}))


def _body(kind: str, params: Params, options: specs.Options) -> Object:
    marks = {part: params[part] for part in ("labels", "annotations") if params[part] is not None}
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": params["name"], "namespace": params["namespace"], **marks},
        "spec": fields_of(params, options),
    }


def _checked(check: Callable[[Object], T], body: Object) -> T:
    """Returns the record of an object; an ObjectError names the option instead of the field."""
    try:
        return check(body)
    except ObjectError as error:
        raise ObjectError(error.where, option_path(error.field), error.problem) from error


def _others(cluster: Cluster, body: Object, convert: Callable[[Object], Optional[T]]) -> List[T]:
    """Returns the records of the other objects of this kind in the same namespace."""
    # In check mode the definitions may not exist yet.
    kind = cluster.kind(API_VERSION, body["kind"])
    if kind is None:
        return []
    own = body["metadata"]["name"]
    found = cluster.read_all(
        kind,
        namespace=body["metadata"]["namespace"],
        convert=lambda obj: None if obj["metadata"]["name"] == own else convert(obj),
    )
    return [record for record in found if record is not None]


def _applier(cluster: Cluster, params: Params, *, check_mode: bool) -> ObjectApplier:
    # These objects exist, or are gone, as soon as the API server has answered.
    options = {**params, "wait": False, "wait_timeout": 0}
    return ObjectApplier(cluster, options, check_mode=check_mode)


def _remove(cluster: Cluster, body: Object, params: Params, *, check_mode: bool) -> Dict[str, Any]:
    return _result(_applier(cluster, params, check_mode=check_mode).delete([body])[0])


def _result(outcome: ObjectResult) -> Dict[str, Any]:
    """Returns the result of a module that manages a single object."""
    result = result_of([outcome])
    after = outcome.after
    return {
        "changed": result["changed"],
        "action": outcome.action,
        "object": without_managed_fields(after) if after else None,
        "diff": result["diff"],
    }


def _accepted(cluster: Cluster, outcome: ObjectResult, *, timeout: int) -> ObjectResult:
    """Wait until the allocator has accepted the object; returns the outcome with that state."""
    wanted = outcome.wanted
    kind = cluster.kind(API_VERSION, wanted["kind"])
    if kind is None:
        raise ClusterError(f"{reference(wanted)}: its kind is no longer served")
    meta = wanted["metadata"]
    found, state = poll(
        lambda: _acceptance(cluster.get(kind, namespace=meta["namespace"], name=meta["name"])),
        lambda look: look[1].done or look[1].refused,
        timeout=timeout,
    )
    if state.refused:
        raise ClusterError(f"{reference(wanted)} is not accepted: {state.reason}")
    if not state.done:
        raise ClusterError(f"{reference(wanted)} is not accepted after {timeout} s: {state.reason}")
    return ObjectResult(outcome.before, found, wanted)


def _acceptance(found: Optional[Object]) -> Tuple[Optional[Object], Progress]:
    return found, acceptance(found)
