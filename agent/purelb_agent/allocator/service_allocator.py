# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Decides what each Service gets and records which addresses are in use.

An address is recorded before the write that assigns it begins, and stays recorded until the Service
itself shows that it has another or none. Nothing is sent here: what to send is returned as a
Request, and its result is passed to `succeeded`, `answered` or `not_answered`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine, Iterable
from functools import partial

from purelb.core.allocation.allocate import decide, is_ours, rebuild
from purelb.core.allocation.allocations import Allocations
from purelb.core.allocation.choice import Live
from purelb.core.allocation.disputes import dispute, essence_of
from purelb.core.allocation.duplicates import NEW_FOR, set_aside
from purelb.core.allocation.external_ipam import answered
from purelb.core.allocation.outcomes import (
    Ask,
    Assignment,
    Keep,
    Outcome,
    Refusal,
    Release,
    remainder,
)
from purelb.core.allocation.own import origin_of, own_addresses
from purelb.core.allocation.refusals import RefusalReason
from purelb.core.election.claims import Classes, is_served
from purelb.core.model import Address, Service, ServiceGroup, ServiceKey
from purelb.core.undone import Written, written
from purelb_agent.allocator.events import ServiceEvents
from purelb_agent.allocator.ipam_releases import IpamReleases
from purelb_agent.allocator.metrics import ServiceMetrics
from purelb_agent.allocator.pools import Pools
from purelb_agent.allocator.requests import Later, Request
from purelb_agent.allocator.service_writer import ServiceWriter
from purelb_agent.ipam.port import IpamError
from purelb_agent.ipam.queue import IpamQueue
from purelb_agent.runtime import clock, log

Writing = Coroutine[None, None, str]
# Undone so often, it was no single act of a user.
_DISPUTED = 2
# Seconds between two answers to another program that undoes all of them.
_LONGEST_PAUSE = 300.0


