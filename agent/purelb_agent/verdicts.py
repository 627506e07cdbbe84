# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers the last verdict on each VIP, to log and count each transition once."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.election import Electorate
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.model import (
    Address,
    Reason,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.plan import Verdict

from . import log
from .metrics import NodeMetrics


def _services(verdict: Verdict) -> str:
    return ",".join(str(key) for key in verdict.vip.services)


class VerdictLog:
    """Turns verdicts into log lines and metrics, at their transitions only."""

    def __init__(self, node: str, metrics: NodeMetrics) -> None:
        self._node = node
        self._metrics = metrics
        self._last: dict[Address, Verdict] = {}

    def note(self, verdicts: Iterable[Verdict], electorate: Electorate) -> None:
        """Take note of all verdicts of one cycle."""
        current = {verdict.vip.address: verdict for verdict in verdicts}
        for address, verdict in current.items():
            before = self._last.get(address)
            if before is None or (before.reason, before.decision.winner) != (
                verdict.reason,
                verdict.decision.winner,
            ):
                self._transition(before, verdict)
        self._last = current
        self._count(electorate)

    def _transition(self, before: Verdict | None, after: Verdict) -> None:
        address, winner = str(after.vip.address), after.decision.winner or ""
        old = (before.decision.winner if before else None) or ""
        had = before is not None and before.reason is Reason.ELECTION_WON
        has = after.reason is Reason.ELECTION_WON
        log.info(
            after.reason.value,
            ip=address,
            service=_services(after),
            winner=winner,
            candidates=len(after.decision.candidates),
        )
        if has and not had:
            self._metrics.election_wins.inc()
        if had and not has:
            self._metrics.election_losses.inc()
            log.info("lostElection", ip=address, service=_services(after), winner=winner)
        if before is not None and old != winner:
            series = self._metrics.winner_changes.of(
                address, _services(after), address, old, winner
            )
            series.inc()

    def _count(self, electorate: Electorate) -> None:
        metrics = self._metrics
        metrics.winner_changes.retain(map(str, self._last))
        held = [v for v in self._last.values() if v.reason is Reason.ELECTION_WON]
        for verdict in held:
            address = str(verdict.vip.address)
            metrics.announced.of(address, _services(verdict), self._node, address).set(1)
        metrics.announced.retain(str(verdict.vip.address) for verdict in held)
        subnets = Tally(str(subnet) for member in electorate.members for subnet in member.subnets)
        for subnet, nodes in subnets.items():
            metrics.candidates.of(subnet, subnet).set(nodes)
        metrics.candidates.retain(subnets)
        metrics.subnet_count.set(len(subnets))
