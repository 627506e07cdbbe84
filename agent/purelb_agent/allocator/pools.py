# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The ServiceGroups of the allocator, and their status, metrics and events.

Receives the groups from their watcher. Groups in other namespaces are only counted.
"""

from __future__ import annotations

from collections.abc import Callable

from purelb.core.allocation.allocations import Allocations
from purelb.core.allocation.choice import Live
from purelb.core.allocation.group_status import (
    Condition,
    Problem,
    Use,
    exhausted,
    outside_pool,
    ready,
    set_aside_of,
    status_body,
    use_of,
    use_of_external,
    use_of_unused,
)
from purelb.core.allocation.groups import Groups, Overlap
from purelb.core.allocation.outcomes import Assignment
from purelb.core.errors import ObjectError
from purelb.core.model import Address, AddressRange, Service, ServiceGroup, ServiceKey
from purelb.core.names import REEVALUATE_ANNOTATION
from purelb.core.times import format_time
from purelb_agent.allocator.group_status import GroupStatus
from purelb_agent.allocator.metrics import PoolMetrics
from purelb_agent.ipam.queue import IpamQueue
from purelb_agent.kube.client import Json
from purelb_agent.kube.events import EventReason, Events, ObjectReference
from purelb_agent.kube.tables import group_table
from purelb_agent.runtime import clock, log

_SOURCES = ("local", "remote", "netbox", "external")


class Pools:
    """All ServiceGroups; `replace`, `put` and `drop` are called by their watcher."""

    def __init__(
        self,
        status: GroupStatus,
        ipam_queue: IpamQueue,
        events: Events,
        metrics: PoolMetrics,
        *,
        namespace: str,
    ) -> None:
        self.groups = Groups()
        self.on_change: Callable[[], None] = lambda: None
        self.on_news: Callable[[], None] = lambda: None
        self._status = status
        self._ipam_queue = ipam_queue
        self._events = events
        self._metrics = metrics
        self._namespace = namespace
        self._table = group_table(self._changed, on_error=self._undecodable)
        # Groups that cannot be decoded, and why.
        self._unreadable: dict[str, tuple[Json, str]] = {}
        # Problems of groups in this report and in the last one. Only differences are reported, so a
        # problem that was solved and comes back is reported again.
        self._wrong: dict[str, str] = {}
        self._wrong_before: dict[str, str] = {}
        self._out_of_pool: dict[ServiceKey, tuple[str, tuple[Address, ...]]] = {}
        # Ranges in subnets that the network replaces, by group, as reported.
        self._replaced: set[tuple[str, AddressRange]] = set()

    @property
    def listed(self) -> bool:
        """Return whether all groups have been listed once."""
        return self._table.listed

    def replace(self, items: list[Json], *, asked_at: float) -> None:
        """Replace all groups by those of a complete list."""
        own = [item for item in items if self._is_in_scope(item)]
        self._unreadable = {}
        for item in own:
            self._status.learn(item["metadata"]["name"], item.get("status") or {})
        self._table.replace(own, asked_at=asked_at)
        names = {item["metadata"]["name"] for item in own}
        for name in self._status.names() - names:
            self._status.learn(name, None)

    def put(self, item: Json) -> None:
        """Take a new or changed group."""
        if self._is_in_scope(item):
            name = item["metadata"]["name"]
            self._unreadable.pop(name, None)
            self._status.learn(name, item.get("status") or {})
            self._table.put(item)
            # A change of status alone, such as our own write, does not concern Services.
            self.on_news()

    def drop(self, item: Json) -> None:
        """Forget a deleted group."""
        meta = item["metadata"]
        if meta["namespace"] != self._namespace:
            self._metrics.drop_out_of_scope(meta["namespace"], meta["name"])
            return
        self._unreadable.pop(meta["name"], None)
        self._wrong.pop(meta["name"], None)
        self._status.learn(meta["name"], None)
        self._table.drop(item)

    def _is_in_scope(self, item: Json) -> bool:
        meta = item["metadata"]
        if meta["namespace"] == self._namespace:
            return True
        source = next((s for s in _SOURCES if s in item["spec"]), "")
        self._metrics.show_out_of_scope(meta["namespace"], meta["name"], source)
        return False

    def _undecodable(self, item: Json, error: ObjectError) -> None:
        text = f"{error.field}: {error.problem}"
        self._unreadable[item["metadata"]["name"]] = (item, text)

    def _changed(self, _names: set[str]) -> None:
        self.groups = Groups(self._table.records.values())
        self._ipam_queue.follow(g for g in self.groups.all.values() if g.source is not None)
        self.on_change()

    def note_out_of_pool(
        self, service: Service, group: str, addresses: tuple[Address, ...]
    ) -> bool:
        """Remember what a Service keeps outside its group's ranges; returns whether it is news."""
        if not addresses:
            self._out_of_pool.pop(service.key, None)
            return False
        entry = (group, addresses)
        is_news = self._out_of_pool.get(service.key) != entry
        self._out_of_pool[service.key] = entry
        return is_news

    def report_set_aside(self, found: dict[Address, str]) -> None:
        """Report addresses that another host has, each with the node that found it."""
        for address, node in found.items():
            group = self.groups.holding(address)
            log.warning("addressSetAside", ip=address, node=node, group=group and group.name)
            if group is not None:
                self._event(
                    group,
                    "AddressSetAside",
                    f"{address} is allocated only to a Service that requests it, for an hour: "
                    f"another host in the subnet of node {node} has it. Take it from that host or "
                    f"out of the pool. To use it sooner, restart the agent on {node}",
                )

    def report_replaced(self, live: Live) -> None:
        """Report the ranges in subnets that the network replaces, each once until it does not."""
        found = {
            (group.name, pool_range)
            for group in self.groups.all.values()
            for pool_range in (group.ranges if live.deprecated and group.source is None else ())
            if live.replaces(pool_range, group.pool_type)
        }
        for name, pool_range in sorted(found - self._replaced, key=str):
            log.warning("subnetDeprecated", group=name, range=pool_range)
            self._event(
                self.groups.all[name],
                "SubnetDeprecated",
                f"The network replaces the subnet of {pool_range}: the nodes' own addresses there "
                "are deprecated. Services keep their addresses until the nodes' own ones end, and "
                "no Service gets a new one. Add a range of the new subnet, and set the annotation "
                f"{REEVALUATE_ANNOTATION} on each Service to move it",
            )
        self._replaced = found

    def forget(self, key: ServiceKey) -> None:
        """Forget a deleted Service."""
        self._out_of_pool.pop(key, None)

    def count(self, assignment: Assignment) -> None:
        """Count an assignment that was written."""
        self._metrics.count(assignment)

    def report(self, allocations: Allocations) -> None:
        """Update status and metrics of every group, and send events about new problems."""
        moment = format_time(clock.wall_time())[:19] + "Z"
        self._wrong, self._wrong_before = {}, self._wrong
        overlaps = {overlap.later: overlap for overlap in self.groups.overlaps}
        for name, group in self.groups.all.items():
            if group.source is not None:
                self._report_external(group, moment)
                continue
            overlap = overlaps.get(name)
            use = use_of_unused(group, allocations) if overlap else use_of(group, allocations)
            conditions = (
                ready(self._overlap(overlap)),
                exhausted(use),
                outside_pool(self._out_of_pool_of(name)),
                set_aside_of(group, allocations),
            )
            shown = tuple(map(str, group.ranges))
            self._report(group, use, conditions, shown, moment)
        for name, (item, text) in self._unreadable.items():
            self._report_unreadable(name, item, text, moment)
        self._metrics.retain(self.groups.all)

    def _report(
        self,
        group: ServiceGroup,
        use: Use,
        conditions: tuple[Condition, ...],
        shown: tuple[str, ...],
        moment: str,
    ) -> None:
        name = group.name
        known = self._status.known(name)
        self._status.want(name, status_body(group, use, conditions, shown, known=known, now=moment))
        self._metrics.show_use(name, use)

    def _report_external(self, group: ServiceGroup, moment: str) -> None:
        """Report a group whose addresses an external IPAM allocates, as far as its use is known."""
        stats, text = self._ipam_queue.stats(group.name)
        condition = ready(("Unreachable", text) if text else None)
        if text and self._is_news(group.name, text):
            self._event(group, "Unreachable", text)
        if stats is None:
            if text:
                self._want_condition(group, condition, moment)
            return
        use = use_of_external(stats)
        self._report(group, use, (condition, exhausted(use)), stats.display, moment)

    def _want_condition(self, group: ServiceGroup, condition: Condition, moment: str) -> None:
        """Set only this condition in a group's status; the rest stays as it is."""
        known = self._status.known(group.name)
        status = status_body(group, Use({}, {}), [condition], (), known=known, now=moment)
        self._status.want(group.name, {**known, "conditions": status["conditions"]})

    def _out_of_pool_of(self, name: str) -> dict[ServiceKey, tuple[Address, ...]]:
        return {
            key: out_of_pool
            for key, (group, out_of_pool) in self._out_of_pool.items()
            if group == name
        }

    def _overlap(self, overlap: Overlap | None) -> tuple[Problem, str] | None:
        """Report an overlap on both groups, once; returns the problem of the later one."""
        if overlap is None:
            return None
        later, earlier = self.groups.all[overlap.later], self.groups.all[overlap.earlier]
        message = (
            f"Its range {overlap.later_range} overlaps {overlap.earlier_range} of ServiceGroup "
            f"{overlap.earlier}: nothing is allocated from it until one of the two is changed."
        )
        if self._is_news(later.name, message):
            log.warning("groupRefused", group=later.name, message=message)
            self._event(later, "PoolOverlaps", message)
            if earlier != later:
                self._event(
                    earlier,
                    "PoolOverlaps",
                    f"Its range {overlap.earlier_range} overlaps {overlap.later_range} of the "
                    f"younger ServiceGroup {overlap.later}, which is not used: change one of them.",
                )
        return "PoolOverlaps", message

    def _report_unreadable(self, name: str, item: Json, text: str, moment: str) -> None:
        meta = item["metadata"]
        group = ServiceGroup(
            name, meta["namespace"], meta["uid"], generation=meta.get("generation", 0)
        )
        self._want_condition(group, ready(("InvalidSpec", text)), moment)
        if self._is_news(name, text):
            self._event(group, "InvalidSpec", f"Nothing is allocated from it: {text}")

    def _is_news(self, name: str, text: str) -> bool:
        self._wrong[name] = text
        return self._wrong_before.get(name) != text

    def _event(self, group: ServiceGroup, reason: EventReason, message: str) -> None:
        about = ObjectReference("ServiceGroup", group.name, group.namespace, group.uid)
        self._events.record(about, reason, message, kind="Warning")