class ServiceAllocator:
    """The addresses in use, and the current refusals."""

    def __init__(
        self,
        writer: ServiceWriter,
        ipam_queue: IpamQueue,
        pools: Pools,
        events: ServiceEvents,
        metrics: ServiceMetrics,
        *,
        classes: Classes,
    ) -> None:
        self.on_freed: Callable[[], None] = lambda: None
        self._writer = writer
        self._ipam_queue = ipam_queue
        self._ipam_releases = IpamReleases(ipam_queue)
        self._pools = pools
        self._events = events
        self._metrics = metrics
        self._classes = classes
        self._taken = Allocations()
        self._live = Live()
        # No Service gets one of these.
        self._node_addresses: frozenset[Address] = frozenset()
        # No Service gets one of these unless it asks for it; each with the node that found it.
        self._duplicates: dict[Address, str] = {}
        # When addresses were given that had been free, oldest first, back to NEW_FOR ago.
        self._given: dict[Address, float] = {}
        self._refusals: dict[ServiceKey, Refusal] = {}
        # What was written last to each Service, to see who undoes it.
        self._written: dict[ServiceKey, Written[Outcome]] = {}
        # Services that take one address of each range, and so depend on the Leases.
        self._multi: set[ServiceKey] = set()

    @property
    def refused(self) -> set[ServiceKey]:
        """Services that a freed address may serve."""
        return set(self._refusals)

    @property
    def depend_on_leases(self) -> set[ServiceKey]:
        """Services for which another set of nodes may mean another outcome."""
        return self._multi | self.refused

    def rebuild(self, services: Iterable[Service]) -> int:
        """Record the addresses that Services have; returns their number."""
        self._taken = rebuild(
            services, self._pools.groups, classes=self._classes, of_nodes=self._node_addresses
        )
        self._taken.set_aside(self._duplicates)
        return len(self._taken)

    def set_node_addresses(self, addresses: frozenset[Address]) -> None:
        """Set the addresses that Nodes have."""
        self._node_addresses = addresses
        self._taken.exclude_nodes(addresses)

    def set_duplicates(self, found: dict[Address, str], *, now: float) -> set[ServiceKey]:
        """Set the addresses that other hosts have, each with the node that found it.

        Returns the Services that may get other addresses by this.
        """
        if not found and not self._duplicates:
            return set()
        groups = (group for group in self._pools.groups.all.values() if group.source is None)
        ranges = (pool_range for group in groups for pool_range in group.ranges)
        aside = set_aside(found, ranges, self._taken, self._duplicates)
        if aside == self._duplicates:
            return set()
        self._duplicates, concerned = aside, set[ServiceKey]()
        new = self._taken.set_aside(aside)
        for address in new:
            if self._is_new(address, now):
                self._taken.replace(address)
                concerned.update(self._taken.holders(address))
        self._pools.report_set_aside({address: found[address] for address in new})
        return concerned

    def set_live(self, live: Live) -> None:
        """Set where addresses can be announced."""
        self._live = live

    def settle(self, service: Service) -> Request | Later | None:
        """Decide for one Service; returns what is to be sent, or when to look at it again.

        None if nothing is to be done.
        """
        groups = self._pools.groups
        self._replace_outside(service)
        outcome = decide(service, groups, self._taken, self._live, classes=self._classes)
        if not isinstance(outcome, Refusal):
            self._refusals.pop(service.key, None)
        own = self._own(service) if is_served(service) else ()
        origin = groups.all.get(origin_of(service, groups, self._taken) or "") if own else None
        self._metrics.show(service.key, own, origin)
        self._note_multi(service, origin or groups.all.get(service.group or ""))
        self._ipam_releases.learn(service, origin)
        return self._carry_out(service, outcome)

    def _own(self, service: Service) -> tuple[Address, ...]:
        """Return the addresses in the Service's status that are ours."""
        return own_addresses(service, self._pools.groups, self._taken)

    def _replace_outside(self, service: Service) -> None:
        """Let a Service get another address for a new one that no group has and no node announces.

        The group changed meanwhile: agents that knew of that first never knew the address in a
        pool, so they will not announce it.
        """
        for address in self._taken.of(service.key):
            is_in_use = self._pools.groups.has_range_of(address) or service.is_announced(address)
            if self._is_new(address, clock.now()) and not is_in_use:
                self._taken.replace(address)

    def _is_new(self, address: Address, now: float) -> bool:
        return now < self._given.get(address, -NEW_FOR) + NEW_FOR

    def forget(self, key: ServiceKey) -> None:
        """Free everything that a deleted Service had."""
        self._metrics.drop(key)
        self._refusals.pop(key, None)
        self._multi.discard(key)
        self._written.pop(key, None)
        self._pools.forget(key)
        self._free(key, self._taken.release(key))

    def succeeded(self, service: Service, outcome: Outcome) -> None:
        """Record that an outcome was written."""
        own = self._own(service)
        last = written(
            self._written.get(service.key),
            essence_of(outcome),
            clock.now(),
            longest=_LONGEST_PAUSE,
        )
        self._written[service.key] = last
        if last.undone == _DISPUTED:
            self._events.disputed(service, *dispute(service, outcome, own))
        if isinstance(outcome, Assignment):
            freed = self._taken.hold(service, outcome.addresses, outcome.group)
            self._note_given(service, outcome)
            self._free(service.key, freed)
            self._ipam_releases.assigned(service.key, outcome)
            self._pools.note_out_of_pool(service, "", ())
            self._pools.count(outcome)
            if last.undone < _DISPUTED:
                self._events.assigned(service, outcome)
        elif isinstance(outcome, Release):
            self._pools.note_out_of_pool(service, "", ())
            self._free(service.key, self._taken.release(service.key))
            if service.is_terminating and own:
                self._events.released(service, own)

    def _note_given(self, service: Service, assignment: Assignment) -> None:
        now = clock.now()
        while self._given and next(iter(self._given.values())) <= now - NEW_FOR:
            del self._given[next(iter(self._given))]
        for address in () if assignment.is_leased else assignment.addresses:
            is_first = self._taken.holders(address) == (service.key,)
            if is_first and address not in service.addresses:
                self._given.pop(address, None)
                self._given[address] = now

    def answered(
        self, service: Service, ask: Ask, addresses: tuple[Address, ...]
    ) -> Request | Later | None:
        """Continue with the addresses that another system gave; returns what is to be sent."""
        outcome = answered(service, ask, addresses, self._taken, self._own(service))
        request = self._carry_out(service, outcome)
        if isinstance(outcome, Refusal):
            for address in set(addresses) - set(outcome.keeps):
                self._ipam_releases.release(ask.group.name, service.key, address)
        return request

    def answered_too_late(self, key: ServiceKey, ask: Ask) -> None:
        """Release what another system gave to a Service that was deleted in the meantime."""
        self._ipam_releases.release(ask.group.name, key)

    def not_answered(self, service: Service, ask: Ask, error: IpamError) -> Request | Later | None:
        """Refuse a Service because another system gave nothing; returns what is to be sent."""
        reason = RefusalReason.EXHAUSTED if error.is_exhausted else RefusalReason.IPAM_FAILED
        keeps = self._taken.unclaimed(service, self._own(service))
        return self._refuse(service, Refusal(ask.group.name, reason, error.message, keeps))

    def release_orphans(
        self, group: str, holders: frozenset[ServiceKey], services: Container[ServiceKey]
    ) -> None:
        """Release the addresses in another system of Services that no longer exist."""
        self._ipam_releases.release_orphans(group, holders, services)

    def report(self) -> None:
        """Report the state of the groups."""
        self._pools.report(self._taken)
        self._pools.report_replaced(self._live)
        self._metrics.retain_refusals(self._pools.groups.all)

    def _note_multi(self, service: Service, group: ServiceGroup | None) -> None:
        if service.multi_pool or (group is not None and group.multi_pool):
            self._multi.add(service.key)
        else:
            self._multi.discard(service.key)

    def _carry_out(self, service: Service, outcome: Outcome) -> Request | Later | None:
        if isinstance(outcome, Assignment):
            # Entered first: however the write ends, no other Service may get these. What the
            # Service had stays taken until it no longer has it.
            both = {*outcome.addresses, *self._taken.given(service.key)}
            self._taken.hold(service, both, outcome.group)
            write = partial(self._writer.assign, service, outcome)
            return self._unless_disputed(service, outcome, write)
        if isinstance(outcome, Ask):
            asking = self._ipam_queue.allocate(outcome.group, outcome.request)
            return Request(service, outcome, asking)
        if isinstance(outcome, Release):
            write = partial(self._writer.release, service, self._own(service))
            return self._unless_disputed(service, outcome, write)
        if isinstance(outcome, Refusal):
            return self._refuse(service, outcome)
        self._keep(service, outcome)
        return None

    def _unless_disputed(
        self, service: Service, outcome: Outcome, write: Callable[[], Writing]
    ) -> Request | Later:
        """Return the write of an outcome; a pause if others undo it again and again."""
        last = self._written.get(service.key)
        pause = last.pause(essence_of(outcome), clock.now()) if last is not None else 0.0
        return Later(pause) if pause > 0 else Request(service, outcome, write())

    def _keep(self, service: Service, keep: Keep) -> None:
        if not is_ours(service, self._taken, self._classes):
            # No other Service may get what another program has given this one.
            others = self._taken.unclaimed(service, service.addresses)
            self._free(service.key, self._taken.hold(service, others))
            return
        own = self._taken.unclaimed(service, self._own(service))
        origin = origin_of(service, self._pools.groups, self._taken)
        self._free(service.key, self._taken.hold(service, own, origin or ""))
        if self._pools.note_out_of_pool(service, origin or "", keep.out_of_pool):
            self._events.out_of_pool(service, origin or "", keep.out_of_pool)

    def _refuse(self, service: Service, refusal: Refusal) -> Request | Later | None:
        groups = self._pools.groups.all
        origin = origin_of(service, self._pools.groups, self._taken)
        has_own = bool(self._own(service))
        self._free(service.key, self._taken.hold(service, refusal.keeps, origin or ""))
        if self._refusals.get(service.key) != refusal:
            self._refusals[service.key] = refusal
            # A tenant may name any group; one that does not exist gets no series.
            self._metrics.count_refusal(refusal, refusal.group if refusal.group in groups else "")
            self._events.refused(service, refusal)
        left = remainder(service, refusal.keeps, groups.get(origin or ""), has_own=has_own)
        if left is None:
            return None
        write = partial(self._writer.reduce, service, left)
        return self._unless_disputed(service, refusal, write)

    def _free(self, key: ServiceKey, freed: frozenset[Address]) -> None:
        if freed:
            self._ipam_releases.freed(key, freed, has_others=bool(self._taken.of(key)))
            log.info("released", service=key, addresses=",".join(sorted(map(str, freed))))
            self.on_freed()
