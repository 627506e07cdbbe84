# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the permissions of other nodes change in the decisions of a node.

Elections say which node tries to get an address. A node that wins one waits for the permissions
that it lacks; a node that holds one which another wins keeps it until it is asked for it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Dict, FrozenSet, Mapping, Optional

from ..holding.permissions import Permissions
from ..model import Address, PoolType, Reason
from .decisions import Decisions, VipDecision
from .interfaces import place_for

_ANOTHER_WINS = frozenset(
    {
        Reason.NOT_WINNER,
        Reason.NODE_DRAINING,
        Reason.NODE_EXCLUDED,
        Reason.SERVICE_PROXY_DOWN,
    }
)


@dataclass(frozen=True)
class HoldingFacts:
    """What decides which addresses a node holds.

    `held`: the addresses that it has on its interfaces. `epochs`: those of the other nodes that
    count; who has none is not asked, and what it wins is withdrawn at once. `is_deleted`: a program
    deleted this node's Lease, so who has not met it does not know of it, and asks for nothing.
    """

    elected: Decisions
    permissions: Permissions
    held: FrozenSet[Address]
    epochs: Mapping[str, str]
    may_add: bool
    is_deleted: bool = False

    def peers_of(self, address: Address) -> FrozenSet[str]:
        """Return the other nodes whose permission counts for an address."""
        snapshot = self.elected.snapshot
        covering = snapshot.membership.covering(address)
        return frozenset(p for p in covering if p != snapshot.node and p in self.epochs)

    def waits(self, address: Address) -> bool:
        """Whether this node may not have an address yet that it won."""
        if address in self.held:
            return self._is_denied(address)
        lacking = self.permissions.lacking(address, self.peers_of(address))
        return not self.may_add or bool(lacking)

    def kept(self, address: Address) -> Optional[VipDecision]:
        """Return the decision to keep an address that another node wins; None: it is not kept."""
        found, snapshot = self.elected.by_address.get(address), self.elected.snapshot
        if found is None or found.reason not in _ANOTHER_WINS:
            return None
        place = place_for(address, snapshot.segments)
        if place is None or address in snapshot.foreign:
            return None
        if found.election.winner not in self.epochs or self._is_denied(address):
            return None
        return replace(found, reason=Reason.KEPT, link=place[0])

    def _is_denied(self, address: Address) -> bool:
        peers = self.peers_of(address)
        if self.is_deleted and not peers <= self.permissions.pairs.keys():
            return True
        return self.permissions.is_denied(address, peers)


@dataclass(frozen=True)
class Holdings:
    """The decisions that a node acts on, and what it waits for.

    `missing`: addresses that it won and does not hold, each with the peers that count for it.
    `lacking`: of how many of these it lacks the permission of a peer, by its name.
    """

    decisions: Decisions
    missing: Mapping[Address, FrozenSet[str]] = field(default_factory=dict)
    lacking: Mapping[str, int] = field(default_factory=dict)


def decide_holdings(facts: HoldingFacts) -> Holdings:
    """Return what a node may do of what it was elected for, and what it keeps."""
    elected = facts.elected
    changed: Dict[Address, VipDecision] = {}
    missing: Dict[Address, FrozenSet[str]] = {}
    for decision in elected.here:
        if decision.vip.pool_type is PoolType.LOCAL and facts.waits(decision.vip.address):
            address = decision.vip.address
            missing[address] = facts.peers_of(address)
            changed[address] = VipDecision(
                decision.vip, decision.election, Reason.PERMISSION_MISSING
            )
    for address in facts.held:
        kept = facts.kept(address)
        if kept is not None:
            changed[address] = kept
    if not changed:
        return Holdings(elected)
    lacking = Counter(
        peer
        for address, peers in missing.items()
        for peer in facts.permissions.lacking(address, peers)
    )
    by_address = {**elected.by_address, **changed}
    return Holdings(replace(elected, by_address=by_address), missing, lacking)
