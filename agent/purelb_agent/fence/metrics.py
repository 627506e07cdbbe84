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
        self._drops = make.counter(
            f"{_FENCE}_dropped_frames_total", "Frames dropped because the node had no right."
        )
        self._repairs = make.counter(
            f"{_FENCE}_repairs_total", "Programs attached again that others removed or overtook."
        )
        self._counted = 0

    def show(self, *, is_active: bool, drops: int) -> None:
        """Show whether the fence stands, and how many frames it dropped since the start."""
        self._active.set(is_active)
        self._drops.inc(drops - self._counted)
        self._counted = drops

    def count_repair(self) -> None:
        """Count a program that was attached again."""
        self._repairs.inc()
