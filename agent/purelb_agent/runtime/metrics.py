# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Primitives of Prometheus metrics; the metrics themselves are next to their owners."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from typing import Generic, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

M = TypeVar("M", bound=Counter | Gauge)


class MetricFactory:
    """Makes metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Return a new counter with this help text."""
        return Counter(name, text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Return a new gauge with this help text."""
        return Gauge(name, text, labels, registry=self._registry)

    def histogram(self, name: str, text: str, *, buckets: Sequence[float]) -> Histogram:
        """Return a new histogram with this help text."""
        return Histogram(name, text, buckets=buckets, registry=self._registry)


class LabelSets(Generic[M]):
    """The series of one metric that has labels; a series is removed with the object it is about."""

    def __init__(self, metric: M) -> None:
        self._metric = metric
        self._series: dict[Hashable, set[tuple[str, ...]]] = {}

    def of(self, owner: Hashable, *labels: str) -> M:
        """Return the series with these labels and remove it when its owner is dropped."""
        self._series.setdefault(owner, set()).add(labels)
        return cast("M", self._metric.labels(*labels))

    def only(self, owner: Hashable, *series: tuple[str, ...]) -> None:
        """Set exactly these series of an owner to 1 and remove its others."""
        for labels in self._series.pop(owner, set()) - set(series):
            self._metric.remove(*labels)
        for labels in series:
            cast("Gauge", self.of(owner, *labels)).set(1)

    def drop(self, owner: Hashable) -> None:
        """Remove the series of one owner."""
        self.only(owner)

    def retain(self, owners: Container[Hashable]) -> None:
        """Remove the series of all other owners."""
        for owner in [owner for owner in self._series if owner not in owners]:
            self.drop(owner)
