# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Metric of the systems that give out addresses in place of the cluster."""

from __future__ import annotations

from purelb_agent.runtime.metrics import MetricFactory


class SidecarMetrics:
    """Calls of sidecars."""

    def __init__(self, make: MetricFactory) -> None:
        self._rpcs = make.counter(
            "purelb_allocator_sidecar_rpc_total",
            "Calls of sidecars that allocate addresses, by outcome.",
            "method",
            "code",
        )

    def count(self, method: str, code: str) -> None:
        """Count a call by its gRPC method and status code."""
        self._rpcs.labels(method, code).inc()
