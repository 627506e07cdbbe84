# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What a node should do to its interfaces: the difference between what should be and what is.

A plan is made from one frozen `World` and the time; it touches nothing. It is made again after
whatever happens, so each plan also mends what an interrupted one left undone. It never removes an
address that is not recognisably a VIP, and it never lets a VIP outlive the node's right to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from .election import Decision, Electorate, Member, elect
from .interfaces import place_for, segments
from .leases import Right
from .model import (
    Address,
    InterfaceAddress,
    Link,
    Network,
    PoolType,
    Reason,
    Service,
    ServiceGroup,
)
from .settings import AddressConfig
from .vips import Vip, vips_of

# The kernel counts an address's life in whole seconds: what differs by less is the same.
_SLACK = 1.0


@dataclass(frozen=True)
class World:
    """All that a node's plan is made from.

    `links` are the interfaces that the node announces on; `addresses` are those on all its
    interfaces; `put` are the (link index, address) pairs that this process itself has put there;
    `own` are the addresses by which the Node object knows the node.
    """

    node: str
    services: Tuple[Service, ...] = ()
    groups: Tuple[ServiceGroup, ...] = ()
    electorate: Electorate = field(default_factory=Electorate)
    right: Optional[Right] = None
    links: Tuple[Link, ...] = ()
    addresses: Tuple[InterfaceAddress, ...] = ()
    put: frozenset[Tuple[int, Address]] = frozenset()
    own: frozenset[Address] = frozenset()
    config: AddressConfig = field(default_factory=AddressConfig)

    @cached_property
    def segments(self) -> Tuple[Tuple[Link, Network], ...]:
        """Where this node can announce, and what it therefore puts into its Lease."""
        return segments(self.links, self.addresses, is_vip=lambda held: is_vip(held, self))


@dataclass(frozen=True)
class Verdict:
    """What was decided for a VIP on this node, and why."""

    vip: Vip
    decision: Decision
    reason: Reason
    link: Optional[Link] = None


@dataclass(frozen=True)
class Put:
    """Add an address, or set its lifetimes anew. Lifetimes are whole seconds."""

    link: int
    address: Address
    prefixlen: int
    valid_lft: int
    preferred_lft: int
    no_prefix_route: bool
    no_dad: bool
    is_new: bool


@dataclass(frozen=True)
class Remove:
    """Take an address off an interface."""

    held: InterfaceAddress
    reason: Reason


@dataclass(frozen=True)
class Plan:
    """Removals come first: an address with a wrong mask goes before it comes back."""

    removes: Tuple[Remove, ...]
    puts: Tuple[Put, ...]
    verdicts: Mapping[Address, Verdict]
    wanted: frozenset[Tuple[int, Address]]
    # When a lifetime needs to be set anew although nothing happens; None: never.
    refresh_at: Optional[float]


def electorate_of(
    members: Sequence[Member], right: Optional[Right], *, listed: bool, now: float
) -> Electorate:
    """The electorate as a node sees it that may announce only while its right lasts."""
    healthy = right is not None and now < right.announce_until
    return Electorate(tuple(members), listed=listed, healthy=healthy)


def is_vip(held: InterfaceAddress, world: World) -> bool:
    """Whether an address on a real interface is one of ours, and so may be removed.

    Ours always have a lifetime: an address without end is the node's own, even where somebody wrote
    a pool around it, and so is one that the node is known by, even if it is leased by DHCP.
    """
    if held.expires_at is None or held.address in world.own:
        return False
    is_put = (held.link, held.address) in world.put
    return is_put or any(group.range_of(held.address) for group in world.groups)


