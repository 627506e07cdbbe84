# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which node has an address: the same answer on every node, from the same Leases.

The rule is byte-compatible with the Go implementation (0.16, 0.17), so that agents of both kinds
in one cluster agree: the candidate with the lowest SHA-256 of `<node>#<address>` wins, digests
compared as bytes, the address in its canonical text. All nodes with a subnet that contains the
address are candidates; there is no longest-prefix match, which would only make fewer of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Dict, FrozenSet, Iterable, List, Optional, Set, Tuple

from .model import Address, Network, Reason


def digest(node: str, address: Address) -> bytes:
    """What a node draws for an address; the lowest draw wins."""
    return _draw(node, _suffix(address))


def _suffix(address: Address) -> bytes:
    return f"#{address}".encode()


def _draw(node: str, suffix: bytes) -> bytes:
    return sha256(node.encode() + suffix).digest()


def rank(nodes: Iterable[str], address: Address) -> List[str]:
    """Order nodes for an address, the winner first, then who would follow."""
    # Writing an address out costs more than hashing it: once for all nodes.
    suffix = _suffix(address)
    return sorted(set(nodes), key=lambda node: _draw(node, suffix))


@dataclass(frozen=True)
class Member:
    """A node whose Lease is live."""

    node: str
    subnets: Tuple[Network, ...] = ()
    draining: bool = False


@dataclass(frozen=True)
class Electorate:
    """All that an election reads, as one observer knows it at one moment.

    `listed`: the Leases have been listed at least once. `healthy`: the observer's own Lease gives
    it the right to take part; an auditor without a Lease is always healthy.
    """

    members: Tuple[Member, ...] = ()
    listed: bool = True
    healthy: bool = True

    @cached_property
    def _nodes_by_subnet(self) -> Dict[Tuple[int, int], Dict[int, FrozenSet[str]]]:
        # (version, shift) -> network bits -> nodes, so that a look-up costs one step for each
        # prefix length in use and not one for each subnet of each node.
        index: Dict[Tuple[int, int], Dict[int, Set[str]]] = {}
        for member in self.members:
            if member.draining:
                continue
            for subnet in member.subnets:
                shift = subnet.max_prefixlen - subnet.prefixlen
                bits = int(subnet.network_address) >> shift
                nodes = index.setdefault((subnet.version, shift), {}).setdefault(bits, set())
                nodes.add(member.node)
        return {
            key: {bits: frozenset(nodes) for bits, nodes in by_bits.items()}
            for key, by_bits in index.items()
        }

    def candidates(self, address: Address) -> FrozenSet[str]:
        """Nodes that could announce the address: live, in its subnet, not draining."""
        value, found = int(address), frozenset()  # type: int, FrozenSet[str]
        for (version, shift), by_bits in self._nodes_by_subnet.items():
            if version == address.version:
                found |= by_bits.get(value >> shift, frozenset())
        return found


@dataclass(frozen=True)
class Decision:
    """Outcome of an election: the winner, or None, and why."""

    winner: Optional[str]
    reason: Reason
    candidates: FrozenSet[str] = frozenset()


def elect(address: Address, electorate: Electorate) -> Decision:
    """Decide who has an address; nobody has it while the observer cannot know or may not act."""
    if not electorate.listed:
        return Decision(None, Reason.LEASES_NOT_LISTED)
    if not electorate.healthy:
        return Decision(None, Reason.LEASE_UNHEALTHY)
    candidates = electorate.candidates(address)
    if not candidates:
        return Decision(None, Reason.NO_ELIGIBLE_NODES)
    suffix = _suffix(address)
    winner = min(candidates, key=lambda node: _draw(node, suffix))
    return Decision(winner, Reason.ELECTION_WON, candidates)
