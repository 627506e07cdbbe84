# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The plan for a node's interfaces: the difference between the wanted and the actual addresses.

A plan is computed from the decisions, one frozen snapshot and the time; it changes nothing itself.
It is computed again after every event, so each plan also completes an interrupted one. It never
removes or replaces an address that is not recognisably ours. On a real interface, it never lets a
VIP outlive the node's hold deadline.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import (
    AbstractSet,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
)

from ..election.vips import Vip
from ..model import Address, InterfaceAddress, PoolType, Reason
from ..names import ADDRESS_PROTOCOL, FENCED_PROTOCOL
from .decisions import Decisions, VipDecision
from .left import Place
from .snapshot import NodeSnapshot

# The kernel counts lifetimes in whole seconds, so smaller differences do not matter.
_SLACK = 1.0
# Seconds for which an address may stay that the fence ends: refreshed about twice a minute. Not for
# longer, in case an agent is dead and another program takes the fence away.
_FENCED_LIFETIME = 40
# With this part of it left there is a cycle for the refresh, if there has been none before.
_REFRESH_BY = 1 / 3
# It removes expired addresses at most once a second, so one may stay that much too long
# (ADDRCONF_TIMER_FUZZ_MAX, for both IPv4 and IPv6).
_KERNEL_LATE = 1.0


@dataclass(frozen=True)
class Put:
    """Add an address or refresh its lifetimes, in whole seconds; None is permanent.

    `ends_by`: when its right ends, or that of the lifetime if the fence does not end it; None:
    never. `protocol`: its mark, see names.
    """

    link: int
    address: Address
    prefixlen: int
    valid_lft: Optional[int]
    preferred_lft: Optional[int]
    no_prefix_route: bool
    no_dad: bool
    is_new: bool
    ends_by: Optional[float] = None
    protocol: int = ADDRESS_PROTOCOL

    def sent_at(self, now: float) -> Optional[Put]:
        """Return what to send at this time; None if too little is left to hold it.

        A process can be stopped between its plan and this request, and others may have the address
        by now.
        """
        if self.ends_by is None or self.valid_lft is None:
            return self
        if self.protocol == FENCED_PROTOCOL:
            return self if now < self.ends_by else None
        left = int(self.ends_by - now)
        if left >= self.valid_lft:
            return self
        preferred = min(left, self.preferred_lft or 0)
        return replace(self, valid_lft=left, preferred_lft=preferred) if left >= 1 else None

    def may_last(self, now: float) -> bool:
        """Whether the address may still be there at this time, or is silent if it may not."""
        return self.ends_by is None or self.protocol == FENCED_PROTOCOL or now < self.ends_by

    @property
    def usable_at_once(self) -> bool:
        """Whether the kernel skips duplicate address detection; it does for IPv4."""
        return self.address.version == 4 or self.no_dad  # noqa: PLR2004 - the IP version


@dataclass(frozen=True)
class Remove:
    """Remove an address from an interface."""

    held: InterfaceAddress
    reason: Reason


@dataclass(frozen=True)
class Plan:
    """What to change; removals come first, as an address with a wrong mask is added again.

    `refresh_at`: when the next lifetime needs a refresh if nothing else happens; None: never.
    """

    removes: Tuple[Remove, ...]
    puts: Tuple[Put, ...]
    wanted: FrozenSet[Place]
    refresh_at: Optional[float]


def _wanted_address(
    decision: VipDecision, snapshot: NodeSnapshot, moved: AbstractSet[Address], now: float
) -> Optional[Put]:
    """Return the address as it should be now; None if the node may not hold it.

    Its right is ended by its lifetime, or by the fence.
    """
    is_local = decision.vip.pool_type is PoolType.LOCAL
    is_fenced = is_local and snapshot.is_fenced
    config = snapshot.config if is_local else snapshot.dummy_config
    ends_by = _ends_by(snapshot) if is_local else None
    valid = config.valid_lifetime or None
    if ends_by is not None:
        most = int(max(0.0, ends_by - now))
        if is_fenced:
            most = _FENCED_LIFETIME if now < ends_by else 0
        valid = min(most, valid or most)
    # With less than a second it would be gone at once.
    if decision.link is None or valid == 0:
        return None
    return Put(
        link=decision.link.index,
        address=decision.vip.address,
        prefixlen=_prefixlen(decision.vip),
        valid_lft=valid,
        preferred_lft=_preferred_lifetime(decision.vip.address, valid, config.preferred_lifetime),
        no_prefix_route=config.no_prefix_route,
        no_dad=decision.vip.skip_dad or decision.vip.address in moved,
        is_new=True,
        ends_by=ends_by,
        protocol=FENCED_PROTOCOL if is_fenced else ADDRESS_PROTOCOL,
    )


def _prefixlen(vip: Vip) -> int:
    """Return the mask of an address on its interface.

    On a real interface each stands alone. With the mask of a subnet, the kernel lets the first IPv4
    address of a subnet be the primary of all later ones, which go with it, and the route of a
    subnet can depend on a VIP. On the dummy interface routing daemons announce the mask.
    """
    if vip.pool_type is PoolType.LOCAL or vip.prefixlen is None:
        return vip.address.max_prefixlen
    return vip.prefixlen


def _ends_by(snapshot: NodeSnapshot) -> float:
    """Return when the fence ends addresses on real interfaces, or lifetimes must have ended."""
    deadline = snapshot.hold_deadline
    if deadline is None:
        return float("-inf")
    return deadline.silent_at if snapshot.is_fenced else deadline.hold_until - _KERNEL_LATE


