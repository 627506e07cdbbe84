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
from typing import AbstractSet, FrozenSet, Iterable, Iterator, Optional

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
            is_first = self.seen is None
            looked_at = self._to_look_at(elected)
            found = {
                d.vip.address for d in looked_at if _was_elsewhere(d, elected, is_first=is_first)
            }
            elsewhere |= found
            # Those of which no Service is left.
            elsewhere -= elsewhere.difference(elected.by_address)
        rejected = {h.address for h in held if h.dad_failed} | duplicates
        if not rejected.isdisjoint(elsewhere):
            elsewhere -= rejected
        return Moves(elsewhere, elected)

    def _to_look_at(self, elected: Decisions) -> Iterator[VipDecision]:
        """Yield the decisions about local IPv6 addresses that are not as they were.

        Without a valid Lease of this node, they stay the same while the others elect.
        """
        # By identity: to look each address up would cost more than all the rest.
        seen = {id(decision) for decision in self.seen.by_address.values()} if self.seen else ()
        for decision in elected.by_address.values():
            vip, is_barred = decision.vip, decision.election.winner is None
            if not is_barred and id(decision) in seen:
                continue
            if vip.address.version == 6 and vip.pool_type is PoolType.LOCAL:  # noqa: PLR2004 - the IP version
                yield decision


def _was_elsewhere(decision: VipDecision, elected: Decisions, *, is_first: bool) -> bool:
    """Whether another node has an address, also by an election that this node has no part in.

    `is_first`: this node has seen no election before, so it goes by what the Services say.
    """
    node, winner = elected.snapshot.node, decision.election.winner
    if winner is None:
        winner = elected.elections.decision_of(decision.vip.address).winner
    if winner not in (None, node):
        return True
    return is_first and any(entry.node != node for entry in decision.vip.announcing)
