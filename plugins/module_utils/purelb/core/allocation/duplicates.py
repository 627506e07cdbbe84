# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Addresses that hosts outside the cluster have: the agents find them, the allocator avoids them.

An agent probes each address that it has put on an interface. It lists in its Lease the addresses
that another host answers for. No Service is given one of these unless it asks for that very
address, and a Service that has just been given one gets another. The list ends with the agent, or
an hour after the last answer.

What answers for everything, or an agent that lies, must not use up a pool: of each range a
quarter is set aside at most, and never so much that no other address is free.
"""

from __future__ import annotations

from typing import Collection, Dict, Iterable, Mapping

from ..model import Address, AddressRange, Lease
from .allocations import Allocations

# A Service that has had its address for longer keeps it: clients know it by then.
NEW_FOR = 60.0
# Of a range, one of so many addresses is set aside at most; of a smaller one, one.
_ONE_OF = 4


def listed_duplicates(leases: Iterable[Lease]) -> Dict[Address, str]:
    """Return the addresses that these Leases list, each with the first of their nodes.

    A node speaks of its own subnets only.
    """
    found: Dict[Address, str] = {}
    for lease in leases:
        for address in lease.duplicates:
            if any(address in subnet for subnet in lease.subnets):
                found.setdefault(address, lease.node)
    return found


def set_aside(
    found: Mapping[Address, str],
    ranges: Iterable[AddressRange],
    taken: Allocations,
    before: Collection[Address],
) -> Dict[Address, str]:
    """Return which of the addresses that other hosts have are set aside.

    Those that have been set aside `before` come first, then the lowest. An address of a Service is
    set aside only if there is one for it that no other host has.
    """
    chosen: Dict[Address, str] = {}
    for pool_range in ranges if found else ():
        here = [address for address in found if address in pool_range]
        most, free = max(1, pool_range.size // _ONE_OF), taken.spare(pool_range)
        good = free - sum(not taken.is_in_use(address) for address in here)
        for address in sorted(here, key=lambda a: (a not in before, int(a)))[:most]:
            if taken.is_in_use(address):
                is_spared, good = good > 0, good - 1
            else:
                is_spared, free = free > 1, free - 1
            if is_spared:
                chosen[address] = found[address]
    return chosen
