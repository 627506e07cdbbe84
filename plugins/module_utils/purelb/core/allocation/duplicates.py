# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Addresses that hosts outside the cluster have: the agents find them, the allocator avoids them.

An agent probes each address that it has put on an interface. It lists in its Lease the addresses
that another host answers for. No Service is given one of these unless it asks for that very
address, and a Service that has just been given one gets another. The list ends with the agent, or
an hour after the last answer.
"""

from __future__ import annotations

from typing import Dict, Iterable

from ..model import Address, Lease

# A Service that has had its address for longer keeps it: clients know it by then.
NEW_FOR = 60.0


def listed_duplicates(live: Iterable[Lease]) -> Dict[Address, str]:
    """Return the addresses that live Leases list, each with the first of their nodes.

    A node speaks of its own subnets only.
    """
    found: Dict[Address, str] = {}
    for lease in live:
        for address in lease.duplicates:
            if any(address in subnet for subnet in lease.subnets):
                found.setdefault(address, lease.node)
    return found
