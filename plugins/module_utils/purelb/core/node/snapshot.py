# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The input of one decision cycle as one frozen record, and which addresses are VIPs.

The decisions (see decisions) and the plan (see plan) of one cycle read the same snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import FrozenSet, Iterable, Mapping, Optional, Sequence, Tuple

from ..election.election import MembershipView
from ..election.members import Member, Standing
from ..election.vips import Vip
from ..holding.deadline import HoldDeadline
from ..model import Address, InterfaceAddress, Link, Network, ServiceGroup, ServiceKey
from ..names import OUR_PROTOCOLS, PROXY_INTERFACES
from ..settings import ON_DUMMY, AddressConfig
from .interfaces import lease_subnets, segments
from .left import Opened, Place, left_over


@dataclass(frozen=True)
class NodeSnapshot:
    """What a node knows in one cycle.

    `endpoints`: nodes with a ready endpoint, by Service. `hold_deadline`: until when the node may
    hold local addresses; None without a valid Lease. `links`: the interfaces on which it announces
    local addresses. `dummy`: the interface for remote addresses; `dummies`: indexes of all
    interfaces that are or were used for them. `all_links`: all interfaces of the node. `addresses`:
    the addresses on them; `put`: those that this process added; `keeps_marks`: whether the kernel
    says who put them there. `known`: the Nodes' own addresses, by their status. `lost`: segments
    that still count although the last read lacks them. `is_fenced`: the fence ends the right
    exactly; `opened`: whether it has been open.
    """

    node: str
    vips: Mapping[Address, Vip] = field(default_factory=dict)
    groups: Tuple[ServiceGroup, ...] = ()
    endpoints: Mapping[ServiceKey, FrozenSet[str]] = field(default_factory=dict)
    membership: MembershipView = field(default_factory=MembershipView)
    hold_deadline: Optional[HoldDeadline] = None
    # The key of the own Node's draining taint; empty: none.
    taint: str = ""
    # How well this node is suited for addresses, for that reason or another one.
    standing: Standing = Standing.FIRST
    # The agent shuts down for good.
    leaving: bool = False
    links: Tuple[Link, ...] = ()
    dummy: Optional[Link] = None
    dummies: FrozenSet[int] = frozenset()
    all_links: Tuple[Link, ...] = ()
    addresses: Tuple[InterfaceAddress, ...] = ()
    put: FrozenSet[Place] = frozenset()
    keeps_marks: bool = True
    known: FrozenSet[Address] = frozenset()
    lost: Tuple[Tuple[Link, Network], ...] = ()
    is_fenced: bool = False
    opened: Opened = Opened.NOT_YET
    config: AddressConfig = field(default_factory=AddressConfig)
    dummy_config: AddressConfig = ON_DUMMY

    @cached_property
    def segments(self) -> Tuple[Tuple[Link, Network], ...]:
        """Subnets in which this node can announce, and which it therefore writes into its Lease."""
        return segments(self.links, self.addresses, is_vip=self.is_vip) + self.lost

    @cached_property
    def deprecated(self) -> FrozenSet[Network]:
        """Subnets in which this node has deprecated addresses only.

        The network replaces them: their hosts begin no new connections from these addresses, and
        they end with their valid lifetime (RFC 4862, section 5.5.4).
        """
        if not any(held.deprecated and not self.is_vip(held) for held in self.addresses):
            return frozenset()
        preferred = [held for held in self.addresses if not held.deprecated]
        lasting = segments(self.links, preferred, is_vip=self.is_vip)
        present = segments(self.links, self.addresses, is_vip=self.is_vip)
        return frozenset(lease_subnets(present)) - frozenset(lease_subnets(lasting))

    @cached_property
    def left(self) -> FrozenSet[Place]:
        """Our addresses that were put there by a right that has ended."""
        real = (held for held in self.addresses if held.link not in self.dummies)
        return left_over((held for held in real if self.is_vip(held)), self.opened)

    @cached_property
    def gateways(self) -> FrozenSet[Address]:
        """The gateways of this node's default routes, which are never VIPs."""
        return frozenset(gateway for link in self.all_links for gateway in link.gateways)

    @cached_property
    def foreign(self) -> Mapping[Address, str]:
        """VIPs that this node has and that are not ours, each with the name of the interface.

        Such an address is the node's own or another program's, so it is neither put there again nor
        on another interface. A service proxy's copy on its own interface does not count.
        """
        held = [h for h in self.addresses if h.address in self.vips and not self.is_vip(h)]
        names = {link.index: link.name for link in self.all_links} if held else {}
        found = ((h.address, names.get(h.link, str(h.link))) for h in held)
        return {address: name for address, name in found if name not in PROXY_INTERFACES}

    def is_vip(self, held: InterfaceAddress) -> bool:
        """Whether an agent of ours put an address there; no other is ever removed or refreshed.

        It carries our mark. One without a mark is never ours if a Node has it. On the dummy
        interface, every other unmarked address from a pool is ours.

        On a real interface an unmarked one is not ours, even if it has a lifetime and no prefix
        route: so has one of DHCP with NetworkManager. What agents without marks left there ends by
        itself, as did the node's right to it. Only a kernel without marks makes us guess: ours is
        what this process put, or what has a lifetime, no prefix route and the mask of one address
        or, as agents before gave it, of its pool.
        """
        if self.is_put(held):
            return True
        if held.protocol or held.address in self.known:
            return False
        if held.link in self.dummies:
            return any(group.range_of(held.address) for group in self.groups)
        if self.keeps_marks or held.expires_at is None:
            return False
        return any(self._is_left_of(held, group) for group in self.groups)

    def is_put(self, held: InterfaceAddress) -> bool:
        """Whether an agent of ours put an address there for certain.

        By the mark; on a kernel without marks this process put it. There, the same address with
        another mask or without a lifetime is someone else's.
        """
        if held.protocol or self.keeps_marks:
            return held.protocol in OUR_PROTOCOLS
        is_alone = held.prefixlen == held.address.max_prefixlen and held.expires_at is not None
        return (held.link in self.dummies or is_alone) and (held.link, held.address) in self.put

    def _is_left_of(self, held: InterfaceAddress, group: ServiceGroup) -> bool:
        """Whether an address on a real interface looks like one that an agent left there."""
        # The ranges of an external IPAM do not prove that an address is a VIP.
        is_safe = group.source is None or held.address in self.vips
        return (
            is_safe
            and held.no_prefix_route
            and group.range_of(held.address) is not None
            and held.prefixlen in {held.address.max_prefixlen, group.prefixlen_of(held.address)}
        )


def vips_on(addresses: Iterable[InterfaceAddress], snapshot: NodeSnapshot) -> FrozenSet[Address]:
    """Return the VIPs among addresses that this node has for all of its subnet."""
    return frozenset(
        held.address
        for held in addresses
        if held.link not in snapshot.dummies and snapshot.is_vip(held)
    )


def shows_marks(addresses: Iterable[InterfaceAddress]) -> bool:
    """Whether the kernel says who put addresses there: from 5.18 on.

    There it marks ::1 itself. Where IPv6 is switched off, our first put shows it.
    """
    return any(held.protocol for held in addresses)


def membership_view_of(
    members: Sequence[Member], deadline: Optional[HoldDeadline], *, listed: bool, now: float
) -> MembershipView:
    """Return the members as a node sees them; it is healthy until its deadline to announce."""
    healthy = deadline is not None and now < deadline.announce_until
    return MembershipView(tuple(members), listed=listed, healthy=healthy)
