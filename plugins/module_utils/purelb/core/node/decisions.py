# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Whether this node holds each VIP, and why.

`decide_vip` decides about one VIP and remembers nothing. `decide_vips` decides about all of them
and reuses each decision whose input has not changed: a changed Lease or Service costs a comparison
for each VIP, a renewed Lease nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Dict, Mapping, Optional, Tuple

from ..election.election import Decision, Elections, precondition, prefer, rank
from ..election.members import Standing
from ..election.vips import Vip
from ..model import Address, Link, PoolType, Reason
from .interfaces import place_for
from .snapshot import NodeSnapshot

_HELD_HERE = frozenset({Reason.ELECTION_WON, Reason.KEPT, Reason.ANNOUNCING_NON_LOCAL})
# The outcome for a remote address: every node holds it, without an election.
_EVERY_NODE = Decision(None, Reason.ANNOUNCING_NON_LOCAL)
# Why a node does not have what it would have with the first standing.
_PASSED_OVER = {
    Standing.EXCLUDED: Reason.NODE_EXCLUDED,
    Standing.EVICTED: Reason.NODE_DRAINING,
    Standing.ILL: Reason.SERVICE_PROXY_DOWN,
    Standing.DRAINED: Reason.NODE_DRAINING,
}


@dataclass(frozen=True)
class VipDecision:
    """The decision about one VIP on this node; `link` only if the node holds it."""

    vip: Vip
    election: Decision
    reason: Reason
    link: Optional[Link] = None

    @property
    def is_here(self) -> bool:
        """Whether this node holds the address."""
        return self.reason in _HELD_HERE


def elect_vip(vip: Vip, snapshot: NodeSnapshot, elections: Elections) -> Decision:
    """Return the outcome of a VIP's election; `elections` covers all local addresses."""
    if vip.pool_type is PoolType.REMOTE:
        return _EVERY_NODE
    barred = precondition(snapshot.membership)
    if barred is not None:
        return barred
    election = elections.decision_of(vip.address)
    if not vip.has_affinity:
        return election
    return prefer(vip.address, election, vip.endpoint_nodes(snapshot.endpoints))


def decide_vip(vip: Vip, election: Decision, snapshot: NodeSnapshot) -> VipDecision:
    """Decide whether this node holds a VIP, given the outcome of its election."""
    barred = _barred(vip, snapshot)
    if barred is not None:
        return VipDecision(vip, election, barred)
    if vip.pool_type is PoolType.REMOTE:
        return _decide_remote(vip, election, snapshot)
    if election.winner is None:
        return VipDecision(vip, election, election.reason)
    if election.winner != snapshot.node:
        is_passed_over = _is_passed_over(vip, election.winner, snapshot)
        reason = _PASSED_OVER[snapshot.standing] if is_passed_over else Reason.NOT_WINNER
        return VipDecision(vip, election, reason)
    place = place_for(vip.address, snapshot.segments)
    if place is None:
        return VipDecision(vip, election, Reason.NO_LOCAL_INTERFACE)
    if vip.address in snapshot.foreign:
        return VipDecision(vip, election, Reason.FOREIGN_ADDRESS)
    return VipDecision(vip, election, Reason.ELECTION_WON, place[0])


def _barred(vip: Vip, snapshot: NodeSnapshot) -> Optional[Reason]:
    """Return why no node like this one may have a VIP, even as the winner; None if it may."""
    if vip.address in snapshot.known:
        return Reason.NODE_ADDRESS
    if vip.address in snapshot.gateways:
        return Reason.GATEWAY_ADDRESS
    if not vip.is_in_pool:
        return Reason.OUTSIDE_POOLS
    return Reason.LEAVING if snapshot.leaving else None


def _is_passed_over(vip: Vip, winner: str, snapshot: NodeSnapshot) -> bool:
    """Whether the node would win, and could hold the address, if its standing were the first."""
    if not snapshot.standing or place_for(vip.address, snapshot.segments) is None:
        return False
    return rank((winner, snapshot.node), vip.address)[0] == snapshot.node


def _decide_remote(vip: Vip, election: Decision, snapshot: NodeSnapshot) -> VipDecision:
    """Decide about a remote VIP: a router spreads its traffic, so every node holds it.

    The node's Lease does not matter: no other node would take the address over, and the router
    detects a dead node by itself.
    """
    if _is_spared(vip, snapshot):
        return VipDecision(vip, election, _PASSED_OVER[snapshot.standing])
    if not vip.everywhere and snapshot.node not in vip.endpoint_nodes(snapshot.endpoints):
        return VipDecision(vip, election, Reason.NO_LOCAL_ENDPOINT)
    if snapshot.dummy is None:
        return VipDecision(vip, election, Reason.NO_DUMMY_INTERFACE)
    if vip.address in snapshot.foreign:
        return VipDecision(vip, election, Reason.FOREIGN_ADDRESS)
    return VipDecision(vip, election, Reason.ANNOUNCING_NON_LOCAL, snapshot.dummy)


