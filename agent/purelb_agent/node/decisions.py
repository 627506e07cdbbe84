# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers the last judgement, to log and count each transition of a VIP once."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping

from purelb.core.election.election import MembershipView
from purelb.core.model import Address, Reason
from purelb.core.node.decisions import Decisions, VipDecision
from purelb_agent.node.metrics import ElectionMetrics
from purelb_agent.runtime import log

# What holds for all addresses at once is said once, where it begins, and not for each of them.
_OF_ALL = frozenset({Reason.LEASE_UNHEALTHY, Reason.LEASES_NOT_LISTED, Reason.LEAVING})


def _services(verdict: VipDecision) -> str:
    return ",".join(str(key) for key in verdict.vip.services)


class DecisionRecorder:
    """Turns judgements into log lines and metrics, at their transitions only."""

    def __init__(self, node: str, metrics: ElectionMetrics) -> None:
        self._node = node
        self._metrics = metrics
        self._last: Decisions | None = None

    def note(self, judgement: Decisions) -> None:
        """Take note of the judgement of one cycle."""
        before: Mapping[Address, VipDecision] = self._last.verdicts if self._last else {}
        if judgement is self._last:
            return
        for address, verdict in judgement.verdicts.items():
            known = before.get(address)
            if known is not verdict:
                self._compare(known, verdict)
        self._last = judgement
        self._count(judgement)

    def _compare(self, before: VipDecision | None, after: VipDecision) -> None:
        if after.decision.affinity_ignored and not (before and before.decision.affinity_ignored):
            self._metrics.count_fallback(after.vip.services)
        if before is None or (before.reason, before.decision.winner) != (
            after.reason,
            after.decision.winner,
        ):
            self._transition(before, after)

    def _transition(self, before: VipDecision | None, after: VipDecision) -> None:
        had = before is not None and before.is_here
        winner = after.decision.winner or ""
        say = log.info if had or after.reason not in _OF_ALL else log.debug
        say(
            after.reason.value,
            ip=after.vip.address,
            service=_services(after),
            node=self._node,
            winner=winner,
            candidates=len(after.decision.candidates),
        )
        self._count_election(before, after)

    def _count_election(self, before: VipDecision | None, after: VipDecision) -> None:
        address, services = str(after.vip.address), _services(after)
        winner = after.decision.winner or ""
        old = (before.decision.winner if before else None) or ""
        had = before is not None and before.reason is Reason.ELECTION_WON
        has = after.reason is Reason.ELECTION_WON
        if has and not had:
            self._metrics.count_win()
        if had and not has:
            self._metrics.count_loss()
            log.info("lostElection", ip=address, service=services, node=self._node, winner=winner)
        if before is not None and old != winner:
            self._metrics.count_winner_change(after.vip.address, services, old=old, new=winner)

    def _count(self, judgement: Decisions) -> None:
        vips = [verdict.vip for verdict in judgement.verdicts.values()]
        self._metrics.retain(
            addresses=judgement.verdicts,
            services={key for vip in vips if vip.has_affinity for key in vip.services},
        )
        self._metrics.show_announced(
            {verdict.vip.address: (_services(verdict), self._node) for verdict in judgement.here}
        )
        self._count_subnets(judgement.world.membership)

    def _count_subnets(self, membership: MembershipView) -> None:
        subnets: Tally[str] = Tally()
        # Writing a subnet out is what costs here, and most nodes are in the same ones.
        for alike, nodes in Tally(member.subnets for member in membership.members).items():
            subnets.update({str(subnet): nodes for subnet in alike})
        self._metrics.show_candidates(subnets)
