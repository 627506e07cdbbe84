# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Logs and counts each transition of a VIP once, by comparison with the previous decisions."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping

from purelb.core.election.election import MembershipView
from purelb.core.model import Address, Reason
from purelb.core.node.decisions import Decisions, VipDecision
from purelb_agent.node.metrics import ElectionMetrics
from purelb_agent.runtime import log

# Reasons that apply to all addresses at once. They are logged where they begin, not per address.
_OF_ALL = frozenset({Reason.LEASE_UNHEALTHY, Reason.LEASES_NOT_LISTED, Reason.LEAVING})


def _services(decision: VipDecision) -> str:
    return ",".join(str(key) for key in decision.vip.services)


class DecisionRecorder:
    """Turns decisions into log lines and metrics, at transitions only."""

    def __init__(self, node: str, metrics: ElectionMetrics) -> None:
        self._node = node
        self._metrics = metrics
        self._last: Decisions | None = None

    def record(self, decisions: Decisions) -> None:
        """Log and count what differs from the decisions of the previous cycle."""
        previous: Mapping[Address, VipDecision] = self._last.by_address if self._last else {}
        if decisions is self._last:
            return
        for address, decision in decisions.by_address.items():
            before = previous.get(address)
            if before is not decision:
                self._compare(before, decision)
        self._last = decisions
        self._count(decisions)

    def _compare(self, before: VipDecision | None, after: VipDecision) -> None:
        if after.election.affinity_ignored and not (before and before.election.affinity_ignored):
            self._metrics.count_fallback(after.vip.services)
        if before is None or (before.reason, before.election.winner) != (
            after.reason,
            after.election.winner,
        ):
            self._transition(before, after)

    def _transition(self, before: VipDecision | None, after: VipDecision) -> None:
        was_here = before is not None and before.is_here
        winner = after.election.winner or ""
        write = log.info if was_here or after.reason not in _OF_ALL else log.debug
        write(
            after.reason.value,
            ip=after.vip.address,
            service=_services(after),
            node=self._node,
            winner=winner,
            candidates=len(after.election.candidates),
        )
        self._count_election(before, after)

    def _count_election(self, before: VipDecision | None, after: VipDecision) -> None:
        address, services = str(after.vip.address), _services(after)
        winner = after.election.winner or ""
        old = (before.election.winner if before else None) or ""
        had_won = before is not None and before.reason is Reason.ELECTION_WON
        has_won = after.reason is Reason.ELECTION_WON
        if has_won and not had_won:
            self._metrics.count_win()
        if had_won and not has_won:
            self._metrics.count_loss()
            log.info("lostElection", ip=address, service=services, node=self._node, winner=winner)
        if before is not None and old != winner:
            self._metrics.count_winner_change(after.vip.address, services, old=old, new=winner)

    def _count(self, decisions: Decisions) -> None:
        vips = [decision.vip for decision in decisions.by_address.values()]
        self._metrics.retain(
            addresses=decisions.by_address,
            services={key for vip in vips if vip.has_affinity for key in vip.services},
        )
        self._metrics.show_announced(
            {decision.vip.address: (_services(decision), self._node) for decision in decisions.here}
        )
        self._count_subnets(decisions.snapshot.membership)

    def _count_subnets(self, membership: MembershipView) -> None:
        subnets: Tally[str] = Tally()
        # Formatting a subnet is the expensive part, and most nodes have the same subnets.
        for common, nodes in Tally(member.subnets for member in membership.members).items():
            subnets.update({str(subnet): nodes for subnet in common})
        self._metrics.show_candidates(subnets)
