# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The addresses of a node's kernel, and in which order it has them.

IPv4 addresses of one subnet and mask have a primary, the first one; the others go with it, unless
the interface promotes them. New primaries come after the others, and the newest IPv6 address first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from purelb.core.model import Address
from purelb.core.node.rtnetlink import IFA_F_SECONDARY
from simulation.node.messages import AddressHead

_V6 = 6
Place = tuple[int, Address]


@dataclass
class HeldAddress:
    """An address on an interface; its ends are what the monotonic clock shows then."""

    place: Place
    prefixlen: int
    head: AddressHead
    flags: int
    valid_until: float | None
    preferred_until: float | None
    # For how long its removal will be late, drawn for each lifetime.
    late: float = 0.0

    @property
    def is_secondary(self) -> bool:
        """Whether an IPv4 address is not the first one of its subnet."""
        return self.place[1].version != _V6 and bool(self.flags & IFA_F_SECONDARY)

    def is_of_subnet(self, other: HeldAddress) -> bool:
        """Whether an IPv4 address has the interface, subnet and mask of another one."""
        (link, address), (its_link, its_address) = self.place, other.place
        host_bits = address.max_prefixlen - self.prefixlen
        return (
            (link, address.version, self.prefixlen)
            == (its_link, its_address.version, other.prefixlen)
            and address.version != _V6
            and int(address) >> host_bits == int(its_address) >> host_bits
        )


def of_subnet(held: Mapping[Place, HeldAddress], one: HeldAddress) -> list[HeldAddress]:
    """Return the IPv4 addresses with the interface, subnet and mask of one, which may be held."""
    if one.place[1].version == _V6 or one.prefixlen == one.place[1].max_prefixlen:
        return []
    return [other for other in held.values() if other.is_of_subnet(one)]


def ordered(held: Mapping[Place, HeldAddress]) -> list[HeldAddress]:
    """Return all addresses, those of each interface and family as the kernel has them."""
    primaries: list[HeldAddress] = []
    secondaries: list[HeldAddress] = []
    newest: list[HeldAddress] = []
    for each in held.values():
        if each.place[1].version == _V6:
            newest.append(each)
        else:
            (secondaries if each.is_secondary else primaries).append(each)
    return [*primaries, *secondaries, *reversed(newest)]
