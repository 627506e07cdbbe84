# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Services that ask for addresses, and what they are given: what the tests of allocating share."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network

from purelb.core.addresses import parse_range
from purelb.core.allocation.allocate import decide, rebuild
from purelb.core.allocation.allocations import Allocations
from purelb.core.allocation.choice import Live
from purelb.core.allocation.groups import Groups
from purelb.core.model import Service, ServiceKey
from tests.support.core.snapshots import GROUP, VIP4, VIP6

GROUPS = Groups([GROUP])
FIRST = {4: VIP4, 6: VIP6}
NO_NODES = Live()
HTTP, DNS = ("TCP", 80), ("UDP", 53)
# Three ranges of each family, the n-th in a subnet of its own.
SUBNETS = {4: "10.0.{}.0/24", 6: "fd00:{}::/64"}
SPANS = {4: "10.0.{0}.10-10.0.{0}.11", 6: "fd00:{0}::10-fd00:{0}::11"}


def new(name="web", families=(4, 6), **more):
    return Service(ServiceKey("default", name), families=families, **more)


def taken(*addresses, by="other"):
    allocations = Allocations()
    allocations.hold(new(by), addresses, "default")
    return allocations


def asked(one, *others, groups=GROUPS, live=NO_NODES):
    """The outcome for one Service while others have what they show."""
    return decide(one, groups, rebuild([one, *others], groups), live)


def ranges(version):
    return tuple(
        parse_range(SPANS[version].format(n), SUBNETS[version].format(n)) for n in (1, 2, 3)
    )


def live(version, *numbers):
    subnets = frozenset(ip_network(SUBNETS[version].format(n)) for n in numbers)
    return Live(subnets, has_nodes=bool(numbers))


def given_before(one, assignment):
    """The Service as it is once the assignment has been written."""
    return replace(
        one,
        addresses=assignment.addresses,
        allocated_by_us=True,
        allocated_from=assignment.group,
        pool_type=assignment.pool_type,
        skip_dad=assignment.skip_dad,
    )
