# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Metric of the election of a leader."""

from __future__ import annotations

from purelb_agent.runtime.metrics import MetricFactory


class LeaderMetrics:
    """Whether this replica leads."""

    def __init__(self, make: MetricFactory) -> None:
        self._is_leader = make.gauge(
            "purelb_allocator_is_leader",
            "1 while this replica is the one that allocates addresses.",
        )

    def show(self, *, is_leader: bool) -> None:
        """Show whether this replica leads."""
        self._is_leader.set(is_leader)
