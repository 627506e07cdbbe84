# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What was seen of a cluster from outside of its API: on the nodes' interfaces, on a segment.

Where a node may hold an address, and which subnets it should tell, is what its agent's own
functions say: `snapshot_of` makes for them what the agent would make.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Iterable, List, Mapping, Tuple

from ..model import Address, InterfaceAddress, Link, ServiceGroup
from ..node.configuration import NOWHERE, NodeConfig, choose
from ..node.interfaces import selected_links
from ..node.snapshot import NodeSnapshot


@dataclass(frozen=True)
class Observation:
    """What a node had on its interfaces; ends of lifetimes are on that node's wall clock."""

    node: str
    links: Tuple[Link, ...] = ()
    addresses: Tuple[InterfaceAddress, ...] = ()


@dataclass(frozen=True)
class NeighborReply:
    """Who answered for an address on a segment.

    `is_own`: the host that asked has the address itself, and hosts do not answer themselves.
    """

    address: Address
    macs: Tuple[bytes, ...] = ()
    is_own: bool = False


@dataclass(frozen=True)
class Evidence:
    """All that was seen, and what it takes to judge it.

    `known` are the addresses by which Node objects know nodes, `labels` the labels of Nodes.
    `unread` says of nodes why their interfaces could not be looked at, `silent` why their metrics
    could not be read.
    """

    observations: Tuple[Observation, ...] = ()
    answers: Tuple[NeighborReply, ...] = ()
    groups: Tuple[ServiceGroup, ...] = ()
    configs: Tuple[NodeConfig, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    known: FrozenSet[Address] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Holding:
    """An address on an interface of a node."""

    node: str
    link: Link
    held: InterfaceAddress
    is_on_dummy: bool

    def __str__(self) -> str:
        return f"{self.node} has it on {self.link.name} ({format_mac(self.link.mac)})"


def format_mac(mac: bytes) -> str:
    """A MAC address as people write it."""
    return mac.hex(":") or "no MAC address"


def snapshot_of(seen: Observation, evidence: Evidence) -> NodeSnapshot:
    """The node as its agent would see it, as far as the interfaces go."""
    config = choose(evidence.configs, evidence.labels.get(seen.node, {})).config or NOWHERE
    config = NOWHERE if config.problem else config
    dummy = next((link for link in seen.links if link.name == config.dummy_interface), None)
    return NodeSnapshot(
        node=seen.node,
        groups=evidence.groups,
        links=selected_links(seen.links, config),
        dummy=dummy,
        dummies=frozenset() if dummy is None else frozenset({dummy.index}),
        addresses=seen.addresses,
        known=evidence.known,
    )


def holdings_of(
    observations: Iterable[Observation], worlds: Mapping[str, NodeSnapshot]
) -> Dict[Address, Tuple[Holding, ...]]:
    """Where each address is."""
    found: Dict[Address, List[Holding]] = defaultdict(list)
    for seen in observations:
        links = {link.index: link for link in seen.links}
        for held in seen.addresses:
            is_on_dummy = held.link in worlds[seen.node].dummies
            one = Holding(seen.node, links[held.link], held, is_on_dummy)
            found[held.address].append(one)
    return {address: tuple(several) for address, several in found.items()}
