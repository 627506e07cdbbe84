# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Requests to external IPAM systems: allocate, release, and how full their pools are.

Each group has a task of its own that does one thing after the other: a system that does not answer
delays no other group, and an address is never requested while it is being released. A failed
release is retried until it succeeds or until its Service requests addresses again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from purelb.core.allocation.ipam import IpamRequest, Leased, Stats
from purelb.core.model import Address, ServiceGroup, ServiceKey
from purelb_agent.ipam.port import Ipam, IpamError
from purelb_agent.runtime import log
from purelb_agent.runtime.workqueue import WorkQueue

_LOOK_SECONDS = 60.0
_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


@dataclass(frozen=True, eq=False)
class _Allocation:
    """A Service waits for addresses."""

    request: IpamRequest
    answer: asyncio.Future[tuple[Leased, ...]]


@dataclass(frozen=True)
class _Release:
    """A Service has left an address; None stands for all of them."""

    service: ServiceKey
    address: Address | None


def _jobs() -> WorkQueue[_Allocation | _Release]:
    return WorkQueue(first_pause=_PAUSE, longest_pause=_LONGEST_PAUSE)


@dataclass
class _Source:
    """A group, the calls queued for it, and the result of the last look at its pool."""

    group: ServiceGroup
    # Deleted: its pool is not looked at any more, but releases may be pending.
    is_gone: bool = False
    task: asyncio.Task[None] | None = None
    jobs: WorkQueue[_Allocation | _Release] = field(default_factory=_jobs)
    # Releases that have not succeeded yet; others in the queue are obsolete.
    pending_releases: set[_Release] = field(default_factory=set)
    stats: Stats | None = None
    error: str = ""
    # Whether its holders were listed: a former allocator may have left addresses there.
    is_checked: bool = False


class IpamQueue:
    """All groups whose addresses an external IPAM allocates."""

    def __init__(self, ipam: Ipam) -> None:
        self.on_stats: Callable[[], None] = lambda: None
        self.on_holders: Callable[[str, frozenset[ServiceKey]], None] = lambda _name, _keys: None
        self._ipam = ipam
        self._sources: dict[str, _Source] = {}
        self._changed = asyncio.Event()

    def follow(self, groups: Iterable[ServiceGroup]) -> None:
        """Set the groups that have a source; a group that is missing counts as deleted."""
        wanted = {group.name: group for group in groups}
        for name, group in wanted.items():
            self._sources.setdefault(name, _Source(group)).group = group
        for name, source in self._sources.items():
            source.is_gone = name not in wanted
        self._changed.set()

    def stats(self, name: str) -> tuple[Stats | None, str]:
        """Return how full a group was when last looked at, and the error of the last look or ""."""
        source = self._sources.get(name)
        return (source.stats, source.error) if source else (None, "")

    async def allocate(self, group: ServiceGroup, request: IpamRequest) -> tuple[Address, ...]:
        """Return the addresses that a Service gets; IpamError if it gets none."""
        answer: asyncio.Future[tuple[Leased, ...]] = asyncio.get_running_loop().create_future()
        self._sources[group.name].jobs.add(_Allocation(request, answer))
        return tuple(leased.address for leased in await answer)

    def release(self, group: str, service: ServiceKey, address: Address | None = None) -> None:
        """Release an address, or all that the Service has there, as soon as the system answers."""
        source = self._sources.get(group)
        if source is not None:
            job = _Release(service, address)
            source.pending_releases.add(job)
            source.jobs.forget(job)
            source.jobs.add(job)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for source in self._sources.values():
                    if source.task is None:
                        source.task = tasks.create_task(self._serve(source))

    async def _serve(self, source: _Source) -> None:
        try:
            while True:
                if source.jobs.is_empty and not source.is_gone:
                    await self._look(source)
                try:
                    async with asyncio.timeout(_LOOK_SECONDS):
                        job = await source.jobs.get()
                except TimeoutError:
                    continue
                await self._work(source, job)
                source.jobs.done(job)
        finally:
            source.jobs.close()

    async def _work(self, source: _Source, job: _Allocation | _Release) -> None:
        if isinstance(job, _Allocation):
            await self._allocate(source, job)
        elif job in source.pending_releases:
            await self._release(source, job)

    async def _allocate(self, source: _Source, job: _Allocation) -> None:
        try:
            leased = await self._ipam.allocate(source.group, job.request)
        except IpamError as error:
            if not job.answer.done():
                job.answer.set_exception(error)
            return
        # What the Service has again must not be released.
        has = {None, *(lease.address for lease in leased)}
        source.pending_releases -= {
            release
            for release in source.pending_releases
            if release.service == job.request.service and release.address in has
        }
        if not job.answer.done():
            job.answer.set_result(leased)

    async def _release(self, source: _Source, job: _Release) -> None:
        name = source.group.name
        try:
            await self._ipam.release(source.group, job.service, job.address)
        except IpamError as error:
            log.warning("notGivenBack", service=job.service, group=name, error=error.message)
            source.jobs.retry(job)
        else:
            source.pending_releases.discard(job)
            source.jobs.forget(job)
            log.info("givenBack", service=job.service, group=name, address=job.address or "all")

    async def _look(self, source: _Source) -> None:
        before = (source.stats, source.error)
        try:
            source.stats = await self._ipam.stats(source.group)
            if not source.is_checked:
                self.on_holders(source.group.name, await self._ipam.holders(source.group))
                source.is_checked = True
            source.error = ""
        except IpamError as error:
            source.error = error.message
        if before != (source.stats, source.error):
            self.on_stats()
