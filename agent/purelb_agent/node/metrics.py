# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of the node agent. The series of an address or a Service are removed with it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.context_managers import Timer

from purelb.core.election.members import Standing
from purelb.core.model import Address, ServiceKey
from purelb.core.node.configuration import SelectorState
from purelb_agent.fence.metrics import FenceMetrics
from purelb_agent.holding.metrics import LeaseMetrics
from purelb_agent.runtime.metrics import LabelSets, MetricFactory

_ELECTION = "purelb_election"
_AGENT = "purelb_lbnodeagent"


class ElectionMetrics:
    """Members, candidates and winners, and what this node announces."""

    def __init__(self, make: MetricFactory) -> None:
        self._winner_changes = LabelSets(
            make.counter(
                f"{_ELECTION}_winner_changes_total",
                "Changes of the winner of an address.",
                "service",
                "ip",
                "old_winner",
                "new_winner",
            )
        )
        self._members = make.gauge(f"{_ELECTION}_member_count", "Nodes with a live Lease.")
        self._subnets = make.gauge(f"{_ELECTION}_subnet_count", "Subnets in live Leases.")
        self._local_subnets = make.gauge(
            f"{_ELECTION}_local_subnet_count", "Subnets in the own Lease."
        )
        self._candidates = LabelSets(
            make.gauge(f"{_ELECTION}_candidates", "Nodes with a live Lease in a subnet.", "subnet")
        )
        self._fallbacks = make.counter(
            f"{_ELECTION}_affinity_fallback_total",
            "Elections in which no candidate had the ready endpoint that was preferred.",
        )
        self._service_fallbacks = LabelSets(
            make.counter(
                f"{_AGENT}_affinity_fallback_total", "Affinity fallbacks by Service.", "service"
            )
        )
        self._wins = make.counter(f"{_AGENT}_election_wins_total", "Addresses won.")
        self._losses = make.counter(f"{_AGENT}_election_losses_total", "Addresses lost.")
        self._announced = LabelSets(
            make.gauge(
                f"{_AGENT}_announced", "1 for each announced address.", "service", "node", "ip"
            )
        )

    def count_fallback(self, services: Iterable[ServiceKey]) -> None:
        """Count an election without the preferred endpoint, and once for each Service."""
        self._fallbacks.inc()
        for key in services:
            self._service_fallbacks.of(key, str(key)).inc()

    def count_win(self) -> None:
        """Count an address that this node won."""
        self._wins.inc()

    def count_loss(self) -> None:
        """Count an address that this node lost."""
        self._losses.inc()

    def count_winner_change(self, address: Address, services: str, *, old: str, new: str) -> None:
        """Count a change of an address's winner; "" means none."""
        self._winner_changes.of(address, services, str(address), old, new).inc()

    def show_members(self, count: int) -> None:
        """Show the number of nodes with a live Lease."""
        self._members.set(count)

    def show_local_subnets(self, count: int) -> None:
        """Show the number of subnets in the own Lease."""
        self._local_subnets.set(count)

    def show_candidates(self, by_subnet: Mapping[str, int]) -> None:
        """Show the number of candidates in each subnet; there are no other subnets."""
        for subnet, nodes in by_subnet.items():
            self._candidates.of(subnet, subnet).set(nodes)
        self._candidates.retain(by_subnet)
        self._subnets.set(len(by_subnet))

    def show_announced(self, by_address: Mapping[Address, tuple[str, str]]) -> None:
        """Show the Services and the node of each announced address; no other is announced."""
        for address, (services, node) in by_address.items():
            # An announced address stays the same while the Services that share it change.
            self._announced.only(address, (services, node, str(address)))
        self._announced.retain(by_address)

    def retain(self, *, addresses: Container[object], services: Container[object]) -> None:
        """Remove the counters of other addresses, and of Services without affinity."""
        self._winner_changes.retain(addresses)
        self._service_fallbacks.retain(services)


