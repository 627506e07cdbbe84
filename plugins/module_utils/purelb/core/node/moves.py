# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which addresses move inside the cluster, and so are usable at once where they are put.

Duplicate address detection (RFC 4862, section 5.4) takes a second or two, in which no node answers.
It finds hosts that had an address before the cluster; one that another node had is the cluster's
already. While an address is in use, our own probes find such hosts, as they do for IPv4, where the
kernel detects nothing (see conflicts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, FrozenSet, Iterable, Iterator, Optional, Set

from ..model import Address, InterfaceAddress, PoolType
from .decisions import Decisions, VipDecision


@dataclass(frozen=True)
class Moves:
    """IPv6 addresses that other nodes have had, as far as this node knows.

    `elsewhere`: those that another node won or announced, and of which no duplicate is known since.
    `seen`: the decisions that these are from.
    """

    elsewhere: FrozenSet[Address] = frozenset()
    seen: Optional[Decisions] = None

    def after(
        self,
        elected: Decisions,
        held: Iterable[InterfaceAddress],
        duplicates: AbstractSet[Address],
    ) -> Moves:
        """Return the state after an election.

        `held`: the addresses on the node's interfaces, with those whose detection failed.
        `duplicates`: addresses that the nodes found on other hosts; they are detected again.
        """
        elsewhere = self.elsewhere
        if elected is not self.seen:
            found = {d.vip.address for d in self._to_look_at(elected) if _moves(d, elected)}
            if self.seen is None:
                found |= _announced_elsewhere(elected)
            elsewhere |= found
            elsewhere -= elsewhere.difference(elected.by_address)
        rejected = {h.address for h in held if h.dad_failed} | duplicates
        if not rejected.isdisjoint(elsewhere):
            elsewhere -= rejected
        return Moves(elsewhere, elected)

    def _to_look_at(self, elected: Decisions) -> Iterator[VipDecision]:
        """Yield the decisions about IPv6 addresses that are not as they were.

        Without a valid Lease of this node, they stay the same while the others elect.
        """
        # By identity: to look each address up would cost more than all the rest.
        seen = {id(decision) for decision in self.seen.by_address.values()} if self.seen else ()
        for decision in elected.by_address.values():
            is_new = decision.election.winner is None or id(decision) not in seen
            if is_new and decision.vip.address.version == 6:  # noqa: PLR2004 - the IP version
                yield decision


def _announced_elsewhere(elected: Decisions) -> Set[Address]:
    """Return the addresses that another node announces by their Services."""
    local = (d.vip for d in elected.by_address.values() if d.vip.pool_type is PoolType.LOCAL)
    node = elected.snapshot.node
    return {
        vip.address
        for vip in local
        if vip.address.version == 6 and any(entry.node != node for entry in vip.announcing)  # noqa: PLR2004 - the IP version
    }


def _moves(decision: VipDecision, elected: Decisions) -> bool:
    """Whether another node has an address, also by an election that this node has no part in."""
    if decision.vip.pool_type is not PoolType.LOCAL:
        return False
    winner = decision.election.winner
    if winner is None:
        winner = elected.elections.decision_of(decision.vip.address).winner
    return winner not in (None, elected.snapshot.node)
