# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of the allocator. The series of a pool or a Service are removed with it."""

from __future__ import annotations

from collections.abc import Container, Iterable

from prometheus_client import CollectorRegistry

from purelb.core.allocation.group_status import Use
from purelb.core.allocation.outcomes import Assignment, Refusal
from purelb.core.model import Address, ServiceGroup, ServiceKey
from purelb.core.names import FAMILIES
from purelb_agent.ipam.metrics import SidecarMetrics
from purelb_agent.leader.metrics import LeaderMetrics
from purelb_agent.runtime.metrics import LabelSets, MetricFactory

_POOL = "purelb_address_pool"


class PoolMetrics:
    """How full each pool is, what it allocated, and groups in namespaces that are ignored."""

    def __init__(self, make: MetricFactory) -> None:
        self._size = LabelSets(make.gauge(f"{_POOL}_size", "Addresses in a pool.", "pool"))
        self._in_use = LabelSets(
            make.gauge(f"{_POOL}_addresses_in_use", "Allocated addresses.", "pool")
        )
        self._family_in_use = LabelSets(
            make.gauge(
                f"{_POOL}_family_addresses_in_use",
                "Allocated addresses of a family.",
                "pool",
                "family",
            )
        )
        self._family_free = LabelSets(
            make.gauge(
                f"{_POOL}_family_addresses_free",
                "Addresses of a family that are free, where that is known.",
                "pool",
                "family",
            )
        )
        self._multi = LabelSets(
            make.counter(
                f"{_POOL}_multipool_allocations_total",
                "Services that got an address of each range.",
                "pool",
            )
        )
        self._partial = LabelSets(
            make.counter(
                f"{_POOL}_multipool_partial_total",
                "The same where a range had none left.",
                "pool",
            )
        )
        self._balanced = LabelSets(
            make.counter(
                f"{_POOL}_balance_pools_allocations_total",
                "Services that got an address of the range with the fewest in use.",
                "pool",
            )
        )
        self._out_of_scope = LabelSets(
            make.gauge(
                "purelb_servicegroups_out_of_scope",
                "1 for each ServiceGroup in a namespace that is ignored.",
                "namespace",
                "name",
                "type",
            )
        )

    def show_use(self, pool: str, use: Use) -> None:
        """Show how full a pool is, in all and by family.

        A v6 range is so large that a full v4 range next to it does not show in the sum.
        """
        in_use = sum(use.in_use.values())
        free_in_all = sum(count for count in use.free.values() if count is not None)
        self._size.of(pool, pool).set(in_use + free_in_all)
        self._in_use.of(pool, pool).set(in_use)
        for version, free in use.free.items():
            labels = (pool, FAMILIES[version])
            self._family_in_use.of(pool, *labels).set(use.in_use[version])
            if free is not None:
                self._family_free.of(pool, *labels).set(free)

    def count(self, assignment: Assignment) -> None:
        """Count an assignment by how its addresses were selected."""
        pool = assignment.group
        if assignment.is_multi:
            self._multi.of(pool, pool).inc()
        if assignment.partial:
            self._partial.of(pool, pool).inc()
        if assignment.is_balanced:
            self._balanced.of(pool, pool).inc()

    def show_out_of_scope(self, namespace: str, name: str, source: str) -> None:
        """Show a group in a namespace that is ignored."""
        self._out_of_scope.of((namespace, name), namespace, name, source).set(1)

    def drop_out_of_scope(self, namespace: str, name: str) -> None:
        """Remove a deleted group of an ignored namespace."""
        self._out_of_scope.drop((namespace, name))

    def retain(self, pools: Container[object]) -> None:
        """Remove the series of all other pools."""
        for series in (self._size, self._in_use, self._family_in_use, self._family_free):
            series.retain(pools)
        for count in (self._multi, self._partial, self._balanced):
            count.retain(pools)


class ServiceMetrics:
    """Addresses and refusals of Services."""

    def __init__(self, make: MetricFactory) -> None:
        self._assigned = LabelSets(
            make.gauge(
                "purelb_allocator_assigned",
                "1 for each address in the status of a Service.",
                "service",
                "ip",
                "pool",
                "pool_type",
            )
        )
        self._rejected = LabelSets(
            make.counter(
                f"{_POOL}_allocation_rejected_total",
                "Services that got no address.",
                "pool",
                "reason",
            )
        )

    def show(self, key: ServiceKey, has: tuple[Address, ...], group: ServiceGroup | None) -> None:
        """Show the addresses of a Service, for an alert to compare with what nodes announce.

        Group None, which no longer exists, gets empty labels.
        """
        labels = (group.name, group.pool_type.value) if group is not None else ("", "")
        self._assigned.only(key, *((str(key), str(address), *labels) for address in has))

    def drop(self, key: ServiceKey) -> None:
        """Remove a deleted Service."""
        self._assigned.drop(key)

    def count_refusal(self, refusal: Refusal, pool: str) -> None:
        """Count a refusal by pool and reason; pool "" stands for all that do not exist."""
        self._rejected.of(pool, pool, refusal.reason.value).inc()

    def retain_refusals(self, pools: Iterable[object]) -> None:
        """Remove the refusals of all other pools that once existed."""
        self._rejected.retain({"", *pools})


class AllocatorMetrics:
    """All metrics of the allocator, each group for the part that counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        make = MetricFactory(registry)
        self.pools = PoolMetrics(make)
        self.services = ServiceMetrics(make)
        self.leader = LeaderMetrics(make)
        self.sidecars = SidecarMetrics(make)
        self._config_loaded = make.gauge(
            "purelb_k8s_client_config_loaded_bool", "1 once everything has been listed."
        )
        self._status_writes = make.counter(
            "purelb_allocator_sg_status_writes_total",
            "Writes of the status of ServiceGroups.",
            "outcome",
        )

    def mark_loaded(self) -> None:
        """Show that everything has been listed once."""
        self._config_loaded.set(1)

    def count_status_write(self, *, is_success: bool) -> None:
        """Count a write of a ServiceGroup's status."""
        self._status_writes.labels("success" if is_success else "error").inc()


class ConversionMetrics:
    """Conversions between API versions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        make = MetricFactory(registry)
        self._objects = make.counter(
            "purelb_conversion_objects_total",
            "Objects converted between API versions, and requests refused.",
            "outcome",
        )
        self._certificate_end = make.gauge(
            "purelb_conversion_certificate_end_seconds",
            "When the certificate of the conversion ends, in seconds since the epoch.",
        )

    def count_converted(self, objects: int) -> None:
        """Count converted objects."""
        self._objects.labels("converted").inc(objects)

    def count_refused(self) -> None:
        """Count a refused request."""
        self._objects.labels("refused").inc()

    def show_certificate_end(self, moment: float) -> None:
        """Show when the certificate ends, in seconds since the epoch; 0 if that is unknown."""
        self._certificate_end.set(moment)