def _preferred_lifetime(
    address: Address, valid: Optional[int], configured: Optional[int]
) -> Optional[int]:
    """Return for how long the node may choose an address as the source of its own traffic.

    Never for IPv6 by default: the hosts that get such traffic answer to the address, and
    so to another node once it has moved.
    """
    default = 0 if address.version == 6 else valid  # noqa: PLR2004 - the IP version
    if configured is None:
        return default
    if not configured:
        return 0
    return None if valid is None else min(valid, configured)


def _is_correct(held: InterfaceAddress, want: Put) -> bool:
    return (
        held.prefixlen == want.prefixlen
        and held.no_prefix_route == want.no_prefix_route
        and not held.dad_failed
    )


def _is_fresh(held: InterfaceAddress, want: Put, snapshot: NodeSnapshot, now: float) -> bool:
    """Whether a lifetime is neither shorter than wanted nor longer than allowed.

    The kernel rounds the remaining seconds up; the wanted lifetime is rounded down. On the dummy
    interface, an address of an agent without marks gets ours.
    """
    if snapshot.keeps_marks and held.protocol != want.protocol:
        return False
    is_never_preferred = want.preferred_lft == 0
    if is_never_preferred and not held.deprecated:
        return False
    if held.expires_at is None or want.valid_lft is None:
        is_preferred_as_wanted = held.deprecated == is_never_preferred
        return held.expires_at is None and want.valid_lft is None and is_preferred_as_wanted
    latest = now + want.valid_lft + _SLACK
    earliest = now + want.valid_lft
    if want.ends_by is None or want.protocol == FENCED_PROTOCOL:
        # No deadline applies, so half of the lifetime may pass.
        earliest = now + want.valid_lft / 2 + _SLACK
    else:
        latest = min(want.ends_by, latest)
    if not earliest <= held.expires_at < latest + _SLACK:
        return False
    if is_never_preferred:
        return True
    # The preferred lifetime ends before the valid one by the wanted difference.
    lead = held.expires_at - (held.preferred_until or now)
    return abs(lead - (want.valid_lft - (want.preferred_lft or 0))) <= 2 * _SLACK


def plan(
    decisions: Decisions,
    snapshot: NodeSnapshot,
    *,
    moved: AbstractSet[Address] = frozenset(),
    now: float,
) -> Plan:
    """Plan how the interfaces get from their actual state to the decided one.

    `moved`: addresses that are put without duplicate address detection, also if their group has it.
    """
    wants: Dict[Place, Put] = {}
    for decision in decisions.here:
        want = _wanted_address(decision, snapshot, moved, now)
        if want is not None:
            wants[want.link, want.address] = want
    removes, puts = _difference(decisions, snapshot, wants, now)
    refreshes = _refreshes(wants, puts, snapshot, now)
    return Plan(removes, puts, frozenset(wants), min(refreshes, default=None))


def _refreshes(
    wants: Mapping[Place, Put], puts: Iterable[Put], snapshot: NodeSnapshot, now: float
) -> Iterator[float]:
    """Yield when each lifetime needs a refresh; of those that the fence ends, many together."""
    sent = {(put.link, put.address) for put in puts}
    for place, want in wants.items():
        if want.valid_lft is None:
            continue
        if want.protocol != FENCED_PROTOCOL:
            yield now + want.valid_lft / 2
        elif place in sent:
            yield now + want.valid_lft * (1 - _REFRESH_BY)
    for held in snapshot.addresses:
        place = (held.link, held.address)
        if place in wants and place not in sent and held.protocol == FENCED_PROTOCOL:
            yield (held.expires_at or now) - _FENCED_LIFETIME * _REFRESH_BY


def _before_own(snapshot: NodeSnapshot) -> FrozenSet[Place]:
    """Return our IPv4 addresses that the kernel has before any of the node's own on a link.

    The first one is the source of traffic that no other address fits, and what programs such as
    kubelet take for the node's. The kernel appends a new one, so only a change of the own addresses
    (a new lease of DHCP) brings ours to the front. IPv6 is the other way round: a new one is the
    first, and ours are no source because they are deprecated.
    """
    real = (
        held
        for held in snapshot.addresses
        if held.address.version == 4 and held.link not in snapshot.dummies  # noqa: PLR2004 - the IP version
    )
    ours: Dict[int, List[Place]] = {}
    found: Dict[int, List[Place]] = {}
    for held in real:
        if snapshot.is_vip(held):
            ours.setdefault(held.link, []).append((held.link, held.address))
        elif not held.address.is_link_local:
            found.setdefault(held.link, list(ours.get(held.link, ())))
    return frozenset(place for places in found.values() for place in places)


def _difference(
    decisions: Decisions, snapshot: NodeSnapshot, wants: Mapping[Place, Put], now: float
) -> Tuple[Tuple[Remove, ...], Tuple[Put, ...]]:
    """Return the removals and additions that lead to the wanted addresses."""
    removes: List[Remove] = []
    missing = dict(wants)
    puts: List[Put] = []
    again = _before_own(snapshot) | snapshot.left
    for held in snapshot.addresses:
        want = wants.get((held.link, held.address))
        if want is None:
            if snapshot.is_vip(held):
                decision = decisions.by_address.get(held.address)
                removes.append(Remove(held, decision.reason if decision else Reason.NO_SERVICE))
        elif not _is_correct(held, want) or (held.link, held.address) in again:
            removes.append(Remove(held, decisions.by_address[held.address].reason))
        else:
            del missing[held.link, held.address]
            if not _is_fresh(held, want, snapshot, now):
                puts.append(replace(want, is_new=False))
    return tuple(removes), (*missing.values(), *puts)
