# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Node snapshots for tests of the plan: one node in one subnet of each family."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

from purelb.core.addresses import parse_range
from purelb.core.election.election import MembershipView
from purelb.core.election.members import Member
from purelb.core.election.vips import VipIndex
from purelb.core.holding.deadline import HoldDeadline
from purelb.core.model import InterfaceAddress, Link, PoolType, Service, ServiceGroup, ServiceKey
from purelb.core.names import ADDRESS_PROTOCOL
from purelb.core.node.decisions import decide_vips
from purelb.core.node.plan import plan
from purelb.core.node.snapshot import NodeSnapshot

NET4, NET6 = ip_network("172.28.1.0/24"), ip_network("fd28::/64")
VIP4, VIP6 = ip_address("172.28.1.220"), ip_address("fd28::220")
GROUP = ServiceGroup(
    "default",
    ranges=(
        parse_range("172.28.1.220-172.28.1.229", str(NET4)),
        parse_range("fd28::220-fd28::229", str(NET6)),
    ),
)
# Of the same addresses, announced by every node.
REMOTE_GROUP = replace(GROUP, pool_type=PoolType.REMOTE)
ETH0 = Link(2, "eth0", b"\x02\0\0\0\0\x01", default_metrics={4: 0, 6: 1024})
DUMMY = Link(9, "kube-lb0")
OWN4 = InterfaceAddress(2, ip_address("172.28.1.11"), 24)
OWN6 = InterfaceAddress(2, ip_address("fd28::11"), 64)
NOW = 100.0


def service(name="web", addresses=(VIP4, VIP6), **more):
    made = Service(
        ServiceKey("default", name),
        families=(4, 6),
        addresses=tuple(addresses),
        allocated_by_us=True,
        allocated_from="default",
        pool_type=PoolType.LOCAL,
    )
    return replace(made, **more)


def snapshot(*services, node="n1", members=("n1",), held=(), hold_until=NOW + 11, **more):
    """A snapshot in which the members share both subnets and the node's own Lease is valid.

    Addresses get a lifetime of 10 s, one less than the Lease, as the kernel may be that late.
    """
    groups = more.pop("groups", (GROUP,))
    index = VipIndex()
    index.regroup(groups)
    index.change({item.key: item for item in services})
    made = NodeSnapshot(
        node=node,
        vips=index.vips,
        groups=groups,
        membership=MembershipView(tuple(Member(n, (NET4, NET6)) for n in members)),
        hold_deadline=HoldDeadline(hold_until - 3, hold_until),
        links=(ETH0,),
        addresses=(OWN4, OWN6, *held),
    )
    return replace(made, **more)


def planned(made):
    return plan(decide_vips(made), made, now=NOW)


def on_eth0(address, *, lifetime=10.0, prefixlen=None, **more):
    """An address as an agent puts it; `protocol=0` is one that it did not put."""
    expires = None if lifetime is None else NOW + lifetime
    mark = {"protocol": ADDRESS_PROTOCOL}
    if address.version == 4:
        preferred = {"preferred_until": expires}
    else:
        preferred = {"preferred_until": NOW, "deprecated": True}
    more = {**preferred, "no_prefix_route": True, **mark, **more}
    return InterfaceAddress(2, address, prefixlen or address.max_prefixlen, expires, **more)


def on_dummy(address, **more):
    """A remote address as an agent puts it: with the mask of its pool, for ever."""
    mask = 24 if address.version == 4 else 64
    more = {"lifetime": None, "no_prefix_route": False, **more}
    return replace(on_eth0(address, prefixlen=mask, **more), link=DUMMY.index)
