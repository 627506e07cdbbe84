# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Findings about Services that another program writes, too, as the API server noted it."""

from __future__ import annotations

from typing import Iterable, Iterator, Sequence

from ..allocation.allocate import rebuild
from ..allocation.disputes import foreign_entries, kept_local, overwritten
from ..allocation.groups import Groups
from ..allocation.own import own_addresses
from ..election.claims import asks_us
from ..model import Address, PoolType, Service
from ..names import FIELD_MANAGERS
from .findings import Finding, Severity
from .pending import AllocatorView


def disputed_findings(services: Sequence[Service], view: AllocatorView) -> Iterator[Finding]:
    """Yield findings about Services of ours whose addresses or traffic policy others overwrite."""
    groups = Groups(view.groups)
    ledger = rebuild(services, groups, classes=view.classes, of_nodes=view.of_nodes)
    for service in services:
        if not asks_us(service, view.classes):
            continue
        own, about = own_addresses(service, groups, ledger), f"Service {service.key}"
        if foreign_entries(service, own) and service.address_writers - FIELD_MANAGERS:
            yield Finding(Severity.ERROR, "serviceDisputed", about, *overwritten(service, own))
        elif _is_kept_local(service, own, groups):
            yield Finding(Severity.WARNING, "serviceDisputed", about, *kept_local(service))


def _is_kept_local(service: Service, own: Iterable[Address], groups: Groups) -> bool:
    """Whether the policy is Local although the allocator sets Cluster before it gives addresses."""
    is_local = service.is_external_local and not service.allows_local
    giving = (groups.holding(address) for address in own)
    return is_local and any(g is not None and g.pool_type is PoolType.LOCAL for g in giving)
