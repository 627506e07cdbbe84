# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The one task that gives addresses to Services and takes them back.

It owns the ledger of what is taken. It decides for one Service after the other; the writes run
beside it, a few at a time and never two for one Service. An address is entered before its write
begins and stays taken until the Service itself shows what became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass

from purelb.core.allocation.allocate import decide, rebuild
from purelb.core.allocation.allocations import Allocations
from purelb.core.allocation.choice import Live
from purelb.core.allocation.external_ipam import answered
from purelb.core.allocation.groups import Groups
from purelb.core.allocation.outcomes import Ask, Assignment, Keep, Outcome, Refusal, Release
from purelb.core.allocation.refusals import RefusalReason
from purelb.core.api import codec
from purelb.core.model import Address, Service, ServiceKey
from purelb_agent.allocator.events import ServiceEvents
from purelb_agent.allocator.metrics import AllocatorMetrics
from purelb_agent.allocator.pools import Pools
from purelb_agent.allocator.service_writer import ServiceWriter
from purelb_agent.ipam.port import IpamError
from purelb_agent.ipam.queue import IpamQueue
from purelb_agent.kube.client import CONFLICT, NOT_FOUND, ApiError
from purelb_agent.kube.lease_table import LeaseTable
from purelb_agent.kube.tables import service_table
from purelb_agent.runtime import clock, log

_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
# More at once do not make the API server faster; fewer leave it waiting for us.
_WRITES = 8


@dataclass(frozen=True)
class _Write:
    """A request under way, what it is to bring about, and for which state of the Service.

    It ends with the Service's new version, or with the addresses that were asked for.
    """

    service: Service
    outcome: Outcome
    task: asyncio.Task[str | tuple[Address, ...]]


