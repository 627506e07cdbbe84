# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of the own Lease and of outages of the API."""

from __future__ import annotations

from collections.abc import Mapping

from purelb_agent.runtime.metrics import LabelSets, MetricFactory

_ELECTION = "purelb_election"


class LeaseMetrics:
    """Renewals of the own Lease, and the outages that addresses were kept through."""

    def __init__(self, make: MetricFactory) -> None:
        self._healthy = make.gauge(
            f"{_ELECTION}_lease_healthy", "1 while the own Lease allows this node to announce."
        )
        self._holding = make.gauge(
            f"{_ELECTION}_outage_holding",
            "1 while addresses are kept because no node reaches the API.",
        )
        self._outages = make.counter(
            f"{_ELECTION}_outages_held_total",
            "Outages of the API that this node kept its addresses through.",
        )
        self._peer_answers = make.counter(
            f"{_ELECTION}_peer_answers_total",
            "Answers of peers to the question whether they can renew.",
            "answer",
        )
        self._lacking = LabelSets(
            make.gauge(
                f"{_ELECTION}_permissions_missing",
                "Addresses that this node won and waits for, by the node that denies them.",
                "peer",
            )
        )
        self._renewals = make.counter(
            f"{_ELECTION}_lease_renewals_total", "Successful renewals of the Lease."
        )
        self._failures = make.counter(
            f"{_ELECTION}_lease_renewal_failures_total", "Failed renewals of the Lease."
        )
        self._deadline_used = make.histogram(
            f"{_ELECTION}_lease_deadline_used_ratio",
            "Time between successful renewals of the Lease, as a fraction of the renew deadline.",
            buckets=(0.5, 0.75, 0.9, 1.0),
        )

    def show(self, *, is_healthy: bool, is_holding: bool) -> None:
        """Show whether this node may announce, and whether only because of an outage."""
        self._healthy.set(is_healthy)
        self._holding.set(is_holding)

    def count_renewal(self, deadline_used: float | None) -> None:
        """Count a successful renewal and the fraction of the deadline used; None without one."""
        self._renewals.inc()
        if deadline_used is not None:
            self._deadline_used.observe(deadline_used)

    def count_failure(self) -> None:
        """Count a failed renewal."""
        self._failures.inc()

    def show_lacking(self, by_peer: Mapping[str, int]) -> None:
        """Show of how many addresses the permission of each node is missing, and no other."""
        for peer, count in by_peer.items():
            self._lacking.of(peer, peer).set(count)
        self._lacking.retain(by_peer)

    def count_peer_answer(self, answer: str) -> None:
        """Count the answer of a peer."""
        self._peer_answers.labels(answer).inc()

    def count_outage(self) -> None:
        """Count an outage that addresses were kept through."""
        self._outages.inc()
