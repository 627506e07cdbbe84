# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A NetBox as an Ipam.

The client library blocks, so calls run in a thread, one after the other, and the caller waits for a
limited time. The next call finds what an abandoned one has done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from purelb.core.allocation.ipam import IpamRequest, Leased, Stats
from purelb.core.model import Address, NetBoxSource, ServiceGroup, ServiceKey
from purelb_agent.ipam.netbox.client import Login, conversation
from purelb_agent.ipam.netbox.pool import TenantPool
from purelb_agent.ipam.port import CALL_SECONDS, IpamError

# An answer that has begun may end a little late.
_GRACE = 0.5

T = TypeVar("T")


class NetBox:
    """Client of the NetBoxes of all groups; `cluster` marks the addresses of this cluster."""

    def __init__(self, secret: Path, *, cluster: str, seconds: float = CALL_SECONDS) -> None:
        self._login = Login(secret)
        self._cluster = cluster
        self._seconds = seconds
        self._thread = _one_thread()

    async def allocate(self, group: ServiceGroup, request: IpamRequest) -> tuple[Leased, ...]:
        """See Ipam."""
        return await self._ask(group, lambda pool: pool.allocate(request))

    async def release(
        self, group: ServiceGroup, service: ServiceKey, address: Address | None
    ) -> None:
        """See Ipam."""
        await self._ask(group, lambda pool: pool.release(service, address))

    async def stats(self, group: ServiceGroup) -> Stats:
        """See Ipam."""
        return await self._ask(group, lambda pool: pool.stats())

    async def holders(self, group: ServiceGroup) -> frozenset[ServiceKey]:
        """See Ipam."""
        return await self._ask(group, lambda pool: pool.holders())

    async def close(self) -> None:
        """Start no more calls."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, group: ServiceGroup, job: Callable[[TenantPool], T]) -> T:
        source = group.source
        if not isinstance(source, NetBoxSource):
            raise TypeError(group)

        where = f"ServiceGroup {group.name}: NetBox {source.url}"
        if source.token_problem:
            raise IpamError(source.token_problem, is_permanent=True).at(where)

        def talk() -> T:
            with conversation(source.url, self._login, seconds=self._seconds) as api:
                return job(TenantPool(api, tenant=source.tenant, cluster=self._cluster))

        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._seconds + _GRACE):
                return await loop.run_in_executor(self._thread, talk)
        except TimeoutError as error:
            # The thread reads on while the other side sends; the next call gets a new one.
            self._thread.shutdown(wait=False)
            self._thread = _one_thread()
            why = IpamError(f"no answer within {self._seconds:g} s")
            raise why.at(where) from error
        except IpamError as error:
            raise error.at(where) from error


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="netbox")
