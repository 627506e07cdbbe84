# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The input of one decision cycle as one frozen record, and which addresses are VIPs.

The decisions (see decisions) and the plan (see plan) of one cycle read the same snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import FrozenSet, Mapping, Optional, Sequence, Tuple

from ..election.election import Member, MembershipView
from ..election.leases import HoldDeadline
from ..election.vips import Vip
from ..model import Address, InterfaceAddress, Link, Network, ServiceGroup, ServiceKey
from ..settings import ON_DUMMY, AddressConfig
from .interfaces import segments

# An address on an interface: index of the link, address.
Place = Tuple[int, Address]


@dataclass(frozen=True)
class NodeSnapshot:
    """What a node knows in one cycle.

    `endpoints`: nodes with a ready endpoint, by Service. `hold_deadline`: until when the node may
    hold local addresses; None without a valid Lease. `links`: the interfaces on which it announces
    local addresses. `dummy`: the interface for remote addresses; `dummies`: indexes of all
    interfaces that are or were used for them. `addresses`: the addresses on all interfaces; `put`:
    those that this process added. `known`: the addresses in the status of Node objects.
    """

    node: str
    vips: Mapping[Address, Vip] = field(default_factory=dict)
    groups: Tuple[ServiceGroup, ...] = ()
    endpoints: Mapping[ServiceKey, FrozenSet[str]] = field(default_factory=dict)
    membership: MembershipView = field(default_factory=MembershipView)
    hold_deadline: Optional[HoldDeadline] = None
    # The key of the own Node's draining taint; empty: none.
    taint: str = ""
    # The agent shuts down for good.
    leaving: bool = False
    links: Tuple[Link, ...] = ()
    dummy: Optional[Link] = None
    dummies: FrozenSet[int] = frozenset()
    addresses: Tuple[InterfaceAddress, ...] = ()
    put: FrozenSet[Place] = frozenset()
    known: FrozenSet[Address] = frozenset()
    config: AddressConfig = field(default_factory=AddressConfig)
    dummy_config: AddressConfig = ON_DUMMY

    @cached_property
    def segments(self) -> Tuple[Tuple[Link, Network], ...]:
        """Subnets in which this node can announce, and which it therefore writes into its Lease."""
        return segments(self.links, self.addresses, is_vip=self.is_vip)

    def is_vip(self, held: InterfaceAddress) -> bool:
        """Whether an address is a VIP, and may therefore be removed.

        On a real interface a VIP always has a lifetime. A permanent address is the node's own, even
        if a pool contains it; so is an address in the status of a Node, even if DHCP leased it. On
        the dummy interface, every address from a pool is a VIP.
        """
        is_on_dummy = held.link in self.dummies
        if held.address in self.known or (held.expires_at is None and not is_on_dummy):
            return False
        if (held.link, held.address) in self.put:
            return True
        # On a real interface, the ranges of an external IPAM do not prove that an address is a VIP.
        is_safe = is_on_dummy or held.address in self.vips
        return any(g.range_of(held.address) for g in self.groups if is_safe or g.source is None)


def membership_view_of(
    members: Sequence[Member], deadline: Optional[HoldDeadline], *, listed: bool, now: float
) -> MembershipView:
    """Return the members as a node sees them; it is healthy until its deadline to announce."""
    healthy = deadline is not None and now < deadline.announce_until
    return MembershipView(tuple(members), listed=listed, healthy=healthy)
