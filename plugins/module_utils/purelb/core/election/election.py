# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The election: which node holds an address, computed alike on every node from the same Leases.

The rule is byte-compatible with the Go implementation (0.16, 0.17), so that agents of both kinds in
one cluster agree: the candidate with the lowest SHA-256 of `<node>#<address>` wins. Digests are
compared as bytes, and the address is in its canonical text. Every node with a subnet that contains
the address is a candidate; there is no longest-prefix match, which would only exclude candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from heapq import nsmallest
from typing import Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from ..model import Address, Network, Reason
from .members import Member, Standing

# (IP version, host bits) -> network bits -> nodes.
Cells = Mapping[Tuple[int, int], Mapping[int, FrozenSet[str]]]
# The standings that count where no node of the first one can have an address, in their order.
_RESERVES = (Standing.EXCLUDED, Standing.EVICTED, Standing.ILL)


def digest(node: str, address: Address) -> bytes:
    """Return a node's digest for an address; the lowest digest wins."""
    return _digest(node, _suffix(address))


@lru_cache(maxsize=4096)
def _suffix(address: Address) -> bytes:
    return f"#{address}".encode()


def _digest(node: str, suffix: bytes) -> bytes:
    return sha256(node.encode() + suffix).digest()


def rank(nodes: Iterable[str], address: Address) -> List[str]:
    """Return the nodes in the order in which they win an address, the winner first."""
    # Formatting an address costs more than hashing it, so do it once for all nodes.
    suffix = _suffix(address)
    return sorted(set(nodes), key=lambda node: _digest(node, suffix))


@lru_cache(maxsize=64)
def _encoded(nodes: FrozenSet[str]) -> Tuple[Tuple[bytes, ...], Tuple[str, ...]]:
    """Return the nodes' names as bytes, and as text in the same order."""
    known = tuple(nodes)
    return tuple(node.encode() for node in known), known


@dataclass(frozen=True)
class MembershipView:
    """The input of an election, as one observer knows it at one moment.

    `listed`: the observer has listed the Leases at least once. `healthy`: its own Lease is valid,
    so it may announce; an auditor has no Lease and is always healthy.
    """

    members: Tuple[Member, ...] = ()
    listed: bool = True
    healthy: bool = True

    @cached_property
    def cells(self) -> Cells:
        """The nodes of the first standing, by subnet."""
        return _index(self.members, standing=Standing.FIRST)

    @cached_property
    def reserves(self) -> Tuple[Cells, ...]:
        """The nodes that have an address where no better one can, by subnet, the best first."""
        return tuple(_index(self.members, standing=standing) for standing in _RESERVES)

    @cached_property
    def _all(self) -> Cells:
        return _index(self.members)

    def candidates(self, address: Address) -> FrozenSet[str]:
        """Return the nodes among which the address is elected: those of the best standing.

        What a program or a habit says of a node (its label, an eviction, its service proxy) never
        leaves an address without a candidate; the taint of a leaving node does.
        """
        found = _nodes(address, self.cells)
        for cells in () if found else self.reserves:
            found = found or _nodes(address, cells)
        return found

    def covering(self, address: Address) -> FrozenSet[str]:
        """Return the nodes that have the address in a subnet, draining or not."""
        return _nodes(address, self._all)

    def remote_nodes(self, endpoints: Optional[FrozenSet[str]] = None) -> FrozenSet[str]:
        """Return the nodes that should have a remote address; the same exception applies.

        `endpoints`: only these nodes, those with a ready endpoint, may have it.
        """
        for standing in (Standing.FIRST, *_RESERVES):
            nodes = frozenset(m.node for m in self.members if m.standing is standing)
            found = nodes if endpoints is None else nodes & endpoints
            if found:
                return found
        return frozenset()


def _index(members: Iterable[Member], *, standing: Optional[Standing] = None) -> Cells:
    """Return the nodes of this standing, or all of them, by subnet.

    A look-up takes one step for each prefix length.
    """
    index: Dict[Tuple[int, int], Dict[int, Set[str]]] = {}
    for member in members:
        if standing is not None and member.standing is not standing:
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


@lru_cache(maxsize=1024)
def share_subnet(one: Tuple[Network, ...], other: Tuple[Network, ...]) -> bool:
    """Whether two nodes could have the same address."""
    return any(a.version == b.version and a.overlaps(b) for a in one for b in other)


def _nodes(address: Address, cells: Cells) -> FrozenSet[str]:
    """Return the nodes of all subnets that contain the address."""
    found: FrozenSet[str] = frozenset()
    for nodes in _cells_of(address, cells):
        # Usually one subnet holds the address; then all its addresses share one set.
        found = found | nodes if found else nodes
    return found


def _cells_of(address: Address, cells: Cells) -> Iterator[FrozenSet[str]]:
    version, value = address.version, int(address)
    for (of_version, shift), by_bits in cells.items():
        if of_version == version:
            nodes = by_bits.get(value >> shift)
            if nodes is not None:
                yield nodes


@dataclass(frozen=True)
class Decision:
    """Outcome of an election: the winner, or None, and the reason.

    `affinity_ignored`: nodes with a ready endpoint are preferred, but none of them is a candidate.
    `runners_up`: the next winners in order, as many as the caller requested.
    """

    winner: Optional[str]
    reason: Reason
    candidates: FrozenSet[str] = frozenset()
    affinity_ignored: bool = False
    runners_up: Tuple[str, ...] = ()


