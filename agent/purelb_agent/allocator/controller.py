# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The one task that assigns addresses to Services and releases them.

It works on one Service after the other and sends requests concurrently, a few at a time. A Service
that changes while a request for it is under way is worked on again afterwards. service_allocator
decides what each Service gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from purelb.core.allocation.choice import live_of
from purelb.core.allocation.duplicates import listed_duplicates
from purelb.core.allocation.outcomes import Ask, Outcome
from purelb.core.api import codec
from purelb.core.model import Address, Service, ServiceKey
from purelb_agent.allocator.metrics import AllocatorMetrics
from purelb_agent.allocator.pools import Pools
from purelb_agent.allocator.requests import Later, Request, RequestsUnderWay, SentRequest
from purelb_agent.allocator.service_allocator import ServiceAllocator
from purelb_agent.ipam.port import IpamError
from purelb_agent.ipam.queue import IpamQueue
from purelb_agent.kube.client import CONFLICT, NOT_FOUND, ApiError
from purelb_agent.kube.lease_table import LeaseTable
from purelb_agent.kube.tables import node_table, service_table
from purelb_agent.runtime import clock, log
from purelb_agent.runtime.wakeup import Wakeup
from purelb_agent.runtime.workqueue import WorkQueue

_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class AllocatorController:
    """Works on each Service for which the outcome may have changed."""

    def __init__(
        self,
        allocator: ServiceAllocator,
        ipam_queue: IpamQueue,
        pools: Pools,
        metrics: AllocatorMetrics,
    ) -> None:
        self.is_ready = False
        self.services = service_table(self._enqueue)
        self.leases = LeaseTable(self._leases_changed)
        self.nodes = node_table(self._nodes_changed)
        self.on_nodes: Callable[[set[str]], None] = lambda _names: None
        self._node_addresses: frozenset[Address] = frozenset()
        self._allocator = allocator
        self._pools = pools
        self._metrics = metrics
        self._wakeup = Wakeup()
        self._queue: WorkQueue[ServiceKey] = WorkQueue(
            first_pause=_PAUSE, longest_pause=_LONGEST_PAUSE, wakeup=self._wakeup
        )
        self._requests = RequestsUnderWay(self._wakeup)
        # Version of each Service after the last write: an older one is no news.
        self._written: dict[ServiceKey, str] = {}
        self._is_finishing = False
        allocator.on_freed = self._addresses_freed
        pools.on_change = self._groups_changed
        pools.on_news = self._wakeup.notify
        ipam_queue.on_stats = self._wakeup.notify
        ipam_queue.on_holders = self._holders_listed

    def _enqueue(self, keys: Iterable[ServiceKey]) -> None:
        for key in sorted(keys, key=str):
            self._queue.add(key)
        # A list without any Service may be the last one that is waited for.
        self._wakeup.notify()

    def _groups_changed(self) -> None:
        self._enqueue(self.services.records)

    def _leases_changed(self) -> None:
        # Wakes the task even if nothing is queued: addresses may have been found with other hosts.
        self._enqueue(self._allocator.depend_on_leases)

    def _nodes_changed(self, names: set[str]) -> None:
        """Look again at Services if Nodes have other addresses; heartbeats do not change them."""
        nodes = self.nodes.records.values()
        known = frozenset(address for node in nodes for address in node.addresses)
        if known != self._node_addresses:
            self._node_addresses = known
            self._allocator.set_node_addresses(known)
            self._enqueue(self._allocator.refused)
        self._wakeup.notify()
        self.on_nodes(names)

    def _addresses_freed(self) -> None:
        self._enqueue(self._allocator.refused)

    def _holders_listed(self, group: str, holders: frozenset[ServiceKey]) -> None:
        self._allocator.release_orphans(group, holders, self.services.records)

    @property
    def _is_listed(self) -> bool:
        tables = (self.services, self.leases, self.nodes, self._pools)
        return all(table.listed for table in tables)

    async def run(self) -> None:
        """Allocate until cancelled."""
        while not self._is_listed:
            await self._wakeup.wait()
        addresses = self._allocator.rebuild(self.services.records.values())
        self._enqueue(self.services.records)
        self._metrics.mark_loaded()
        log.info("stateRebuilt", addresses=addresses)
        try:
            while True:
                await self._wakeup.wait()
                self._collect()
                self._work()
                if self._queue.is_empty:
                    self._report()
        finally:
            self._queue.close()
            self._requests.cancel()

    async def finish(self) -> None:
        """Begin nothing more, and wait for the requests under way."""
        self._is_finishing = True
        await self._requests.wait()

    def _report(self) -> None:
        self._allocator.report()
        if not self.is_ready:
            log.info("ready", services=len(self.services.records))
            self.is_ready = True

    def _work(self) -> None:
        """Look at Services until the queue is empty or no more requests may be sent."""
        self._take_leases(clock.now())
        while self._requests.has_room and not self._is_finishing:
            key = self._queue.take()
            if key is None:
                return
            self._send_or_finish(key, self._settle(key))

    def _take_leases(self, now: float) -> None:
        counting = self.leases.counting = self.leases.counting.without_deleted(now)
        live = tuple(counting.renewed(now))
        self._allocator.set_live(live_of(live))
        found = listed_duplicates(live)
        for key in sorted(self._allocator.set_duplicates(found, now=now), key=str):
            self._queue.add(key)

    def _settle(self, key: ServiceKey) -> Request | Later | None:
        service = self.services.records.get(key)
        if service is None:
            self._written.pop(key, None)
            self._queue.forget(key)
            self._allocator.forget(key)
            return None
        if codec.is_older(service.version, self._written.get(key, "")):
            return None
        return self._allocator.settle(service)

    def _send_or_finish(self, key: ServiceKey, request: Request | Later | None) -> None:
        """Send the next request for a Service; without one, end the work on it."""
        if isinstance(request, Request):
            self._requests.send(request)
            return
        if request is not None:
            self._queue.add_later(key, request.seconds)
        self._queue.done(key)

    def _collect(self) -> None:
        """Take the results of the requests that have ended."""
        for sent in self._requests.take_finished():
            self._send_or_finish(sent.service.key, self._next_request(sent))

    def _next_request(self, sent: SentRequest) -> Request | Later | None:
        """Take the result of a request; returns the one that follows from it, if any."""
        key = sent.service.key
        try:
            result = sent.task.result()
        except ApiError as error:
            # After these the watch brings the newer Service, or the news that it is gone.
            if error.status not in (CONFLICT, NOT_FOUND):
                log.warning("writeFailed", service=key, error=str(error))
                self._queue.retry(key)
            return None
        except IpamError as error:
            self._queue.retry(key, is_permanent=error.is_permanent)
            return self._allocator.not_answered(sent.service, _asked(sent.outcome), error)
        self._queue.forget(key)
        if isinstance(result, str):
            self._written[key] = result
            self._allocator.succeeded(sent.service, sent.outcome)
            return None
        return self._answered(sent.service, _asked(sent.outcome), result)

    def _answered(
        self, service: Service, ask: Ask, addresses: tuple[Address, ...]
    ) -> Request | Later | None:
        if service.key in self.services.records:
            return self._allocator.answered(service, ask, addresses)
        self._allocator.answered_too_late(service.key, ask)
        return None


def _asked(outcome: Outcome) -> Ask:
    if not isinstance(outcome, Ask):
        raise TypeError(f"only an Ask is answered by another system, not {outcome}")
    return outcome
