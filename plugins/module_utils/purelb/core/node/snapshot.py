# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""All that a node's decisions are made from, as one frozen record, and which addresses are ours.

The verdicts (see judge) and the plan (see plan) of one cycle read the same World.
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

# Where an address is: index of the link, address.
Place = Tuple[int, Address]


@dataclass(frozen=True)
class NodeSnapshot:
    """What a node knows in one cycle.

    `links` are the interfaces that it announces local addresses on, `dummy` the one for remote
    ones, `dummies` the indexes of all that are or were for remote ones. `addresses` are those on
    all interfaces; `put` is where this process itself has put some. `known` are the addresses by
    which Node objects know nodes. `endpoints` are the nodes with a ready endpoint of a Service.
    """

    node: str
    vips: Mapping[Address, Vip] = field(default_factory=dict)
    groups: Tuple[ServiceGroup, ...] = ()
    endpoints: Mapping[ServiceKey, FrozenSet[str]] = field(default_factory=dict)
    membership: MembershipView = field(default_factory=MembershipView)
    right: Optional[HoldDeadline] = None
    # By a taint of the own Node, or for good.
    draining: bool = False
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
        """Where this node can announce, and what it therefore puts into its Lease."""
        return segments(self.links, self.addresses, is_vip=self.is_vip)

    def is_vip(self, held: InterfaceAddress) -> bool:
        """Whether an address is one of ours, and so may be removed.

        On a real interface ours always have a lifetime: an address without end is the node's own,
        even where somebody wrote a pool around it, and so is one that a node is known by, even if
        it is leased by DHCP. On the dummy interface nobody but us has addresses from a pool.
        """
        is_on_dummy = held.link in self.dummies
        if held.address in self.known or (held.expires_at is None and not is_on_dummy):
            return False
        if (held.link, held.address) in self.put:
            return True
        # What another system says of its pool is no licence to clear a real interface of it.
        is_safe = is_on_dummy or held.address in self.vips
        return any(g.range_of(held.address) for g in self.groups if is_safe or g.source is None)


def electorate_of(
    members: Sequence[Member], right: Optional[HoldDeadline], *, listed: bool, now: float
) -> MembershipView:
    """The electorate as a node sees it that may announce only while its right lasts."""
    healthy = right is not None and now < right.announce_until
    return MembershipView(tuple(members), listed=listed, healthy=healthy)
