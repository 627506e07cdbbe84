# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What a node should do to its interfaces: the difference between what should be and what is.

A plan is made from a judgement, one frozen World and the time; it touches nothing. It is made
again after whatever happens, so each plan also mends what an interrupted one left undone. It never
removes an address that is not recognisably a VIP, and on a real interface it never lets a VIP
outlive the node's right to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Tuple

from ..model import Address, InterfaceAddress, PoolType, Reason
from ..settings import AddressConfig
from .decisions import Decisions, VipDecision
from .snapshot import NodeSnapshot, Place

# The kernel counts an address's life in whole seconds: what differs by less is the same.
_SLACK = 1.0
# It looks for addresses to remove no more than once a second, so one may stay that much too long
# (ADDRCONF_TIMER_FUZZ_MAX, for IPv4 and IPv6 alike).
_KERNEL_LATE = 1.0


@dataclass(frozen=True)
class Put:
    """Add an address, or set its lifetimes anew; in whole seconds, None has no end."""

    link: int
    address: Address
    prefixlen: int
    valid_lft: Optional[int]
    preferred_lft: Optional[int]
    no_prefix_route: bool
    no_dad: bool
    is_new: bool

    @property
    def usable_at_once(self) -> bool:
        """IPv4 knows no duplicate address detection in the kernel."""
        return self.address.version == 4 or self.no_dad  # noqa: PLR2004 - the IP version


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
    wanted: FrozenSet[Place]
    # When a lifetime needs to be set anew although nothing happens; None: never.
    refresh_at: Optional[float]


def _wanted(verdict: VipDecision, world: NodeSnapshot, now: float) -> Optional[Put]:
    """The address as it should be now; None where the node is not to hold it."""
    config = world.config if verdict.vip.pool_type is PoolType.LOCAL else world.dummy_config
    lifetimes = _lifetimes(verdict, config, world, now)
    if verdict.link is None or lifetimes is None:
        return None
    valid, preferred = lifetimes
    return Put(
        link=verdict.link.index,
        address=verdict.vip.address,
        prefixlen=verdict.prefixlen,
        valid_lft=valid,
        preferred_lft=preferred,
        no_prefix_route=config.no_prefix_route,
        no_dad=verdict.vip.skip_dad,
        is_new=True,
    )


def _lifetimes(
    verdict: VipDecision, config: AddressConfig, world: NodeSnapshot, now: float
) -> Optional[Tuple[Optional[int], Optional[int]]]:
    """Valid and preferred lifetime; None if no whole second of the node's right is left."""
    valid = config.valid_lifetime or None
    if verdict.vip.pool_type is PoolType.LOCAL:
        left = int(world.right.ends_at - _KERNEL_LATE - now) if world.right else 0
        if left < 1:
            return None
        valid = min(left, valid or left)
    if valid is None:
        return None, None
    return valid, min(valid, config.preferred_lifetime or valid)


def _is_right(held: InterfaceAddress, want: Put) -> bool:
    return (
        held.prefixlen == want.prefixlen
        and held.no_prefix_route == want.no_prefix_route
        and not held.dad_failed
    )


def _is_fresh(held: InterfaceAddress, want: Put, world: NodeSnapshot, now: float) -> bool:
    """Whether a life is neither shorter than it should be nor longer than it may be.

    The kernel rounds what is left up to whole seconds, and a wanted life is rounded down.
    """
    if held.expires_at is None or want.valid_lft is None:
        return held.expires_at is None and want.valid_lft is None
    latest = now + want.valid_lft + _SLACK
    if world.right is not None and held.link not in world.dummies:
        latest = min(world.right.ends_at - _KERNEL_LATE, latest)
    # Half of what it should be is early enough where the right itself does not run out.
    earliest = now + want.valid_lft
    if held.link in world.dummies:
        earliest = now + want.valid_lft / 2 + _SLACK
    if not earliest <= held.expires_at < latest + _SLACK:
        return False
    # What is preferred ends as much earlier than what is valid as it is to.
    lead = held.expires_at - (held.preferred_until or now)
    return abs(lead - (want.valid_lft - (want.preferred_lft or 0))) <= 2 * _SLACK


def plan(judgement: Decisions, world: NodeSnapshot, *, now: float) -> Plan:
    """How the interfaces get from what is to what the judgement says should be."""
    wants: Dict[Place, Put] = {}
    for verdict in judgement.here:
        want = _wanted(verdict, world, now)
        if want is not None:
            wants[want.link, want.address] = want
    removes, puts = _difference(judgement, world, wants, now)
    finite = [now + want.valid_lft / 2 for want in wants.values() if want.valid_lft is not None]
    return Plan(removes, puts, frozenset(wants), min(finite, default=None))


def _difference(
    judgement: Decisions, world: NodeSnapshot, wants: Mapping[Place, Put], now: float
) -> Tuple[Tuple[Remove, ...], Tuple[Put, ...]]:
    """Removals and additions that turn what is on the interfaces into what is wanted."""
    removes: List[Remove] = []
    missing = dict(wants)
    puts: List[Put] = []
    for held in world.addresses:
        want = wants.get((held.link, held.address))
        if want is None:
            if world.is_vip(held):
                verdict = judgement.verdicts.get(held.address)
                removes.append(Remove(held, verdict.reason if verdict else Reason.NO_SERVICE))
        elif not _is_right(held, want):
            removes.append(Remove(held, judgement.verdicts[held.address].reason))
        else:
            del missing[held.link, held.address]
            if not _is_fresh(held, want, world, now):
                puts.append(replace(want, is_new=False))
    return tuple(removes), (*missing.values(), *puts)
