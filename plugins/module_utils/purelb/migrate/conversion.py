# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the input of a conversion from v1 and returns the v2 objects. Writes nothing."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from ..audit import cluster_reader
from ..core import addresses
from ..core.api import codec
from ..core.errors import SettingError
from ..core.migration import replacements
from ..core.model import Network
from ..module.kube import Cluster, Object
from .reader import API_V1, read_configuration


def is_offline(params: Dict[str, Any]) -> bool:
    """Whether the options contain all input, so that no cluster is read."""
    return params["definitions"] is not None and bool(params["node_subnets"])


def offline(params: Dict[str, Any]) -> Dict[str, Any]:
    """The work of the module purelb_convert without a cluster."""
    subnets = _given_subnets(params["node_subnets"])
    return _result(params["definitions"], params, subnets, source="option")


def info(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: ARG001, FBT001 - reading is the same in check mode
    """The work of the module purelb_convert."""
    given = params["definitions"]
    bodies = given
    if given is None:
        bodies = read_configuration(cluster, API_V1, namespace=params["namespace"])
    subnets, source = _subnets(cluster, bodies, params)
    return _result(bodies, params, subnets, source=source)


def _subnets(
    cluster: Cluster, bodies: List[Object], params: Dict[str, Any]
) -> Tuple[Tuple[Network, ...], str]:
    """Returns the subnets of the nodes and their source: option, leases or nodes."""
    if params["node_subnets"]:
        return _given_subnets(params["node_subnets"]), "option"
    leases = cluster_reader.read_leases(cluster, namespace=params["target_namespace"])
    of_leases = {subnet for lease in leases for subnet in lease.subnets}
    if of_leases:
        return tuple(sorted(of_leases, key=addresses.subnet_order)), "leases"
    nodes = cluster.read_all(cluster_reader.NODES, convert=codec.node_addresses)
    return replacements.nearby_subnets(bodies, frozenset().union(*nodes)), "nodes"


def _given_subnets(texts: List[str]) -> Tuple[Network, ...]:
    valid, invalid = addresses.parse_subnets(texts)
    if invalid:
        raise SettingError(f"node_subnets: {invalid[0]!r} must be a CIDR such as 192.168.1.0/24")
    return valid


def _result(
    bodies: List[Object], params: Dict[str, Any], subnets: Tuple[Network, ...], *, source: str
) -> Dict[str, Any]:
    found = replacements.plan_replacements(
        bodies,
        subnets=subnets,
        decisions=params["decisions"],
        namespace=params["target_namespace"],
    )
    used = {"node_subnets": [str(subnet) for subnet in subnets], "node_subnets_from": source}
    return {"changed": False, **replacements.as_dict(found), **used}
