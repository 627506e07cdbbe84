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

from ..election.election import Decision, Elections, Electorate, barrier, prefer, rank
from ..election.vips import Vip
from ..model import Address, Link, PoolType, Reason
from .interfaces import place_for
from .snapshot import World

HERE = frozenset({Reason.ELECTION_WON, Reason.ANNOUNCING_NON_LOCAL})


@dataclass(frozen=True)
class Verdict:
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
class Judgement:
    """All verdicts of a node. `world` is the one that they were made from."""

    world: World
    elections: Elections
    verdicts: Mapping[Address, Verdict] = field(default_factory=dict)

    @cached_property
    def here(self) -> Tuple[Verdict, ...]:
        """The verdicts on addresses that this node is to hold."""
        return tuple(verdict for verdict in self.verdicts.values() if verdict.is_here)

    @cached_property
    def lacks_dummy(self) -> bool:
        """Whether an address waits for the dummy interface, which none is made for before."""
        return any(v.reason is Reason.NO_DUMMY_INTERFACE for v in self.verdicts.values())


# Decided without an election.
_EVERY_NODE = Decision(None, Reason.ANNOUNCING_NON_LOCAL)


def judge(world: World, last: Optional[Judgement] = None) -> Judgement:
    """Decide about every VIP; `last` is the judgement of the cycle before."""
    if last is None:
        last = Judgement(World(world.node), Elections(Electorate()))
    before = last.world
    same_place = _surroundings(before) == _surroundings(world)
    same_members = before.electorate.members == world.electorate.members
    # Both are replaced when something in them changes, never changed.
    same_services = before.vips is world.vips and before.endpoints is world.endpoints
    if same_place and same_members and same_services:
        return last
    elections = last.elections
    if not same_members:
        elections = elections.after(world.electorate, world.vips)
    verdicts: Dict[Address, Verdict] = {}
    for address, vip in world.vips.items():
        verdict, decision = last.verdicts.get(address), _decide(vip, world, elections)
        is_same = verdict is not None and verdict.vip is vip and verdict.decision is decision
        if verdict is None or not (is_same and same_place) or vip.asks_endpoints:
            verdict = _judge(vip, decision, world)
        verdicts[address] = verdict
    return Judgement(world, elections, verdicts)


def _surroundings(world: World) -> Tuple[object, ...]:
    """What verdicts depend on besides the VIPs and the members."""
    barred = barrier(world.electorate)
    return world.segments, world.dummy, world.known, world.leaving, world.draining, barred


def _decide(vip: Vip, world: World, elections: Elections) -> Decision:
    if vip.pool_type is PoolType.REMOTE:
        return _EVERY_NODE
    barred = barrier(world.electorate)
    if barred is not None:
        return barred
    decision = elections.decide(vip.address)
    return (
        prefer(vip.address, decision, vip.near(world.endpoints)) if vip.has_affinity else decision
    )


def _judge(vip: Vip, decision: Decision, world: World) -> Verdict:
    if vip.address in world.known:
        return Verdict(vip, decision, Reason.NODE_ADDRESS)
    if world.leaving:
        return Verdict(vip, decision, Reason.LEAVING)
    if vip.pool_type is PoolType.REMOTE:
        return _judge_remote(vip, decision, world)
    if decision.winner is None:
        return Verdict(vip, decision, decision.reason)
    if decision.winner != world.node:
        gives_up = _gives_up(vip, decision.winner, world)
        return Verdict(vip, decision, Reason.NODE_DRAINING if gives_up else Reason.NOT_WINNER)
    place = place_for(vip.address, world.segments)
    if place is None:
        return Verdict(vip, decision, Reason.NO_LOCAL_INTERFACE)
    link, network = place
    prefixlen = network.prefixlen if vip.prefixlen is None else vip.prefixlen
    return Verdict(vip, decision, Reason.ELECTION_WON, link, prefixlen)


def _gives_up(vip: Vip, winner: str, world: World) -> bool:
    """Whether the node would have won, and could hold the address, if it were not draining."""
    if not world.draining or place_for(vip.address, world.segments) is None:
        return False
    return rank((winner, world.node), vip.address)[0] == world.node


def _judge_remote(vip: Vip, decision: Decision, world: World) -> Verdict:
    """A router spreads the traffic: every node has the address, whoever else has it.

    Without regard to the node's Lease, too: nobody would take over, and the router notices a node
    that is gone.
    """
    if world.draining:
        return Verdict(vip, decision, Reason.NODE_DRAINING)
    if not vip.everywhere and world.node not in vip.near(world.endpoints):
        return Verdict(vip, decision, Reason.NO_LOCAL_ENDPOINT)
    if world.dummy is None:
        return Verdict(vip, decision, Reason.NO_DUMMY_INTERFACE)
    prefixlen = vip.address.max_prefixlen if vip.prefixlen is None else vip.prefixlen
    return Verdict(vip, decision, Reason.ANNOUNCING_NON_LOCAL, world.dummy, prefixlen)
