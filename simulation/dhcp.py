# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a DHCP client, or a router advertisement, does to the own addresses of a node."""

from __future__ import annotations

from simulation.cluster import Cluster
from simulation.member import ETH0, Node

# By how much a node's other addresses are higher than its first ones.
_OTHER = 100


def readdress(cluster: Cluster, node: Node, *, gap: float = 0.0) -> None:
    """Replace a node's own addresses: the new ones come before the old ones go.

    With a gap, in seconds, the node has none of its own meanwhile.
    """
    before = node.addresses
    node.addresses = tuple(
        address + (_OTHER if int(address) < int(net[_OTHER]) else -_OTHER)
        for net, address in zip(node.nets, before, strict=True)
    )
    if not gap:
        node.add_addresses()
    for address in before:
        if (ETH0, address) in node.kernel.held:
            node.kernel.remove_address((ETH0, address))
    if gap:
        cluster.timeline.after(gap, node.add_addresses)
    else:
        # A new one may have gone with the old one.
        node.add_addresses()
    cluster.network.move(dict(zip(before, node.addresses, strict=True)))
    if cluster.find("nodes", "", node.name) is not None:
        cluster.register(node)


def deprecate(node: Node) -> None:
    """Let a node's own addresses be valid, but no longer preferred: the network replaces them."""
    for address in node.addresses:
        node.kernel.deprecate((ETH0, address))