class AddressMetrics:
    """Addresses put on interfaces, renewed there, and removed."""

    def __init__(self, make: MetricFactory) -> None:
        self._renewals = make.counter(
            f"{_AGENT}_address_renewals_total", "Renewals of address lifetimes."
        )
        self._renewal_errors = make.counter(
            f"{_AGENT}_address_renewal_errors_total", "Failed renewals of address lifetimes."
        )
        self._active = make.gauge(
            f"{_AGENT}_address_renewals_active", "Addresses whose lifetimes are being renewed."
        )
        self._latency = make.histogram(
            f"{_AGENT}_address_renewal_latency_seconds",
            "Time to renew all lifetimes after a renewal of the Lease.",
            buckets=(0.0001, 0.001, 0.01, 0.1, 1.0),
        )
        self._additions = make.counter(f"{_AGENT}_address_additions_total", "Addresses added.")
        self._withdrawals = make.counter(
            f"{_AGENT}_address_withdrawals_total", "Addresses removed."
        )
        self._recoveries = make.counter(
            f"{_AGENT}_address_watchdog_recoveries_total",
            "Addresses put back that had gone from an interface while this node held them.",
        )
        self._conflicts = make.counter(
            f"{_AGENT}_address_conflicts_total",
            "Addresses of ours that another host answered for, or that IPv6 found in use.",
        )

    def time_renewals(self) -> Timer:
        """Return a context manager that observes how long all lifetimes take."""
        return self._latency.time()

    def show_held(self, count: int) -> None:
        """Show the number of addresses whose lifetimes are being renewed."""
        self._active.set(count)

    def count_renewal(self) -> None:
        """Count a renewed lifetime."""
        self._renewals.inc()

    def count_renewal_error(self) -> None:
        """Count a lifetime that could not be renewed."""
        self._renewal_errors.inc()

    def count_addition(self) -> None:
        """Count an address added to an interface."""
        self._additions.inc()

    def count_withdrawal(self) -> None:
        """Count an address removed from an interface."""
        self._withdrawals.inc()

    def count_recovery(self) -> None:
        """Count an address put back that something else had removed."""
        self._recoveries.inc()

    def count_conflict(self) -> None:
        """Count an address that another host also has."""
        self._conflicts.inc()


class AnnouncementMetrics:
    """Frames that announce addresses: gratuitous ARP and neighbour advertisements."""

    def __init__(self, make: MetricFactory) -> None:
        self._arp_sent = make.counter(f"{_AGENT}_garp_sent_total", "ARP announcements sent.")
        self._arp_errors = make.counter(
            f"{_AGENT}_garp_errors_total", "ARP announcements not sent."
        )
        self._na_sent = make.counter(f"{_AGENT}_na_sent_total", "Neighbour advertisements sent.")
        self._na_errors = make.counter(
            f"{_AGENT}_na_errors_total", "Neighbour advertisements not sent."
        )

    def count_sent(self, *, ipv4: int, ipv6: int) -> None:
        """Count announced addresses by family."""
        self._arp_sent.inc(ipv4)
        self._na_sent.inc(ipv6)

    def count_failed(self, *, ipv4: int, ipv6: int) -> None:
        """Count addresses by family whose announcements could not be sent."""
        self._arp_errors.inc(ipv4)
        self._na_errors.inc(ipv6)


class NodeMetrics:
    """All metrics of the node agent, each group for the part that counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        make = MetricFactory(registry)
        self.lease = LeaseMetrics(make)
        self.election = ElectionMetrics(make)
        self.addresses = AddressMetrics(make)
        self.announcements = AnnouncementMetrics(make)
        self.fence = FenceMetrics(make)
        self._config_loaded = make.gauge(
            "purelb_k8s_client_config_loaded_bool", "1 once everything has been listed."
        )
        self._draining = make.gauge(f"{_AGENT}_draining", "1 while a taint keeps addresses away.")
        self._shown: Standing | None = None
        self._standing = make.gauge(
            f"{_AGENT}_standing", "1 for how well this node is suited for addresses.", "standing"
        )
        self._selected: SelectorState | None = None
        self._selector_state = make.gauge(
            f"{_AGENT}_selector_state", "1 for how this node's configuration was selected.", "state"
        )

    def mark_loaded(self) -> None:
        """Show that everything has been listed once."""
        self._config_loaded.set(1)

    def show_standing(self, current: Standing, *, is_draining: bool) -> None:
        """Show the node's standing in elections, and whether a taint keeps addresses away."""
        self._draining.set(is_draining)
        if current is self._shown:
            return
        self._shown = current
        for standing in Standing:
            self._standing.labels(standing.name.lower()).set(standing is current)

    def show_selector(self, current: SelectorState) -> None:
        """Show how this node's configuration was selected."""
        if current is self._selected:
            return
        self._selected = current
        for state in SelectorState:
            self._selector_state.labels(state.value).set(state is current)
