# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The addresses of one NetBox tenant: which a Service has, and how it gets and gives back one.

`reserved` ones are free. One that a Service has is `active`, and its description says
`purelb <cluster> <namespace>/<name>`; that is all the state there is. It is changed only as it was
read a moment before, so that of two who want it one gets it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_interface
from typing import Any

import pynetbox

from purelb.core.allocation.ipam import IpamRequest, Leased, Stats, listing
from purelb.core.model import Address, ServiceKey
from purelb.core.names import FAMILIES
from purelb_agent.ipam.port import IpamError

_RESERVED, _ACTIVE = "reserved", "active"
# NetBox's own limit.
_LONGEST_DESCRIPTION = 200
_CHANGED = 412
# Without conditional requests the later of two writers wins: how long the earlier waits to see it.
_SETTLE_SECONDS = 0.3


@dataclass(frozen=True)
class Entry:
    """An address in NetBox, as it was read."""

    number: int
    address: Address
    prefixlen: int
    status: str
    description: str

    @classmethod
    def of(cls, record: Any) -> Entry:
        """The entry of a record of pynetbox's."""
        one = ip_interface(record.address)
        status = getattr(record.status, "value", "")
        return cls(record.id, one.ip, one.network.prefixlen, status, record.description or "")

    @property
    def leased(self) -> Leased:
        """What the allocator is told of it."""
        return Leased(self.address, self.prefixlen)


class TenantPool:
    """One conversation about one tenant; blocks."""

    def __init__(self, api: Any, *, tenant: str, cluster: str) -> None:
        self._api = api
        self._prefix = f"purelb {cluster} "
        self._tenant = tenant
        self._tenant_id = self._find_tenant()

    def _find_tenant(self) -> int:
        for field in ("slug", "name"):
            for found in self._api.tenancy.tenants.filter(**{field: self._tenant}):
                return int(found.id)
        raise IpamError(
            f"there is no tenant {self._tenant!r} that the token's user may see: write the slug or "
            "the name of one into spec.netbox.tenant",
            is_permanent=True,
        )

    def allocate(self, request: IpamRequest) -> tuple[Leased, ...]:
        """See Ipam.allocate."""
        held = self._held_by(request.service)
        if request.explicit:
            return tuple(self._explicit(one, request, held) for one in request.explicit)
        leased = []
        for version in request.families:
            mine = (one for one in held if one.address.version == version)
            found = next(mine, None) or self._first_free(version, request.service)
            leased += [found.leased] if found else []
        if not leased:
            names = " and ".join(FAMILIES[version] for version in request.families)
            raise IpamError(
                f"tenant {self._tenant} has no {names} address left: give it some with the status "
                f"{_RESERVED!r}, or delete a Service",
                is_exhausted=True,
            )
        return tuple(leased)

    def release(self, service: ServiceKey, address: Address | None) -> None:
        """See Ipam.release."""
        for one in self._held_by(service):
            if address in (None, one.address):
                others = [user for user in self._users(one) if user != str(service)]
                if not self._write(one, others):
                    raise IpamError(f"somebody else is changing {one.address} at this moment")

    def stats(self) -> Stats:
        """See Ipam.stats: what others have of the tenant's is not in the pool."""
        entries = self._entries(status=[_RESERVED, _ACTIVE])
        used = [one for one in entries if self._users(one)]
        pool = [*used, *(one for one in entries if one.status == _RESERVED)]
        return Stats(
            in_use=_by_version(used),
            size=dict(_by_version(pool)),
            display=listing(one.leased for one in pool),
        )

    def holders(self) -> frozenset[ServiceKey]:
        """See Ipam."""
        entries = self._entries(status=_ACTIVE, description__isw=self._prefix.strip())
        users = (user.partition("/") for one in entries for user in self._users(one))
        return frozenset(ServiceKey(namespace, name) for namespace, _slash, name in users)

    def _entries(self, **filters: Any) -> list[Entry]:
        found = self._api.ipam.ip_addresses.filter(tenant_id=self._tenant_id, **filters)
        return [Entry.of(record) for record in found]

    def _users(self, one: Entry) -> tuple[str, ...]:
        """The Services of this cluster that have an address."""
        is_ours = one.status == _ACTIVE and one.description.startswith(self._prefix)
        return tuple(one.description[len(self._prefix) :].split()) if is_ours else ()

    def _held_by(self, service: ServiceKey) -> list[Entry]:
        entries = self._entries(status=_ACTIVE, description__ic=str(service))
        return [one for one in entries if str(service) in self._users(one)]

    def _first_free(self, version: int, service: ServiceKey) -> Entry | None:
        for record in self._api.ipam.ip_addresses.filter(
            tenant_id=self._tenant_id, status=_RESERVED, family=version, limit=50
        ):
            one = Entry.of(record)
            if self._write(one, [str(service)]):
                return one
        return None

    def _explicit(self, address: Address, request: IpamRequest, held: Iterable[Entry]) -> Leased:
        mine = next((one for one in held if one.address == address), None)
        if mine is not None:
            return mine.leased
        entries = self._entries(address=str(address))
        for one in entries:
            users = self._users(one)
            is_free = one.status == _RESERVED or bool(users and request.sharing_key)
            if is_free and self._write(one, [*users, str(request.service)]):
                return one.leased
        raise IpamError(self._why_not(address, entries), is_permanent=True)

    def _why_not(self, address: Address, entries: list[Entry]) -> str:
        if not entries:
            return (
                f"{address} is no address of tenant {self._tenant}: add it there with the status "
                f"{_RESERVED!r}, or ask for another one"
            )
        users = self._users(entries[0])
        if users:
            return f"{address} belongs to {' and '.join(users)}: ask for another one"
        return (
            f"{address} has the status {entries[0].status!r} and the description "
            f"{entries[0].description!r}: set the status to {_RESERVED!r}, or ask for another one"
        )

    def _write(self, one: Entry, users: list[str]) -> bool:
        """Let these Services have an address, if it is still as it was read."""
        description = self._prefix + " ".join(users) if users else ""
        if len(description) > _LONGEST_DESCRIPTION:
            raise IpamError(
                f"{one.address} has no room in its description for all who share it "
                f"({_LONGEST_DESCRIPTION} letters): let fewer Services share an address",
                is_permanent=True,
            )
        wanted = {"status": _ACTIVE if users else _RESERVED, "description": description}
        record = self._api.ipam.ip_addresses.get(one.number)
        if record is None or Entry.of(record) != one:
            return False
        is_conditional = bool(self._api.http_session.etag)
        try:
            record.update(wanted)
        except pynetbox.RequestError as problem:
            if problem.req.status_code == _CHANGED:
                return False
            raise
        return is_conditional or self._is_settled(one.number, wanted)

    def _is_settled(self, number: int, wanted: dict[str, str]) -> bool:
        """Whether nobody else wrote at the same time."""
        time.sleep(_SETTLE_SECONDS)
        record = self._api.ipam.ip_addresses.get(number)
        now = Entry.of(record) if record is not None else None
        return now is not None and wanted == {"status": now.status, "description": now.description}


def _by_version(entries: Iterable[Entry]) -> dict[int, int]:
    counts = dict.fromkeys(FAMILIES, 0)
    for one in entries:
        counts[one.address.version] += 1
    return counts
