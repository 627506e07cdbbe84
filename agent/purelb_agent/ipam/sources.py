# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Selects the system behind each group and validates what it allocates.

Addresses that were not requested, or that no network carries, are refused here before any node
announces them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from purelb.core.allocation.ipam import IpamRequest, Leased, Stats
from purelb.core.model import Address, NetBoxSource, ServiceGroup, ServiceKey
from purelb_agent.ipam.external import External
from purelb_agent.ipam.metrics import SidecarMetrics
from purelb_agent.ipam.netbox.source import NetBox
from purelb_agent.ipam.port import Ipam, IpamError
from purelb_agent.kube.client import ApiError, Kube

# Where the Secret with NetBox's token is mounted.
NETBOX_SECRET = Path("/etc/purelb/netbox")


async def cluster_name(kube: Kube) -> str:
    """Return a short unique name of this cluster."""
    body = await kube.request("GET", "/api/v1/namespaces/kube-system")
    return str(body["metadata"]["uid"]).partition("-")[0]


class Sources:
    """An Ipam for groups of every kind; an async context manager.

    `cluster` returns the name by which one NetBox keeps the addresses of several clusters apart; it
    is called when the first group needs it. `may_ask` returns whether this process still allocates
    addresses: a process that no longer leads neither allocates nor releases.
    """

    def __init__(
        self,
        metrics: SidecarMetrics,
        *,
        cluster: Callable[[], Awaitable[str]],
        may_ask: Callable[[], bool],
        secret: Path = NETBOX_SECRET,
    ) -> None:
        self._cluster = cluster
        self._may_ask = may_ask
        self._secret = secret
        self._netbox: NetBox | None = None
        self._external = External(metrics)

    async def __aenter__(self) -> Self:
        """Return self: connections are opened when they are needed."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        if self._netbox is not None:
            await self._netbox.close()
        await self._external.close()

    async def _of(self, group: ServiceGroup) -> Ipam:
        if not isinstance(group.source, NetBoxSource):
            return self._external
        if self._netbox is None:
            try:
                self._netbox = NetBox(self._secret, cluster=await self._cluster())
            except ApiError as error:
                why = IpamError(f"this cluster's name is not known yet: {error}")
                raise why.at(f"ServiceGroup {group.name}") from error
        return self._netbox

    def _refuse_unless_leading(self, group: ServiceGroup) -> None:
        if not self._may_ask():
            raise IpamError(f"ServiceGroup {group.name}: not asked: this allocator does not lead")

    async def allocate(self, group: ServiceGroup, request: IpamRequest) -> tuple[Leased, ...]:
        """See Ipam."""
        source = await self._of(group)
        self._refuse_unless_leading(group)
        leased = await source.allocate(group, request)
        problem = _problem(leased, request)
        if problem:
            raise IpamError(f"ServiceGroup {group.name}: {problem}", is_permanent=True)
        return leased

    async def release(
        self, group: ServiceGroup, service: ServiceKey, address: Address | None
    ) -> None:
        """See Ipam."""
        source = await self._of(group)
        self._refuse_unless_leading(group)
        await source.release(group, service, address)

    async def stats(self, group: ServiceGroup) -> Stats:
        """See Ipam."""
        return await (await self._of(group)).stats(group)

    async def holders(self, group: ServiceGroup) -> frozenset[ServiceKey]:
        """See Ipam."""
        return await (await self._of(group)).holders(group)


def _problem(leased: tuple[Leased, ...], request: IpamRequest) -> str:
    """Return what is wrong with an answer, or ""."""
    addresses = [lease.address for lease in leased]
    given = ", ".join(map(str, addresses))
    for a in addresses:
        if a.is_unspecified or a.is_multicast or a.is_loopback or a.is_link_local:
            return f"it gave {a}, which no Service can have"
    if request.explicit and set(addresses) != set(request.explicit):
        return f"it gave {given} instead of {', '.join(map(str, request.explicit))}"
    versions = [a.version for a in addresses]
    if not request.explicit and (
        len(set(versions)) < len(versions) or not set(versions) <= set(request.families)
    ):
        return f"it gave {given}: it must give one address of each wanted family"
    return ""
