# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Interface to an external IPAM, which allocates addresses in place of the cluster.

Each call ends within seconds, with a result or with an IpamError whose text names the group and the
remedy. No state is kept between calls: the other side knows which Service has which address, so an
interrupted call is simply repeated.
"""

from __future__ import annotations

from typing import Protocol

from purelb.core.allocation.ipam import IpamRequest, Leased, Stats
from purelb.core.model import Address, ServiceGroup, ServiceKey

# Each call ends within this, in seconds.
CALL_SECONDS = 5.0


class IpamError(Exception):
    """A call failed.

    `is_exhausted`: the pool has no address left. `is_permanent`: it fails until someone changes
    something, so retries are rare; any other error is expected to pass.
    """

    def __init__(
        self, message: str, *, is_exhausted: bool = False, is_permanent: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.is_exhausted = is_exhausted
        self.is_permanent = is_permanent

    def at(self, where: str) -> IpamError:
        """Return the same error with the place where it happened in front."""
        return IpamError(
            f"{where}: {self.message}",
            is_exhausted=self.is_exhausted,
            is_permanent=self.is_permanent,
        )


class Ipam(Protocol):
    """Allocates the addresses of groups that have a source."""

    async def allocate(self, group: ServiceGroup, request: IpamRequest) -> tuple[Leased, ...]:
        """Give addresses to a Service and return them; the same ones again if it has some.

        Gives all explicit addresses, or else one of each requested family that has a free one.
        Raises an exhausted error if there is none at all.
        """

    async def release(
        self, group: ServiceGroup, service: ServiceKey, address: Address | None
    ) -> None:
        """Release an address of a Service, or all with None; no error if it has none."""

    async def stats(self, group: ServiceGroup) -> Stats:
        """Return how full the group's pool is."""

    async def holders(self, group: ServiceGroup, /) -> frozenset[ServiceKey]:
        """Return the Services that have addresses there, as far as the other side knows.

        At start, to find Services that were deleted while no allocator ran.
        """
