# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Primitives of Prometheus metrics; the metrics themselves are next to their owners."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from typing import Generic, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

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

    def read_counter(self, name: str, text: str) -> ReadCounter:
        """Return a new counter with this help text that is read for each scrape."""
        counter = ReadCounter(name, text)
        self._registry.register(counter)
        return counter


class ReadCounter(Collector):
    """A counter that something else counts, for example a program in the kernel."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._read: Callable[[], float] = lambda: 0

    def follow(self, read: Callable[[], float]) -> None:
        """Show what this returns at the time of the scrape."""
        self._read = read

    def describe(self) -> Iterator[CounterMetricFamily]:
        """Yield the metric without a value."""
        yield CounterMetricFamily(self._name, self._text)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the metric with its value now."""
        yield CounterMetricFamily(self._name, self._text, self._read())


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
