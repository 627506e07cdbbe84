# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the fence is to guard in one cycle: which addresses, on which interfaces, for how long."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import AbstractSet, FrozenSet, Mapping, Tuple

from ..model import Address, PoolType
from ..node.plan import Plan
from ..node.snapshot import NodeSnapshot
from .bpf import MOST_VIPS
from .hooks import Hook, announcing_links, wanted_programs
from .programs import ANYWHERE, ELSEWHERE, FenceProgram

# The kinds of interfaces whose frames leave by no other one that has a program.
_ALONE = frozenset({"", "veth", "bridge"})
# So long after a cycle there is another one, if the agent lives.
_LONGEST_CYCLE = 40.0
# The kernel removes an address up to a second after its lifetime, and may be asked to add it a
# moment after it was planned.
_LATE = 3.0
_NEVER = float("inf")


@dataclass(frozen=True)
class FencePlan:
    """The program of each hook and the addresses that it guards.

    `vips`: each with its value in the map, see programs: those that this node has or gets, and IPv4
    addresses that another node is to have, for which this one must not answer.
    `open_links`: names of interfaces that announce and cannot have programs. `until`: when nothing
    of these addresses can be left, also if the agent is dead; infinite: one of them is permanent.
    """

    programs: Mapping[Hook, FenceProgram]
    vips: Mapping[Address, int]
    open_links: Tuple[str, ...]
    until: float


def plan_fence(snapshot: NodeSnapshot, planned: Plan, *, now: float) -> FencePlan:
    """Return what the fence is to guard while a plan is carried out, and after it.

    Remote addresses are not guarded: they stand on the dummy interface, and routes lead to them.
    """
    present = [
        held
        for held in snapshot.addresses
        if held.link not in snapshot.dummies and snapshot.is_vip(held)
    ]
    puts = [put for put in planned.puts if put.link not in snapshot.dummies]
    selected = {link.index for link in snapshot.links} | {held.link for held in present}
    own = [held for held in snapshot.addresses if not snapshot.is_vip(held)]
    announcing = announcing_links(selected, snapshot.all_links, own)
    ends = [_NEVER if held.expires_at is None else held.expires_at for held in present]
    ends += [_NEVER if put.valid_lft is None else now + put.valid_lft for put in puts]
    alone = {k.index for k in snapshot.all_links if k.kind in _ALONE}
    places = [(held.link, held.address) for held in present]
    places += [(put.link, put.address) for put in puts]
    vips = {address: link if link in alone else ANYWHERE for link, address in places}
    return FencePlan(
        wanted_programs(announcing, snapshot.all_links, own),
        {**dict.fromkeys(_elsewhere(snapshot, vips.keys()), ELSEWHERE), **vips},
        tuple(
            link.name
            for link in snapshot.all_links
            if link.index in announcing and not link.is_ethernet
        ),
        max([now + _LONGEST_CYCLE, *ends]) + _LATE,
    )


def _elsewhere(snapshot: NodeSnapshot, vips: AbstractSet[Address]) -> FrozenSet[Address]:
    """Return the IPv4 addresses for which only another node is to answer ARP.

    The kernel answers on every interface for what is on any of them, as for the copies of a service
    proxy (kube-ipvs0). Not what the node has as its own, also if a Service has it. IPv6 is answered
    on its own interface only.
    """
    allocated = (
        address
        for address, vip in snapshot.vips.items()
        if address.version == 4 and vip.pool_type is PoolType.LOCAL  # noqa: PLR2004 - the IP version
    )
    never = vips | snapshot.foreign.keys() | snapshot.known
    return frozenset(islice((a for a in allocated if a not in never), MOST_VIPS - len(vips)))
