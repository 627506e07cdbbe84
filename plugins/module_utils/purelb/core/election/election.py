# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which node has an address: the same answer on every node, from the same Leases.

The rule is byte-compatible with the Go implementation (0.16, 0.17), so that agents of both kinds
in one cluster agree: the candidate with the lowest SHA-256 of `<node>#<address>` wins, digests
compared as bytes, the address in its canonical text. All nodes with a subnet that contains the
address are candidates; there is no longest-prefix match, which would only make fewer of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from heapq import nsmallest
from typing import Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from ..model import Address, Network, Reason

# (IP version, host bits) -> network bits -> nodes.
Cells = Mapping[Tuple[int, int], Mapping[int, FrozenSet[str]]]


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


@lru_cache(maxsize=64)
def _encoded(nodes: FrozenSet[str]) -> Tuple[Tuple[bytes, ...], Tuple[str, ...]]:
    """These nodes as they are hashed, and their names in the same order."""
    known = tuple(nodes)
    return tuple(node.encode() for node in known), known


@dataclass(frozen=True)
class Member:
    """A node whose Lease is live."""

    node: str
    subnets: Tuple[Network, ...] = ()
    draining: bool = False


@dataclass(frozen=True)
class MembershipView:
    """All that an election reads, as one observer knows it at one moment.

    `listed`: the Leases have been listed at least once. `healthy`: the observer's own Lease gives
    it the right to take part; an auditor without a Lease is always healthy.
    """

    members: Tuple[Member, ...] = ()
    listed: bool = True
    healthy: bool = True

    @cached_property
    def cells(self) -> Cells:
        """Who is in which subnet, so that a look-up costs one step for each prefix length."""
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
        found: FrozenSet[str] = frozenset()
        for nodes in _cells_of(address, self.cells):
            # One subnet is the rule: then all its addresses share one set.
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
    """Outcome of an election: the winner, or None, and why.

    `fell_back`: nodes with a ready endpoint were preferred, and none of them is a candidate.
    `followers`: who would win without the winner, and so on; as many as were asked for.
    """

    winner: Optional[str]
    reason: Reason
    candidates: FrozenSet[str] = frozenset()
    affinity_ignored: bool = False
    runners_up: Tuple[str, ...] = ()


_NOT_LISTED = Decision(None, Reason.LEASES_NOT_LISTED)
_UNHEALTHY = Decision(None, Reason.LEASE_UNHEALTHY)


def elect(address: Address, membership: MembershipView, *, runners_up: int = 0) -> Decision:
    """Decide who has an address; nobody has it while the observer cannot know or may not act."""
    return precondition(membership) or _vote(address, membership.candidates(address), runners_up)


def precondition(membership: MembershipView) -> Optional[Decision]:
    """The decision about every address while the observer cannot know or may not act."""
    if not membership.listed:
        return _NOT_LISTED
    return None if membership.healthy else _UNHEALTHY


def _vote(address: Address, candidates: FrozenSet[str], runners_up: int = 0) -> Decision:
    if not candidates:
        return Decision(None, Reason.NO_ELIGIBLE_NODES)
    winner, *others = _first(address, candidates, 1 + runners_up)
    return Decision(winner, Reason.ELECTION_WON, candidates, runners_up=tuple(others))


def _first(address: Address, nodes: FrozenSet[str], count: int) -> List[str]:
    """The first so many of these nodes, as `rank` orders them.

    All that an audit of a large cluster costs is here: a digest for each address and node.
    """
    suffix = _suffix(address)
    encoded, known = _encoded(nodes)
    draws = [sha256(node + suffix).digest() for node in encoded]
    if count == 1:
        return [known[draws.index(min(draws))]]
    # Both are equally long, and Python 3.9 does not know how to ask for that.
    return [node for _drawn, node in nsmallest(count, zip(draws, known))]  # noqa: B905


def prefer(
    address: Address, decision: Decision, preferred: FrozenSet[str], *, runners_up: int = 0
) -> Decision:
    """The decision if these nodes come first; the one given if none of them is a candidate."""
    if decision.winner is None:
        return decision
    near = decision.candidates & preferred
    return _vote(address, near, runners_up) if near else replace(decision, affinity_ignored=True)


class Elections:
    """Winners of many addresses among one set of members, each elected when first asked for.

    What the members alone decide is kept from one set to the next: a node that comes is compared
    with each winner of its subnets, and a node that goes leaves only its own addresses to elect.
    So a change costs a digest for each address, not one for each address and node.
    """

    def __init__(self, membership: MembershipView) -> None:
        self.membership = membership
        # With the address written out, which costs more than a digest.
        self._decided: Dict[Address, Tuple[Decision, bytes]] = {}

    def decide(self, address: Address) -> Decision:
        """Who has the address, given that the observer may say so."""
        known = self._decided.get(address)
        if known is None:
            decision = _vote(address, self.membership.candidates(address))
            known = self._decided[address] = decision, _suffix(address)
        return known[0]

    def after(self, membership: MembershipView, addresses: Iterable[Address]) -> Elections:
        """The elections of these addresses among other members."""
        after = Elections(membership)
        changes = _changes(self.membership.cells, membership.cells)
        for address in addresses:
            known = self._decided.get(address)
            if known is not None:
                come = list(_cells_of(address, changes))
                after._decided[address] = (
                    (_revise(address, known, membership, come), known[1]) if come else known
                )
        return after


def _changes(before: Cells, after: Cells) -> Cells:
    """Subnets whose nodes are others than before, with those that came."""
    changes: Dict[Tuple[int, int], Dict[int, FrozenSet[str]]] = {}
    nobody: FrozenSet[str] = frozenset()
    for key in before.keys() | after.keys():
        old, new = before.get(key, {}), after.get(key, {})
        for bits in old.keys() | new.keys():
            had, has = old.get(bits, nobody), new.get(bits, nobody)
            if had != has:
                changes.setdefault(key, {})[bits] = has - had
    return changes


def _revise(
    address: Address,
    known: Tuple[Decision, bytes],
    membership: MembershipView,
    come: Iterable[FrozenSet[str]],
) -> Decision:
    decision, suffix = known
    candidates, winner = membership.candidates(address), decision.winner
    if winner is None or winner not in candidates:
        return _vote(address, candidates)
    for nodes in come:
        for node in nodes:
            if _draw(node, suffix) < _draw(winner, suffix):
                winner = node
    return Decision(winner, Reason.ELECTION_WON, candidates)
