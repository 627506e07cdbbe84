# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A kubelet that lists the first address of each family in the status of its Node."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from ipaddress import IPv4Address

from purelb.core.model import Address
from simulation.cluster import Cluster
from simulation.manifests import node_object
from simulation.member import ETH0, Node
from simulation.node.addresses import ordered

# Seconds between two looks of a kubelet at its addresses.
PERIOD = 10.0


def list_first(cluster: Cluster, node: Node) -> None:
    """Let the kubelet of a node take the kernel's first addresses for the node's from now on."""
    # Without power there is no kubelet, and the status stays as it is.
    if node.eth0.is_up and node.machine.runs:
        _list(cluster, node)
    cluster.timeline.after(PERIOD, partial(list_first, cluster, node))


def _list(cluster: Cluster, node: Node) -> None:
    found = cluster.find("nodes", "", node.name)
    if found is not None:
        body = {**deepcopy(found), "status": node_object(_first(node))["status"]}
        cluster.put("nodes", "", node.name, body)


def _first(node: Node) -> list[Address]:
    """Return the first address of each family on a node's first interface."""
    first: dict[bool, Address] = {}
    for held in ordered(node.kernel.held):
        link, address = held.place
        if link == ETH0:
            first.setdefault(isinstance(address, IPv4Address), address)
    return list(first.values())
