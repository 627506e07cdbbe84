# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Findings about Services that lack an address, and about groups that give none.

The allocator's own decision, made again from the same objects, says why a Service lacks one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import FrozenSet, Iterable, Iterator, Mapping, Sequence, Union

from ..allocation.allocate import decide, rebuild
from ..allocation.allocations import Allocations
from ..allocation.choice import Live
from ..allocation.groups import Groups
from ..allocation.outcomes import Ask, Assignment, Refusal
from ..election.claims import ALL_CLASSES, Classes, asks_us
from ..model import Address, Service, ServiceGroup
from ..names import FAMILIES, FIELD_MANAGERS, REEVALUATE_ANNOTATION
from ..times import parse_time
from .findings import Finding, Severity, group_title

# Seconds. An allocator that leads serves a new Service within one, an IPAM within ten.
_UNSERVED = 30.0


@dataclass(frozen=True)
class AllocatorView:
    """What the allocator decides by, except the Services.

    `classes` are those that it serves; `leads`: whether one leads. `of_nodes`: addresses that it
    gives to no Service. `unready` maps each ServiceGroup that is not Ready to the reason.
    """

    groups: Sequence[ServiceGroup] = ()
    unready: Mapping[str, str] = field(default_factory=dict)
    live: Live = field(default_factory=Live)
    of_nodes: FrozenSet[Address] = frozenset()
    classes: Classes = ALL_CLASSES
    leads: bool = True


def group_findings(view: AllocatorView) -> Iterator[Finding]:
    """Yield findings about ServiceGroups that are not Ready, or of a subnet that is replaced."""
    for group in view.groups:
        for pool_range in () if group.source else group.ranges:
            if view.live.replaces(pool_range, group.pool_type):
                yield Finding(
                    Severity.WARNING,
                    "subnetDeprecated",
                    group_title(group.name),
                    f"the network replaces the subnet of {pool_range}: its addresses end with the "
                    "nodes' own ones there, and no Service gets a new one",
                    "add a range of the new subnet, and set the annotation "
                    f"{REEVALUATE_ANNOTATION} on each Service to move it",
                )
    for name, reason in sorted(view.unready.items()):
        yield Finding(
            Severity.WARNING,
            "groupNotReady",
            group_title(name),
            f"allocates no address: {reason}",
            "follow the message; Services keep the addresses that they have from it",
        )


def pending_findings(
    services: Sequence[Service], view: AllocatorView, *, wall_time: float
) -> Iterator[Finding]:
    """Yield findings about Services that lack an address.

    A refusal is a warning, as it is for the Service's owner to do something. An allocator that does
    not give what it should is an error.
    """
    lacking = [service for service in services if _lacks(service, view.classes)]
    if not lacking:
        return
    groups, ledger = Groups(view.groups), _ledger(services, view)
    for service in lacking:
        outcome = decide(service, groups, ledger, view.live, classes=view.classes)
        about, what = f"Service {service.key}", _lacks(service, view.classes)
        if isinstance(outcome, Refusal):
            text = f"{what}: {_refusal(outcome, view)}"
            yield Finding(Severity.WARNING, "servicePending", about, text, "follow the message")
        elif isinstance(outcome, (Ask, Assignment)):
            why = _delay(service, outcome, view, wall_time)
            if why:
                remedy = "see its events and the log of the leading allocator"
                yield Finding(Severity.ERROR, "servicePending", about, f"{what}: {why}", remedy)


def _lacks(service: Service, classes: Classes) -> str:
    """Return what a Service of ours does not have; empty if it has all, or others write it."""
    is_overwritten = service.addresses and service.address_writers - FIELD_MANAGERS
    if not asks_us(service, classes) or is_overwritten:
        return ""
    if not service.addresses:
        return "has no address"
    missing = {*service.families} - {address.version for address in service.addresses}
    return f"has no {FAMILIES[min(missing)]} address" if missing else ""


def _ledger(services: Iterable[Service], view: AllocatorView) -> Allocations:
    groups = Groups(view.groups)
    return rebuild(services, groups, classes=view.classes, of_nodes=view.of_nodes)


def _refusal(outcome: Refusal, view: AllocatorView) -> str:
    texts = (
        f"{outcome.reason.value}: {outcome.message}",
        outcome.detail,
        view.unready.get(outcome.group, ""),
    )
    return "; ".join(filter(None, texts))


def _delay(
    service: Service, outcome: Union[Ask, Assignment], view: AllocatorView, wall_time: float
) -> str:
    """Return why a Service waits for an address that it may have; empty while it is new."""
    if not view.leads:
        return "no allocator leads"
    created = parse_time(service.created)
    if created is not None and wall_time - created < _UNSERVED:
        return ""
    if isinstance(outcome, Ask):
        name = outcome.group.name
        reason = view.unready.get(name, "its events say why")
        return f"the external IPAM of ServiceGroup {name} has allocated none: {reason}"
    return "nothing prevents it, and the leading allocator has not allocated one"
