# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Asks other systems for addresses, gives them back, and looks how full their pools are.

Each group has a task of its own that does one thing after the other: what one system does not
answer keeps nobody else waiting, and an address is never asked for while it is being given back.
What could not be given back is tried again until it succeeds, or until its Service asks anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from purelb.core.allocation.ipam import IpamRequest, Leased, Stats
from purelb.core.model import Address, ServiceGroup, ServiceKey
from purelb_agent.ipam.port import Ipam, IpamError
from purelb_agent.runtime import log

_LOOK_SECONDS = 60.0
_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


@dataclass(frozen=True)
class _Question:
    """A Service waits for addresses."""

    request: IpamRequest
    answer: asyncio.Future[tuple[Leased, ...]]


@dataclass(frozen=True)
class _Return:
    """A Service has left an address; None stands for all of them."""

    service: ServiceKey
    address: Address | None


@dataclass
class _Source:
    """A group, what is to be done there, and how it was when it was last looked at."""

    group: ServiceGroup
    # Deleted: there is nothing to look at any more, but there may be something to give back.
    is_gone: bool = False
    task: asyncio.Task[None] | None = None
    jobs: asyncio.Queue[_Question | _Return] = field(default_factory=asyncio.Queue)
    # What is still to be given back, and the pause before the next attempt.
    pending_releases: dict[_Return, float] = field(default_factory=dict)
    stats: Stats | None = None
    problem: str = ""
    # Whether it was asked who has addresses there, which those that came before may have left.
    is_checked: bool = False


class IpamQueue:
    """All groups whose addresses another system gives out."""

    def __init__(self, ipam: Ipam) -> None:
        self.on_stats: Callable[[], None] = lambda: None
        self.on_holders: Callable[[str, frozenset[ServiceKey]], None] = lambda _name, _keys: None
        self._ipam = ipam
        self._sources: dict[str, _Source] = {}
        self._changed = asyncio.Event()

    def follow(self, groups: Iterable[ServiceGroup]) -> None:
        """Take these as all groups that have a source."""
        wanted = {group.name: group for group in groups}
        for name, group in wanted.items():
            self._sources.setdefault(name, _Source(group)).group = group
        for name, source in self._sources.items():
            source.is_gone = name not in wanted
        self._changed.set()

    def stats(self, name: str) -> tuple[Stats | None, str]:
        """How full a group was when it was last looked at, and what is wrong there now."""
        source = self._sources.get(name)
        return (source.stats, source.problem) if source else (None, "")

    async def allocate(self, group: ServiceGroup, request: IpamRequest) -> tuple[Address, ...]:
        """The addresses that a Service gets; IpamError if it gets none."""
        answer: asyncio.Future[tuple[Leased, ...]] = asyncio.get_running_loop().create_future()
        self._sources[group.name].jobs.put_nowait(_Question(request, answer))
        return tuple(leased.address for leased in await answer)

    def release(self, group: str, service: ServiceKey, address: Address | None = None) -> None:
        """Let the system have an address back, or all that the Service has there."""
        source = self._sources.get(group)
        if source is not None:
            job = _Return(service, address)
            source.pending_releases[job] = _PAUSE
            source.jobs.put_nowait(job)

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
        while True:
            if source.jobs.empty() and not source.is_gone:
                await self._look(source)
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    job = await source.jobs.get()
            except TimeoutError:
                continue
            if isinstance(job, _Question):
                await self._ask(source, job)
            elif job in source.pending_releases:
                await self._return(source, job)

    async def _ask(self, source: _Source, question: _Question) -> None:
        try:
            leased = await self._ipam.allocate(source.group, question.request)
        except IpamError as problem:
            if not question.answer.done():
                question.answer.set_exception(problem)
        else:
            # What the Service has again is not to be given back.
            has = {None, *(one.address for one in leased)}
            for job in [
                j for j in source.pending_releases if j.service == question.request.service
            ]:
                if job.address in has:
                    del source.pending_releases[job]
            if not question.answer.done():
                question.answer.set_result(leased)

    async def _return(self, source: _Source, job: _Return) -> None:
        name = source.group.name
        try:
            await self._ipam.release(source.group, job.service, job.address)
        except IpamError as problem:
            log.warning("notGivenBack", service=job.service, group=name, error=problem.message)
            pause = source.pending_releases[job]
            source.pending_releases[job] = min(pause * 2, _LONGEST_PAUSE)
            asyncio.get_running_loop().call_later(pause, source.jobs.put_nowait, job)
        else:
            del source.pending_releases[job]
            address = job.address or "all"
            log.info("givenBack", service=job.service, group=name, address=address)

    async def _look(self, source: _Source) -> None:
        before = (source.stats, source.problem)
        try:
            source.stats = await self._ipam.stats(source.group)
            if not source.is_checked:
                self.on_holders(source.group.name, await self._ipam.holders(source.group))
                source.is_checked = True
            source.problem = ""
        except IpamError as problem:
            source.problem = problem.message
        if before != (source.stats, source.problem):
            self.on_stats()
