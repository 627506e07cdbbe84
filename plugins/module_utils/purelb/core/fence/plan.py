# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the fence is to guard in one cycle: which addresses, on which interfaces, for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Mapping, Tuple

from ..model import Address
from ..node.plan import Plan
from ..node.snapshot import NodeSnapshot
from .hooks import Hook, announcing_links, wanted_programs
from .programs import FenceProgram

# The kernel removes an address up to a second after its lifetime, and may be asked to add it a
# moment after it was planned.
_LATE = 3.0
_NEVER = float("inf")


@dataclass(frozen=True)
class FencePlan:
    """The program of each hook and the addresses that it guards.

    `open_links`: names of interfaces that announce and cannot have programs. `until`: when nothing
    of these addresses can be left, also if the agent is dead; infinite: one of them is permanent.
    """

    programs: Mapping[Hook, FenceProgram]
    vips: FrozenSet[Address]
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
    ends = [held.expires_at for held in present]
    ends += [None if put.valid_lft is None else now + put.valid_lft for put in puts]
    return FencePlan(
        wanted_programs(announcing, snapshot.all_links, own),
        frozenset({held.address for held in present} | {put.address for put in puts}),
        tuple(
            link.name
            for link in snapshot.all_links
            if link.index in announcing and not link.is_ethernet
        ),
        max((_NEVER if end is None else end for end in ends), default=now) + _LATE,
    )
