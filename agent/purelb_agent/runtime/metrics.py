# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of both programs. Series of an address or Service go with it."""

from __future__ import annotations

from collections.abc import Container, Hashable
from typing import Generic, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_ELECTION = "purelb_election"
_AGENT = "purelb_lbnodeagent"
_POOL = "purelb_address_pool"


M = TypeVar("M", bound=Counter | Gauge)


class LabelSets(Generic[M]):
    """The series of one metric, of which only those of existing objects are kept."""

    def __init__(self, metric: M) -> None:
        self._metric = metric
        self._series: dict[Hashable, set[tuple[str, ...]]] = {}

    def of(self, owner: Hashable, *labels: str) -> M:
        """The series with these labels, which is to go when the owner goes."""
        self._series.setdefault(owner, set()).add(labels)
        return cast("M", self._metric.labels(*labels))

    def only(self, owner: Hashable, *series: tuple[str, ...]) -> None:
        """Let exactly these series of an owner be 1, and none else be there."""
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


class NodeMetrics:
    """What the node agent counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self.config_loaded = gauge(
            "purelb_k8s_client_config_loaded_bool", "1 once everything has been listed."
        )
        self.lease_healthy = gauge(
            f"{_ELECTION}_lease_healthy", "1 while the own Lease gives the right to announce."
        )
        self.outage_holding = gauge(
            f"{_ELECTION}_outage_holding",
            "1 while addresses are kept because the API is down for everybody.",
        )
        self.outages_held = counter(
            f"{_ELECTION}_outages_held_total",
            "Outages of the API that this node kept its addresses through.",
        )
        self.peer_answers = counter(
            f"{_ELECTION}_peer_answers_total",
            "What peers said when they were asked whether they can renew.",
            "answer",
        )
        self.renewals = counter(f"{_ELECTION}_lease_renewals_total", "Good renewals of the Lease.")
        self.renewal_failures = counter(
            f"{_ELECTION}_lease_renewal_failures_total", "Failed renewals of the Lease."
        )
        self.deadline_used = Histogram(
            f"{_ELECTION}_lease_deadline_used_ratio",
            "Time between good renewals of the Lease, as a part of the renew deadline.",
            buckets=(0.5, 0.75, 0.9, 1.0),
            registry=registry,
        )
        self.winner_changes = LabelSets(
            counter(
                f"{_ELECTION}_winner_changes_total",
                "Changes of the winner of an address.",
                "service",
                "ip",
                "old_winner",
                "new_winner",
            )
        )
        self.member_count = gauge(f"{_ELECTION}_member_count", "Nodes with a live Lease.")
        self.subnet_count = gauge(f"{_ELECTION}_subnet_count", "Subnets in live Leases.")
        self.local_subnet_count = gauge(
            f"{_ELECTION}_local_subnet_count", "Subnets in the own Lease."
        )
        self.candidates = LabelSets(
            gauge(f"{_ELECTION}_candidates", "Nodes with a live Lease in a subnet.", "subnet")
        )
        self.election_fallbacks = counter(
            f"{_ELECTION}_affinity_fallback_total",
            "Elections in which no candidate had the ready endpoint that was preferred.",
        )
        self.affinity_fallbacks = LabelSets(
            counter(
                f"{_AGENT}_affinity_fallback_total",
                "The same by Service.",
                "service",
            )
        )
        self.garp_sent = counter(f"{_AGENT}_garp_sent_total", "ARP announcements sent.")
        self.garp_errors = counter(f"{_AGENT}_garp_errors_total", "ARP announcements not sent.")
        self.na_sent = counter(f"{_AGENT}_na_sent_total", "Neighbour advertisements sent.")
        self.na_errors = counter(f"{_AGENT}_na_errors_total", "Neighbour advertisements not sent.")
        self.address_renewals = counter(
            f"{_AGENT}_address_renewals_total", "Lifetimes of addresses set anew."
        )
        self.address_renewal_errors = counter(
            f"{_AGENT}_address_renewal_errors_total", "Lifetimes of addresses not set anew."
        )
        self.address_renewals_active = gauge(
            f"{_AGENT}_address_renewals_active", "Addresses whose lifetimes are being kept."
        )
        self.address_renewal_latency = Histogram(
            f"{_AGENT}_address_renewal_latency_seconds",
            "Time to set all lifetimes anew after a renewal of the Lease.",
            buckets=(0.0001, 0.001, 0.01, 0.1, 1.0),
            registry=registry,
        )
        self.additions = counter(f"{_AGENT}_address_additions_total", "Addresses added.")
        self.withdrawals = counter(f"{_AGENT}_address_withdrawals_total", "Addresses removed.")
        self.watchdog_recoveries = counter(
            f"{_AGENT}_address_watchdog_recoveries_total",
            "Addresses put back that had gone from an interface while this node held them.",
        )
        self.election_wins = counter(f"{_AGENT}_election_wins_total", "Addresses won.")
        self.election_losses = counter(f"{_AGENT}_election_losses_total", "Addresses lost.")
        self.conflicts = counter(
            f"{_AGENT}_address_conflicts_total",
            "Addresses of ours that another host answered for, or that IPv6 found in use.",
        )
        self.draining = gauge(f"{_AGENT}_draining", "1 while a taint keeps addresses away.")
        self.selector_state = gauge(
            f"{_AGENT}_selector_state", "1 for how this node came by its configuration.", "state"
        )
        self.announced = LabelSets(
            gauge(f"{_AGENT}_announced", "1 for each announced address.", "service", "node", "ip")
        )


class AllocatorMetrics:
    """What the allocator counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> LabelSets[Counter]:
            return LabelSets(Counter(name, text, labels, registry=registry))

        def gauge(name: str, text: str, *labels: str) -> LabelSets[Gauge]:
            return LabelSets(Gauge(name, text, labels, registry=registry))

        self.config_loaded = Gauge(
            "purelb_k8s_client_config_loaded_bool",
            "1 once everything has been listed.",
            registry=registry,
        )
        self.is_leader = Gauge(
            "purelb_allocator_is_leader",
            "1 while this replica is the one that gives out addresses.",
            registry=registry,
        )
        self.size = gauge(f"{_POOL}_size", "Addresses in a pool.", "pool")
        self.in_use = gauge(f"{_POOL}_addresses_in_use", "Addresses given out.", "pool")
        self.family_in_use = gauge(
            f"{_POOL}_family_addresses_in_use",
            "Addresses of a family given out.",
            "pool",
            "family",
        )
        self.family_free = gauge(
            f"{_POOL}_family_addresses_free",
            "Addresses of a family that are free, where that is known.",
            "pool",
            "family",
        )
        self.assigned = gauge(
            "purelb_allocator_assigned",
            "1 for each address in the status of a Service.",
            "service",
            "ip",
            "pool",
            "pool_type",
        )
        self.multi = counter(
            f"{_POOL}_multipool_allocations_total",
            "Services that were given an address of each range.",
            "pool",
        )
        self.partial = counter(
            f"{_POOL}_multipool_partial_total",
            "The same where a range had none left.",
            "pool",
        )
        self.balanced = counter(
            f"{_POOL}_balance_pools_allocations_total",
            "Services that were given an address of the range with the fewest in use.",
            "pool",
        )
        self.rejected = counter(
            f"{_POOL}_allocation_rejected_total", "Services that got no address.", "pool", "reason"
        )
        # Those that go with their group.
        self.of_groups = (
            self.size,
            self.in_use,
            self.family_in_use,
            self.family_free,
            self.multi,
            self.partial,
            self.balanced,
        )
        self.out_of_scope = gauge(
            "purelb_servicegroups_out_of_scope",
            "1 for each ServiceGroup in a namespace that is not looked at.",
            "namespace",
            "name",
            "type",
        )
        self.status_writes = Counter(
            "purelb_allocator_sg_status_writes_total",
            "Writes of the status of ServiceGroups.",
            ("outcome",),
            registry=registry,
        )
        self.sidecar_rpcs = Counter(
            "purelb_allocator_sidecar_rpc_total",
            "Calls of sidecars that give out addresses, by outcome.",
            ("method", "code"),
            registry=registry,
        )


class ConversionMetrics:
    """What the conversion between API versions counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.objects = Counter(
            "purelb_conversion_objects_total",
            "Objects converted between API versions, and requests refused.",
            ("outcome",),
            registry=registry,
        )
        self.certificate_end = Gauge(
            "purelb_conversion_certificate_end_seconds",
            "When the certificate of the conversion ends, in seconds since the epoch.",
            registry=registry,
        )