def _is_spared(vip: Vip, snapshot: NodeSnapshot) -> bool:
    """Whether its standing keeps a remote address off this node: only a leaving one's always does.

    Without a live Lease this node is no member, so only the others are looked at.
    """
    standing = snapshot.standing
    if standing in (Standing.FIRST, Standing.DRAINED):
        return standing is Standing.DRAINED
    holders = None if vip.everywhere else vip.endpoint_nodes(snapshot.endpoints)
    others = (m for m in snapshot.membership.members if m.standing < standing)
    return any(holders is None or member.node in holders for member in others)


@dataclass(frozen=True)
class Decisions:
    """The decisions about all VIPs of a node, with the snapshot and elections that led to them."""

    snapshot: NodeSnapshot
    elections: Elections = field(default_factory=Elections)
    by_address: Mapping[Address, VipDecision] = field(default_factory=dict)

    @cached_property
    def here(self) -> Tuple[VipDecision, ...]:
        """Decisions about the addresses that this node holds."""
        return tuple(decision for decision in self.by_address.values() if decision.is_here)

    @cached_property
    def needs_dummy(self) -> bool:
        """Whether an address waits for the dummy interface, which is only created when needed."""
        return any(d.reason is Reason.NO_DUMMY_INTERFACE for d in self.by_address.values())


@dataclass(frozen=True)
class _Unchanged:
    """Which inputs of the decisions are the same in two snapshots."""

    node: bool
    members: bool
    services: bool

    @classmethod
    def between(cls, before: NodeSnapshot, after: NodeSnapshot) -> _Unchanged:
        return cls(
            node=_node_inputs(before) == _node_inputs(after),
            members=before.membership.members == after.membership.members,
            # The store replaces these mappings on each change, and never modifies them.
            services=before.vips is after.vips and before.endpoints is after.endpoints,
        )

    def all(self) -> bool:
        return self.node and self.members and self.services


def _node_inputs(snapshot: NodeSnapshot) -> Tuple[object, ...]:
    """Return what decisions depend on in addition to the VIPs, their endpoints and the members."""
    barred = precondition(snapshot.membership)
    return (
        snapshot.segments,
        snapshot.dummy,
        snapshot.known,
        snapshot.gateways,
        snapshot.foreign,
        snapshot.leaving,
        snapshot.standing,
        # A remote address stays on a node of a worse standing if no better one can have it.
        snapshot.standing and snapshot.membership.members,
        barred,
    )


def decide_vips(snapshot: NodeSnapshot, last: Optional[Decisions] = None) -> Decisions:
    """Decide about every VIP, reusing decisions of `last`; returns `last` if nothing changed."""
    if last is None:
        last = Decisions(NodeSnapshot(snapshot.node))
    unchanged = _Unchanged.between(last.snapshot, snapshot)
    if unchanged.all():
        return last
    elections = _elections(snapshot, last.elections, members_changed=not unchanged.members)
    reusable = last.by_address if unchanged.node else {}
    by_address: Dict[Address, VipDecision] = {}
    for address, vip in snapshot.vips.items():
        election = elect_vip(vip, snapshot, elections)
        decision = reusable.get(address)
        if (
            decision is None
            or decision.vip is not vip
            or decision.election is not election
            or vip.depends_on_endpoints
        ):
            decision = decide_vip(vip, election, snapshot)
        by_address[address] = decision
    return Decisions(snapshot, elections, by_address)


def _elections(snapshot: NodeSnapshot, last: Elections, *, members_changed: bool) -> Elections:
    """Return the elections of all local addresses; one that became remote may stay in them."""
    vips = snapshot.vips
    if members_changed:
        local = [a for a, vip in vips.items() if vip.pool_type is PoolType.LOCAL]
        return last.after(snapshot.membership, local)
    # A set made from a dictionary reuses its hashes; hashing every address again would be slow.
    current, known = set(vips), set(last.outcomes)
    added = [a for a in current - known if vips[a].pool_type is PoolType.LOCAL]
    removed = known - current
    return last.changed(added, removed) if added or removed else last
