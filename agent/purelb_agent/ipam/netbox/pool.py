# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The addresses of one NetBox tenant: which Service has which, allocate and release.

A `reserved` address is free. An address of a Service is `active` with the description
`purelb <cluster> <namespace>/<name>`; there is no other state. An address is changed only if it is
still as it was read a moment before, so one of two concurrent writers gets it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_interface
from typing import Any

import pynetbox

from purelb.core.addresses import parse_address
from purelb.core.allocation.ipam import IpamRequest, Leased, Stats, listing
from purelb.core.model import Address, ServiceKey
from purelb.core.names import FAMILIES
from purelb_agent.ipam.port import IpamError

_RESERVED, _ACTIVE = "reserved", "active"
# NetBox's own limit.
_LONGEST_DESCRIPTION = 200
_CHANGED = 412
# Without conditional requests the later of two writers wins; the earlier waits this long to see.
_SETTLE_SECONDS = 0.3


def _is_plain(address: Address) -> bool:
    try:
        return parse_address(str(address)) == address
    except ValueError:
        return False


@dataclass(frozen=True)
class Entry:
    """An address as read from NetBox."""

    number: int
    address: Address
    prefixlen: int
    status: str
    description: str

    @classmethod
    def of(cls, record: Any) -> Entry:
        """Return the entry for a record of pynetbox.

        Raises IpamError for a second spelling of a number: it could be allocated twice.
        """
        interface = ip_interface(record.address)
        if not _is_plain(interface.ip):
            raise IpamError(
                f"{record.address} is another spelling of an address: write it in NetBox as IPv4, "
                "without a zone",
                is_permanent=True,
            )
        status = getattr(record.status, "value", "")
        return cls(
            record.id, interface.ip, interface.network.prefixlen, status, record.description or ""
        )

    @property
    def leased(self) -> Leased:
        """The address and its mask."""
        return Leased(self.address, self.prefixlen)


class TenantPool:
    """The addresses of one tenant, for one conversation; blocks."""

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
            return tuple(self._explicit(address, request, held) for address in request.explicit)
        leased = []
        for version in request.families:
            mine = (entry for entry in held if entry.address.version == version)
            found = next(mine, None) or self._first_free(version, request.service)
            leased += [found.leased] if found else []
        if not leased:
            names = " and ".join(FAMILIES[version] for version in request.families)
            raise IpamError(
                f"tenant {self._tenant} has no {names} address left: add some with the status "
                f"{_RESERVED!r}, or delete a Service",
                is_exhausted=True,
            )
        return tuple(leased)

    def release(self, service: ServiceKey, address: Address | None) -> None:
        """See Ipam.release."""
        for entry in self._held_by(service):
            if address in (None, entry.address):
                others = [user for user in self._users(entry) if user != str(service)]
                if not self._write(entry, others):
                    raise IpamError(f"another client is changing {entry.address} at this moment")

    def stats(self) -> Stats:
        """See Ipam.stats; active addresses that are not ours do not count."""
        entries = self._entries(status=[_RESERVED, _ACTIVE])
        used = [entry for entry in entries if self._users(entry)]
        pool = [*used, *(entry for entry in entries if entry.status == _RESERVED)]
        return Stats(
            in_use=_by_version(used),
            size=dict(_by_version(pool)),
            display=listing(entry.leased for entry in pool),
        )

    def holders(self) -> frozenset[ServiceKey]:
        """See Ipam."""
        entries = self._entries(status=_ACTIVE, description__isw=self._prefix.strip())
        users = (user.partition("/") for entry in entries for user in self._users(entry))
        return frozenset(ServiceKey(namespace, name) for namespace, _slash, name in users)

    def _entries(self, **filters: Any) -> list[Entry]:
        found = self._api.ipam.ip_addresses.filter(tenant_id=self._tenant_id, **filters)
        return [Entry.of(record) for record in found]

    def _users(self, entry: Entry) -> tuple[str, ...]:
        """Return the Services of this cluster that have an address."""
        is_ours = entry.status == _ACTIVE and entry.description.startswith(self._prefix)
        return tuple(entry.description[len(self._prefix) :].split()) if is_ours else ()

    def _held_by(self, service: ServiceKey) -> list[Entry]:
        entries = self._entries(status=_ACTIVE, description__ic=str(service))
        return [entry for entry in entries if str(service) in self._users(entry)]

    def _first_free(self, version: int, service: ServiceKey) -> Entry | None:
        for record in self._api.ipam.ip_addresses.filter(
            tenant_id=self._tenant_id, status=_RESERVED, family=version, limit=50
        ):
            entry = Entry.of(record)
            if self._write(entry, [str(service)]):
                return entry
        return None

    def _explicit(self, address: Address, request: IpamRequest, held: Iterable[Entry]) -> Leased:
        mine = next((entry for entry in held if entry.address == address), None)
        if mine is not None:
            return mine.leased
        entries = self._entries(address=str(address))
        for entry in entries:
            users = self._users(entry)
            is_free = entry.status == _RESERVED or bool(users and request.sharing_key)
            if is_free and self._write(entry, [*users, str(request.service)]):
                return entry.leased
        raise IpamError(self._why_not(address, entries), is_permanent=True)

    def _why_not(self, address: Address, entries: list[Entry]) -> str:
        if not entries:
            return (
                f"{address} is no address of tenant {self._tenant}: add it there with the status "
                f"{_RESERVED!r}, or request another one"
            )
        users = self._users(entries[0])
        if users:
            return f"{address} belongs to {' and '.join(users)}: request another one"
        return (
            f"{address} has the status {entries[0].status!r} and the description "
            f"{entries[0].description!r}: set the status to {_RESERVED!r}, or request another one"
        )

    def _write(self, entry: Entry, users: list[str]) -> bool:
        """Give an address to these Services; returns False if it is no longer as it was read."""
        description = self._prefix + " ".join(users) if users else ""
        if len(description) > _LONGEST_DESCRIPTION:
            raise IpamError(
                f"{entry.address} has no room in its description for all Services that share it "
                f"({_LONGEST_DESCRIPTION} letters): let fewer Services share an address",
                is_permanent=True,
            )
        wanted = {"status": _ACTIVE if users else _RESERVED, "description": description}
        record = self._api.ipam.ip_addresses.get(entry.number)
        if record is None or Entry.of(record) != entry:
            return False
        is_conditional = bool(self._api.http_session.etag)
        try:
            record.update(wanted)
        except pynetbox.RequestError as error:
            if error.req.status_code == _CHANGED:
                return False
            raise
        return is_conditional or self._is_settled(entry.number, wanted)

    def _is_settled(self, number: int, wanted: dict[str, str]) -> bool:
        """Return whether no other client wrote at the same time."""
        time.sleep(_SETTLE_SECONDS)
        record = self._api.ipam.ip_addresses.get(number)
        now = Entry.of(record) if record is not None else None
        return now is not None and wanted == {"status": now.status, "description": now.description}


def _by_version(entries: Iterable[Entry]) -> dict[int, int]:
    counts = dict.fromkeys(FAMILIES, 0)
    for entry in entries:
        counts[entry.address.version] += 1
    return counts
