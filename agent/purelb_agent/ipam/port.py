# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the allocator asks of a system that gives out addresses in place of the cluster.

Each call ends within seconds, by an answer or by an IpamError whose text names the group and what
to do. Nothing is remembered between calls: the other side knows which Service has what, so that a
call that was cut off is simply made again.
"""

from __future__ import annotations

from typing import Protocol

from purelb.core.allocation.ipam import IpamRequest, Leased, Stats
from purelb.core.model import Address, ServiceGroup, ServiceKey

# Each call ends within this, in seconds.
CALL_SECONDS = 5.0


class IpamError(Exception):
    """Why there is no answer.

    `is_exhausted`: the pool has no address left. `is_permanent`: somebody has to change something,
    here or there, so that another try is worth it now and then only; otherwise it passes by itself.
    """

    def __init__(
        self, message: str, *, is_exhausted: bool = False, is_permanent: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.is_exhausted = is_exhausted
        self.is_permanent = is_permanent

    def at(self, where: str) -> IpamError:
        """The same, with where it happened before it."""
        return IpamError(
            f"{where}: {self.message}",
            is_exhausted=self.is_exhausted,
            is_permanent=self.is_permanent,
        )


class Ipam(Protocol):
    """Gives out the addresses of groups that have a source."""

    async def allocate(self, group: ServiceGroup, request: IpamRequest) -> tuple[Leased, ...]:
        """Let the Service have addresses, and tell which: the same ones again if it has some.

        All the explicit ones; else one of each family that there is one of, and an exhausted error
        if there is none at all.
        """

    async def release(
        self, group: ServiceGroup, service: ServiceKey, address: Address | None
    ) -> None:
        """Take an address of the Service's back, None all of them; fine if it has none."""

    async def stats(self, group: ServiceGroup) -> Stats:
        """How full the group's pool is."""

    async def holders(self, group: ServiceGroup, /) -> frozenset[ServiceKey]:
        """The Services that have addresses there, as far as the other side can tell.

        For whoever starts: a Service that was deleted in the meantime has them still.
        """
