# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Observations of a cluster outside of its API: on the nodes' interfaces and on a segment.

The agent's own functions determine where a node may hold an address, and which subnets belong into
its Lease: `snapshot_of` builds their input as the agent would.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from ..model import Address, InterfaceAddress, Link, ServiceGroup
from ..node.configuration import NOWHERE, NodeConfig, choose
from ..node.interfaces import selected_links
from ..node.left import Opened
from ..node.snapshot import NodeSnapshot, shows_marks


@dataclass(frozen=True)
class LinkSettings:
    """The IPv4 settings in force on an interface; None if they are not known.

    They are the larger of its own value and that of all interfaces.
    """

    arp_ignore: Optional[int] = None
    rp_filter: Optional[int] = None


@dataclass(frozen=True)
class Observation:
    """The addresses on a node's interfaces; lifetimes end on that node's wall clock.

    `settings`: by the index of the interface. `proxies`: the interfaces to which a service proxy
    adds the addresses of all Services.
    """

    node: str
    links: Tuple[Link, ...] = ()
    addresses: Tuple[InterfaceAddress, ...] = ()
    settings: Mapping[int, LinkSettings] = field(default_factory=dict)
    proxies: Tuple[str, ...] = ()


@dataclass(frozen=True)
class NeighborReply:
    """The hosts that answered for an address on a segment.

    `is_own`: the asking host has the address itself, and does not answer its own request.
    """

    address: Address
    macs: Tuple[bytes, ...] = ()
    is_own: bool = False


@dataclass(frozen=True)
class Evidence:
    """All observations, and the objects that are needed to evaluate them.

    `known`: the Nodes' own addresses, by their status. `labels`: the labels of Nodes. `unread`
    and `silent` map nodes to the reason why their interfaces or metrics could not be read,
    `unasked` hosts to the reason why they could not probe their segments.
    `examined`: what was to be looked at, of `nodes` and `segment`.
    """

    observations: Tuple[Observation, ...] = ()
    answers: Tuple[NeighborReply, ...] = ()
    groups: Tuple[ServiceGroup, ...] = ()
    configs: Tuple[NodeConfig, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    known: FrozenSet[Address] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    unasked: Mapping[str, str] = field(default_factory=dict)
    examined: FrozenSet[str] = frozenset()


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
    """Return a MAC address as text."""
    return mac.hex(":") or "no MAC address"


def snapshot_of(seen: Observation, evidence: Evidence, *, has_right: bool) -> NodeSnapshot:
    """Return the node's interfaces as its agent would see them.

    `has_right`: its Lease has not ended; if it has, its fence, if there is one, is shut.
    """
    config = choose(evidence.configs, evidence.labels.get(seen.node, {})).config or NOWHERE
    config = NOWHERE if config.problem else config
    dummy = next((link for link in seen.links if link.name == config.dummy_interface), None)
    return NodeSnapshot(
        node=seen.node,
        groups=evidence.groups,
        links=selected_links(seen.links, config),
        dummy=dummy,
        dummies=frozenset() if dummy is None else frozenset({dummy.index}),
        all_links=seen.links,
        addresses=seen.addresses,
        keeps_marks=shows_marks(seen.addresses),
        known=evidence.known,
        opened=Opened.EVER_SINCE if has_right else Opened.NOT_YET,
    )


def holdings_of(
    observations: Iterable[Observation], snapshots: Mapping[str, NodeSnapshot]
) -> Dict[Address, Tuple[Holding, ...]]:
    """Return where each address is held; what the fence of a node keeps silent is not."""
    found: Dict[Address, List[Holding]] = defaultdict(list)
    for seen in observations:
        links = {link.index: link for link in seen.links}
        snapshot = snapshots[seen.node]
        for held in seen.addresses:
            if (held.link, held.address) in snapshot.left:
                continue
            is_on_dummy = held.link in snapshot.dummies
            holding = Holding(seen.node, links[held.link], held, is_on_dummy)
            found[held.address].append(holding)
    return {address: tuple(several) for address, several in found.items()}
