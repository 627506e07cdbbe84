# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of the fence."""

from __future__ import annotations

from purelb_agent.runtime.metrics import MetricFactory

_FENCE = "purelb_lbnodeagent_fence"


class FenceMetrics:
    """Whether the fence stands, and what it did."""

    def __init__(self, make: MetricFactory) -> None:
        self._active = make.gauge(
            f"{_FENCE}_active", "1 while the fence stands on all interfaces that need it."
        )
        self.drops = make.read_counter(
            f"{_FENCE}_dropped_frames_total", "Frames dropped because the node had no right."
        )
        self._repairs = make.counter(
            f"{_FENCE}_repairs_total", "Programs attached again that others removed or overtook."
        )

    def show(self, *, is_active: bool) -> None:
        """Show whether the fence stands."""
        self._active.set(is_active)

    def count_repair(self) -> None:
        """Count a program that was attached again."""
        self._repairs.inc()