_NOT_LISTED = Decision(None, Reason.LEASES_NOT_LISTED)
_UNHEALTHY = Decision(None, Reason.LEASE_UNHEALTHY)


def elect(address: Address, membership: MembershipView, *, runners_up: int = 0) -> Decision:
    """Elect the holder of an address; there is no winner while the precondition fails."""
    return precondition(membership) or _vote(address, membership.candidates(address), runners_up)


def precondition(membership: MembershipView) -> Optional[Decision]:
    """Return the outcome for all addresses if no election is possible; None if it is."""
    if not membership.listed:
        return _NOT_LISTED
    return None if membership.healthy else _UNHEALTHY


def _vote(address: Address, candidates: FrozenSet[str], runners_up: int = 0) -> Decision:
    if not candidates:
        return Decision(None, Reason.NO_ELIGIBLE_NODES)
    winner, *others = _first(address, candidates, 1 + runners_up)
    return Decision(winner, Reason.ELECTION_WON, candidates, runners_up=tuple(others))


def _first(address: Address, nodes: FrozenSet[str], count: int) -> List[str]:
    """Return the first `count` of these nodes, in the order of `rank`.

    An audit of a large cluster spends its time here: one digest for each address and node.
    """
    suffix = _suffix(address)
    encoded, known = _encoded(nodes)
    digests = [sha256(node + suffix).digest() for node in encoded]
    if count == 1:
        return [known[digests.index(min(digests))]]
    # Both have the same length; Python 3.9 has no strict=True.
    return [node for _hashed, node in nsmallest(count, zip(digests, known))]  # noqa: B905


def prefer(
    address: Address, decision: Decision, preferred: FrozenSet[str], *, runners_up: int = 0
) -> Decision:
    """Elect among the preferred candidates; return `decision` if there are none."""
    if decision.winner is None:
        return decision
    candidates = decision.candidates & preferred
    if candidates:
        return _vote(address, candidates, runners_up)
    return replace(decision, affinity_ignored=True)


@dataclass(frozen=True)
class Elections:
    """The outcomes of many elections among one set of members.

    `after` carries them over to other members: a new node is compared with each winner of its
    subnets, and only the addresses of a lost node are elected again. So a change costs a digest for
    each address, not one for each address and node. `changed` carries them over to other addresses.
    """

    membership: MembershipView = MembershipView()
    # With the suffix that is hashed: formatting an address costs more than a digest.
    outcomes: Mapping[Address, Tuple[Decision, bytes]] = field(default_factory=dict)

    def decision_of(self, address: Address) -> Decision:
        """Return the outcome for one of the addresses, regardless of the precondition."""
        return self.outcomes[address][0]

    def after(self, membership: MembershipView, addresses: Iterable[Address]) -> Elections:
        """Return the elections of exactly these addresses among these members."""
        changes = _changes(self.membership.cells, membership.cells)
        is_new_reserve = self.membership.reserves != membership.reserves
        after = Elections(membership)
        outcomes: Dict[Address, Tuple[Decision, bytes]] = {}
        for address in addresses:
            known = self.outcomes.get(address)
            if known is None:
                known = after._new(address)
            else:
                joined = list(_cells_of(address, changes))
                if joined:
                    known = _revise(address, known, membership, joined), known[1]
                elif is_new_reserve and not _nodes(address, membership.cells):
                    known = _vote(address, membership.candidates(address)), known[1]
            outcomes[address] = known
        return replace(after, outcomes=outcomes)

    def changed(self, added: Iterable[Address], removed: Iterable[Address]) -> Elections:
        """Return the elections among the same members with some addresses added and removed."""
        outcomes = dict(self.outcomes)
        for address in removed:
            del outcomes[address]
        for address in added:
            outcomes[address] = self._new(address)
        return Elections(self.membership, outcomes)

    def _new(self, address: Address) -> Tuple[Decision, bytes]:
        return _vote(address, self.membership.candidates(address)), _suffix(address)


def _changes(before: Cells, after: Cells) -> Cells:
    """Return the subnets whose nodes changed, each with the nodes that joined it."""
    changes: Dict[Tuple[int, int], Dict[int, FrozenSet[str]]] = {}
    none: FrozenSet[str] = frozenset()
    for key in before.keys() | after.keys():
        old, new = before.get(key, {}), after.get(key, {})
        for bits in old.keys() | new.keys():
            had, has = old.get(bits, none), new.get(bits, none)
            if had != has:
                changes.setdefault(key, {})[bits] = has - had
    return changes


def _revise(
    address: Address,
    known: Tuple[Decision, bytes],
    membership: MembershipView,
    joined: Iterable[FrozenSet[str]],
) -> Decision:
    """Return the outcome after a change in the address's subnets, which these nodes joined."""
    decision, suffix = known
    candidates, winner = _nodes(address, membership.cells), decision.winner
    if winner is None or winner not in candidates:
        return _vote(address, membership.candidates(address))
    for nodes in joined:
        for node in nodes:
            if _digest(node, suffix) < _digest(winner, suffix):
                winner = node
    return Decision(winner, Reason.ELECTION_WON, candidates)