class AllocatorController:
    """Decides for one Service after the other."""

    def __init__(
        self,
        writer: ServiceWriter,
        ipam_queue: IpamQueue,
        pools: Pools,
        telling: ServiceEvents,
        metrics: AllocatorMetrics,
        *,
        classes: frozenset[str | None],
    ) -> None:
        self.is_ready = False
        self.services = service_table(self._look_at)
        self.leases = LeaseTable(self._leases_changed)
        self._writer = writer
        self._ipam_queue = ipam_queue
        self._pools = pools
        self._telling = telling
        self._metrics = metrics
        self._classes = classes
        self._ledger = Allocations()
        self._live = Live()
        # A dictionary, for its order: who came first is served first.
        self._queue: dict[ServiceKey, None] = {}
        # Version of each Service after the last write: what is older says nothing new.
        self._written: dict[ServiceKey, str] = {}
        self._refusals: dict[ServiceKey, Refusal] = {}
        # Services that take one address of each range, and so follow the Leases.
        self._multi: set[ServiceKey] = set()
        # Names of the groups of which Services have addresses that another system gave out.
        self._leased: dict[ServiceKey, str] = {}
        self._pauses: dict[ServiceKey, float] = {}
        self._writes: dict[ServiceKey, _Write] = {}
        self._is_finishing = False
        self._work = asyncio.Event()
        pools.on_change = self._groups_changed
        pools.on_news = self._work.set
        ipam_queue.on_stats = self._work.set
        ipam_queue.on_holders = self._found_elsewhere

    def _look_at(self, keys: set[ServiceKey]) -> None:
        self._queue.update(dict.fromkeys(sorted(keys, key=str)))
        self._work.set()

    def _groups_changed(self) -> None:
        self._look_at(set(self.services.records))

    def _leases_changed(self) -> None:
        self._look_at(self._multi | set(self._refusals))

    @property
    def _listed(self) -> bool:
        return self.services.listed and self.leases.listed and self._pools.listed

    async def run(self) -> None:
        """Allocate until cancelled."""
        while not self._listed:
            await self._work.wait()
            self._work.clear()
        self._ledger = rebuild(self.services.records.values())
        self._look_at(set(self.services.records))
        self._metrics.mark_loaded()
        log.info("stateRebuilt", addresses=len(self._ledger))
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                self._collect()
                self._start()
                if not self._queue:
                    self._round_done()
        finally:
            for write in self._writes.values():
                write.task.cancel()

    def _round_done(self) -> None:
        self._pools.report(self._ledger)
        self._count_refusals()
        if not self.is_ready:
            log.info("ready", services=len(self.services.records))
            self.is_ready = True

    async def finish(self) -> None:
        """Begin nothing more, and wait for what has begun."""
        self._is_finishing = True
        if self._writes:
            await asyncio.wait([write.task for write in self._writes.values()])

    def _start(self) -> None:
        """Look at queued Services until as many writes run as may."""
        groups = self._pools.groups
        members = self.leases.membership.live(clock.now())
        subnets = frozenset(subnet for member in members for subnet in member.subnets)
        self._live = Live(subnets, has_nodes=bool(members))
        waiting = []
        while self._queue and len(self._writes) < _WRITES and not self._is_finishing:
            key = next(iter(self._queue))
            del self._queue[key]
            if key in self._writes:
                waiting.append(key)
            else:
                self._settle(key, groups)
        self._queue.update(dict.fromkeys(waiting))

    def _settle(self, key: ServiceKey, groups: Groups) -> None:
        service = self.services.records.get(key)
        if service is None:
            self._forget(key)
            return
        self._metrics.services.show(service)
        if codec.is_older(service.version, self._written.get(key, "")):
            return
        outcome = decide(service, groups, self._ledger, self._live, classes=self._classes)
        if not isinstance(outcome, Refusal):
            self._refusals.pop(key, None)
        self._follow_leases(service, groups)
        self._follow_source(service, groups)
        self._carry_out(service, outcome)

    def _follow_leases(self, service: Service, groups: Groups) -> None:
        group = groups.usable.get(service.allocated_from or service.group or "")
        if service.multi_pool or (group is not None and group.multi_pool):
            self._multi.add(service.key)
        else:
            self._multi.discard(service.key)

    def _follow_source(self, service: Service, groups: Groups) -> None:
        """Remember who is to get the Service's addresses back, also when its group is gone."""
        group = groups.all.get(service.allocated_from or "")
        if group is not None and group.source is not None and service.addresses:
            self._leased[service.key] = group.name

    def _found_elsewhere(self, group: str, holders: frozenset[ServiceKey]) -> None:
        """Give back what Services have that were deleted while no allocator was there to see it."""
        for key in holders - self.services.records.keys():
            self._ipam_queue.release(group, key)

    def _forget(self, key: ServiceKey) -> None:
        self._metrics.services.drop(key)
        self._refusals.pop(key, None)
        self._written.pop(key, None)
        self._multi.discard(key)
        self._pauses.pop(key, None)
        self._pools.forget(key)
        self._freed(key, self._ledger.release(key))

    def _carry_out(self, service: Service, outcome: Outcome) -> None:
        if isinstance(outcome, Assignment):
            # Taken first: whatever becomes of the write, nobody else may get these. What the
            # Service had stays taken until it no longer has it.
            self._ledger.hold(service, {*outcome.addresses, *self._ledger.of(service.key)})
            self._begin(service, outcome, self._writer.assign(service, outcome))
        elif isinstance(outcome, Ask):
            asking = self._ipam_queue.allocate(outcome.group, outcome.request)
            self._begin(service, outcome, asking)
        elif isinstance(outcome, Release):
            self._begin(service, outcome, self._writer.release(service))
        elif isinstance(outcome, Refusal):
            self._refuse(service, outcome)
        else:
            self._keep(service, outcome)

    def _keep(self, service: Service, keep: Keep) -> None:
        own = self._ledger.unclaimed(service, service.addresses)
        self._freed(service.key, self._ledger.hold(service, own))
        if self._pools.out_of_pool(service, keep.out_of_pool):
            self._telling.strayed(service, keep.out_of_pool)

    def _refuse(self, service: Service, refusal: Refusal) -> None:
        self._freed(service.key, self._ledger.hold(service, refusal.keeps))
        if service.allocated_by_us and service.addresses != refusal.keeps:
            self._begin(service, refusal, self._writer.reduce(service, refusal.keeps))
        if self._refusals.get(service.key) == refusal:
            return
        self._refusals[service.key] = refusal
        self._metrics.services.count_refusal(refusal)
        self._telling.refused(service, refusal)

    def _begin(
        self,
        service: Service,
        outcome: Outcome,
        request: Coroutine[None, None, str | tuple[Address, ...]],
    ) -> None:
        task = asyncio.create_task(request, name=f"write {service.key}")
        task.add_done_callback(lambda _task: self._work.set())
        self._writes[service.key] = _Write(service, outcome, task)

    def _collect(self) -> None:
        """Take the results of the writes that have ended."""
        for write in [write for write in self._writes.values() if write.task.done()]:
            key = write.service.key
            del self._writes[key]
            try:
                result = write.task.result()
            except ApiError as problem:
                # After a conflict the watch brings the newer Service, or the news that it is gone.
                if problem.status not in (CONFLICT, NOT_FOUND):
                    log.warning("writeFailed", service=key, error=str(problem))
                    self._look_again(key)
            except IpamError as problem:
                self._not_answered(write.service, write.outcome, problem)
            else:
                self._pauses.pop(key, None)
                if isinstance(result, str):
                    self._written[key] = result
                    self._succeeded(write.service, write.outcome)
                else:
                    self._answered(write.service, write.outcome, result)

    def _look_again(self, key: ServiceKey) -> None:
        """Look at a Service after a while, longer each time."""
        pause = self._pauses.get(key, _PAUSE)
        self._pauses[key] = min(pause * 2, _LONGEST_PAUSE)
        asyncio.get_running_loop().call_later(pause, self._look_at, {key})

    def _answered(self, service: Service, asked: Outcome, addresses: tuple[Address, ...]) -> None:
        """Go on with what another system has said, if the Service is still there to have it."""
        if not isinstance(asked, Ask):
            raise TypeError(f"only a question has such an answer, not {asked}")
        name = asked.group.name
        if service.key not in self.services.records:
            self._ipam_queue.release(name, service.key)
            return
        outcome = answered(service, asked.group, addresses, self._ledger)
        self._carry_out(service, outcome)
        if isinstance(outcome, Refusal):
            for address in set(addresses) - set(outcome.keeps):
                self._ipam_queue.release(name, service.key, address)

    def _not_answered(self, service: Service, asked: Outcome, problem: IpamError) -> None:
        if not isinstance(asked, Ask):
            raise TypeError(f"only a question can stay unanswered, not {asked}")
        reason = RefusalReason.EXHAUSTED if problem.is_exhausted else RefusalReason.IPAM_FAILED
        keeps = self._ledger.unclaimed(service, service.addresses)
        self._refuse(service, Refusal(asked.group.name, reason, problem.message, keeps))
        if problem.is_permanent:
            self._pauses[service.key] = _LONGEST_PAUSE
        self._look_again(service.key)

    def _succeeded(self, service: Service, outcome: Outcome) -> None:
        if isinstance(outcome, Assignment):
            freed = self._ledger.hold(service, outcome.addresses)
            self._freed(service.key, freed)
            if outcome.is_leased:
                self._leased[service.key] = outcome.group
            else:
                self._leased.pop(service.key, None)
            self._pools.out_of_pool(service, ())
            self._pools.count(outcome)
            self._telling.assigned(service, outcome)
        elif isinstance(outcome, Release):
            self._pools.out_of_pool(service, ())
            self._freed(service.key, self._ledger.release(service.key))

    def _freed(self, key: ServiceKey, freed: frozenset[Address]) -> None:
        if freed:
            self._give_back(key, freed)
            log.info("released", service=key, addresses=",".join(sorted(map(str, freed))))
            # Who was refused may now be served.
            self._look_at(set(self._refusals))

    def _give_back(self, key: ServiceKey, freed: frozenset[Address]) -> None:
        """Tell the system that gave these addresses, if one did."""
        group = self._leased.get(key)
        if group is None:
            return
        if self._ledger.of(key):
            for address in freed:
                self._ipam_queue.release(group, key, address)
        else:
            del self._leased[key]
            self._ipam_queue.release(group, key)

    def _count_refusals(self) -> None:
        asked = {refusal.group for refusal in self._refusals.values()}
        self._metrics.services.retain_refusals(asked | set(self._pools.groups.all))
