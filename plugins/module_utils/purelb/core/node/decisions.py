# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What a node is to do about each VIP, and why.

A judgement is made from one World; what the last one said is kept wherever nothing that it was made
from has changed, so that one changed Lease or Service costs no more than a look at each VIP, and a
renewed Lease nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Dict, Mapping, Optional, Tuple

from ..election.election import Decision, Elections, MembershipView, precondition, prefer, rank
from ..election.vips import Vip
from ..model import Address, Link, PoolType, Reason
from .interfaces import place_for
from .snapshot import NodeSnapshot

HERE = frozenset({Reason.ELECTION_WON, Reason.ANNOUNCING_NON_LOCAL})


@dataclass(frozen=True)
class VipDecision:
    """What was decided for a VIP on this node; with link and mask where the node is to hold it."""

    vip: Vip
    decision: Decision
    reason: Reason
    link: Optional[Link] = None
    prefixlen: int = 0

    @property
    def is_here(self) -> bool:
        """Whether this node is to hold the address."""
        return self.reason in HERE


@dataclass(frozen=True)
class Decisions:
    """All verdicts of a node. `world` is the one that they were made from."""

    world: NodeSnapshot
    elections: Elections
    verdicts: Mapping[Address, VipDecision] = field(default_factory=dict)

    @cached_property
    def here(self) -> Tuple[VipDecision, ...]:
        """The verdicts on addresses that this node is to hold."""
        return tuple(verdict for verdict in self.verdicts.values() if verdict.is_here)

    @cached_property
    def lacks_dummy(self) -> bool:
        """Whether an address waits for the dummy interface, which none is made for before."""
        return any(v.reason is Reason.NO_DUMMY_INTERFACE for v in self.verdicts.values())


# Decided without an election.
_EVERY_NODE = Decision(None, Reason.ANNOUNCING_NON_LOCAL)


def decide_vips(world: NodeSnapshot, last: Optional[Decisions] = None) -> Decisions:
    """Decide about every VIP; `last` is the judgement of the cycle before."""
    if last is None:
        last = Decisions(NodeSnapshot(world.node), Elections(MembershipView()))
    before = last.world
    same_place = _surroundings(before) == _surroundings(world)
    same_members = before.membership.members == world.membership.members
    # Both are replaced when something in them changes, never changed.
    same_services = before.vips is world.vips and before.endpoints is world.endpoints
    if same_place and same_members and same_services:
        return last
    elections = last.elections
    if not same_members:
        elections = elections.after(world.membership, world.vips)
    verdicts: Dict[Address, VipDecision] = {}
    for address, vip in world.vips.items():
        verdict, decision = last.verdicts.get(address), _decide(vip, world, elections)
        is_same = verdict is not None and verdict.vip is vip and verdict.decision is decision
        if verdict is None or not (is_same and same_place) or vip.asks_endpoints:
            verdict = _judge(vip, decision, world)
        verdicts[address] = verdict
    return Decisions(world, elections, verdicts)


def _surroundings(world: NodeSnapshot) -> Tuple[object, ...]:
    """What verdicts depend on besides the VIPs and the members."""
    barred = precondition(world.membership)
    return world.segments, world.dummy, world.known, world.leaving, world.draining, barred


def _decide(vip: Vip, world: NodeSnapshot, elections: Elections) -> Decision:
    if vip.pool_type is PoolType.REMOTE:
        return _EVERY_NODE
    barred = precondition(world.membership)
    if barred is not None:
        return barred
    decision = elections.decide(vip.address)
    return (
        prefer(vip.address, decision, vip.near(world.endpoints)) if vip.has_affinity else decision
    )


def _judge(vip: Vip, decision: Decision, world: NodeSnapshot) -> VipDecision:
    if vip.address in world.known:
        return VipDecision(vip, decision, Reason.NODE_ADDRESS)
    if world.leaving:
        return VipDecision(vip, decision, Reason.LEAVING)
    if vip.pool_type is PoolType.REMOTE:
        return _judge_remote(vip, decision, world)
    if decision.winner is None:
        return VipDecision(vip, decision, decision.reason)
    if decision.winner != world.node:
        gives_up = _gives_up(vip, decision.winner, world)
        return VipDecision(vip, decision, Reason.NODE_DRAINING if gives_up else Reason.NOT_WINNER)
    place = place_for(vip.address, world.segments)
    if place is None:
        return VipDecision(vip, decision, Reason.NO_LOCAL_INTERFACE)
    link, network = place
    prefixlen = network.prefixlen if vip.prefixlen is None else vip.prefixlen
    return VipDecision(vip, decision, Reason.ELECTION_WON, link, prefixlen)


def _gives_up(vip: Vip, winner: str, world: NodeSnapshot) -> bool:
    """Whether the node would have won, and could hold the address, if it were not draining."""
    if not world.draining or place_for(vip.address, world.segments) is None:
        return False
    return rank((winner, world.node), vip.address)[0] == world.node


def _judge_remote(vip: Vip, decision: Decision, world: NodeSnapshot) -> VipDecision:
    """A router spreads the traffic: every node has the address, whoever else has it.

    Without regard to the node's Lease, too: nobody would take over, and the router notices a node
    that is gone.
    """
    if world.draining:
        return VipDecision(vip, decision, Reason.NODE_DRAINING)
    if not vip.everywhere and world.node not in vip.near(world.endpoints):
        return VipDecision(vip, decision, Reason.NO_LOCAL_ENDPOINT)
    if world.dummy is None:
        return VipDecision(vip, decision, Reason.NO_DUMMY_INTERFACE)
    prefixlen = vip.address.max_prefixlen if vip.prefixlen is None else vip.prefixlen
    return VipDecision(vip, decision, Reason.ANNOUNCING_NON_LOCAL, world.dummy, prefixlen)
