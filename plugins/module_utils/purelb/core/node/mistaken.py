# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Addresses in the status of Nodes that are VIPs: another program took one for the node's own.

kubelet lists the first global address of the interface that it looks at unless `--node-ip` names
one, and passes over none by its scope, flags, label or mask (`ResolveBindAddress` of
k8s.io/apimachinery). The kernel has IPv6 addresses newest first, so that is the VIP put last.

A node's own addresses are never VIPs. So its agent says in its Lease which of the addresses in the
status of its Node it put itself, and all agents believe that of this Node. What a node said that is
gone is remembered by the others, as its status does not change any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import AbstractSet, FrozenSet, Iterable, Mapping, Tuple

from ..model import Address, NodeAddress
from .snapshot import NodeSnapshot

# Seconds after the removal of a VIP in which a status that was read before may still be written.
REMEMBERED = 60.0
Pairs = FrozenSet[NodeAddress]


def mistaken_addresses(
    listed: Mapping[str, FrozenSet[Address]],
    words: Mapping[str, Iterable[NodeAddress]],
    known: Pairs,
) -> Pairs:
    """Return the addresses in the status of Nodes that are not theirs.

    `listed`: the addresses in the status, by Node. `words`: what the Leases say whose nodes are
    live, by node: each is believed about itself, and about nodes that have none. `known`: what was
    returned before.
    """
    said = known.union(*words.values())
    return frozenset(
        (node, address)
        for node, address in said
        if address in listed.get(node, ()) and (node not in words or (node, address) in words[node])
    )


def word_of(node: str, mistaken: Pairs, live: Iterable[str]) -> Tuple[NodeAddress, ...]:
    """Return what a node's Lease says: of the node itself, and of nodes that have no live Lease."""
    others = set(live) - {node}
    said = ((name, address) for name, address in mistaken if name not in others)
    return tuple(sorted(said, key=lambda pair: (pair[0], pair[1].version, int(pair[1]))))


def own_mistaken(
    listed: FrozenSet[Address], snapshot: NodeSnapshot, had: AbstractSet[Address]
) -> FrozenSet[Address]:
    """Return the addresses in the status of the own Node that its agent put on an interface.

    `had`: those that it put before, or that were mistaken before. An address that is on an
    interface and that the agent did not put is the node's own.
    """
    suspects = {address for address in listed if address in had or address in snapshot.vips}
    if not suspects:
        return frozenset()
    present = [held for held in snapshot.addresses if held.address in suspects]
    ours = {held.address for held in present if snapshot.is_put(held)}
    return frozenset((suspects & (had | ours)) - ({held.address for held in present} - ours))


@dataclass(frozen=True)
class RemovedVips:
    """The VIPs that a node has removed lately, each with the time until it is remembered."""

    until: Mapping[Address, float] = field(default_factory=dict)

    def after(self, removed: Iterable[Address], *, now: float) -> RemovedVips:
        """Return the record after further removals."""
        new = dict.fromkeys(removed, now + REMEMBERED)
        if not new and all(now < end for end in self.until.values()):
            return self
        return RemovedVips({**{a: end for a, end in self.until.items() if now < end}, **new})