def _judge(vip: Vip, world: World) -> Tuple[Verdict, Optional[int]]:
    """Decide about one VIP; with the mask for its address where this node is to hold it."""
    decision = elect(vip.address, world.electorate)
    if vip.pool_type is not PoolType.LOCAL:
        return Verdict(vip, decision, Reason.NOT_LOCAL), None
    if vip.address in world.own:
        return Verdict(vip, decision, Reason.NODE_ADDRESS), None
    if decision.winner is None:
        return Verdict(vip, decision, decision.reason), None
    if decision.winner != world.node:
        return Verdict(vip, decision, Reason.NOT_WINNER), None
    place = place_for(vip.address, world.segments)
    if place is None:
        return Verdict(vip, decision, Reason.NO_LOCAL_INTERFACE), None
    link, network = place
    verdict = Verdict(vip, decision, Reason.ELECTION_WON, link)
    return verdict, network.prefixlen if vip.prefixlen is None else vip.prefixlen


def _wanted(verdict: Verdict, prefixlen: int, world: World, now: float) -> Optional[Put]:
    """The address as it should be now; None if no whole second of the node's right is left."""
    if verdict.link is None or world.right is None:
        return None
    valid = int(world.right.ends_at - now)
    if world.config.valid_lifetime:
        valid = min(valid, world.config.valid_lifetime)
    if valid < 1:
        return None
    preferred = min(valid, world.config.preferred_lifetime or valid)
    return Put(
        link=verdict.link.index,
        address=verdict.vip.address,
        prefixlen=prefixlen,
        valid_lft=valid,
        preferred_lft=preferred,
        no_prefix_route=world.config.no_prefix_route,
        no_dad=verdict.vip.skip_dad,
        is_new=True,
    )


def _is_right(held: InterfaceAddress, want: Put) -> bool:
    return (
        held.prefixlen == want.prefixlen
        and held.no_prefix_route == want.no_prefix_route
        and not held.dad_failed
    )


def _is_fresh(held: InterfaceAddress, want: Put, right: Optional[Right], now: float) -> bool:
    """Whether a life is neither shorter than it should be nor longer than it may be.

    The kernel rounds what is left up to whole seconds, and a wanted life is rounded down.
    """
    if held.expires_at is None or held.preferred_until is None or right is None:
        return False
    latest = min(right.ends_at, now + want.valid_lft + _SLACK) + _SLACK
    is_valid = now + want.valid_lft - _SLACK <= held.expires_at < latest
    return is_valid and abs(held.preferred_until - now - want.preferred_lft) <= 2 * _SLACK


def plan(world: World, *, now: float) -> Plan:
    """Decide about every VIP, and how the interfaces get from what is to what should be."""
    verdicts: Dict[Address, Verdict] = {}
    wants: Dict[Tuple[int, Address], Put] = {}
    for vip in vips_of(world.services, world.groups):
        verdict, prefixlen = _judge(vip, world)
        verdicts[vip.address] = verdict
        want = None if prefixlen is None else _wanted(verdict, prefixlen, world, now)
        if want is not None:
            wants[want.link, want.address] = want
    removes, puts = _difference(world, wants, verdicts, now)
    finite = [now + want.valid_lft / 2 for want in wants.values()]
    return Plan(removes, puts, verdicts, frozenset(wants), min(finite, default=None))


def _difference(
    world: World,
    wants: Mapping[Tuple[int, Address], Put],
    verdicts: Mapping[Address, Verdict],
    now: float,
) -> Tuple[Tuple[Remove, ...], Tuple[Put, ...]]:
    """Removals and additions that turn what is on the interfaces into what is wanted."""
    removes: List[Remove] = []
    missing = dict(wants)
    puts: List[Put] = []
    for held in world.addresses:
        want = wants.get((held.link, held.address))
        if want is None:
            if is_vip(held, world):
                verdict = verdicts.get(held.address)
                removes.append(Remove(held, verdict.reason if verdict else Reason.NO_SERVICE))
        elif not _is_right(held, want):
            removes.append(Remove(held, verdicts[held.address].reason))
        else:
            del missing[held.link, held.address]
            if not _is_fresh(held, want, world.right, now):
                puts.append(replace(want, is_new=False))
    return tuple(removes), (*missing.values(), *puts)
