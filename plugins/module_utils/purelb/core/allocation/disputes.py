# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What others do to a Service of ours again and again, in words for an event and a finding."""

from __future__ import annotations

from dataclasses import replace
from typing import FrozenSet, Tuple

from ..model import Address, Service
from ..names import (
    ALLOCATED_BY_ANNOTATION,
    ALLOW_LOCAL_ANNOTATION,
    FIELD_MANAGERS,
    REEVALUATE_ANNOTATION,
)
from .outcomes import Assignment, Outcome

_OTHER_CLASS = (
    "name the one that shall serve it in spec.loadBalancerClass, or switch the other one off "
    "(k3s: --disable=servicelb)"
)


def essence_of(outcome: Outcome) -> Outcome:
    """Return an outcome without what depends on how the Service looked before.

    Two of the same essence, one after the other, mean that the first was undone.
    """
    if isinstance(outcome, Assignment):
        return replace(outcome, sets_cluster=False, partial=(), ambiguous=())
    return outcome


def foreign_entries(service: Service, own: Tuple[Address, ...]) -> Tuple[str, ...]:
    """Return what the Service's status has that is not ours, as texts."""
    more = ("host names or addresses in ipMode Proxy",) if service.other_ingress else ()
    return (*(str(address) for address in service.addresses if address not in own), *more)


def overwritten(service: Service, own: Tuple[Address, ...]) -> Tuple[str, str]:
    """Return what is wrong with a Service in whose status others write, and the remedy."""
    found = ", ".join(foreign_entries(service, own))
    what = f"{_names(service.address_writers)} writes {found} into its status"
    return f"{what}: two controllers serve it", _OTHER_CLASS


def kept_local(service: Service) -> Tuple[str, str]:
    """Return what is wrong with a Service whose traffic policy is set to Local again."""
    what = (
        f"{_names(service.policy_writers)} sets externalTrafficPolicy to Local again, and a local "
        "address is on one node only, which need not have an endpoint"
    )
    return (
        what,
        f"set Cluster where the manifest is kept, or the annotation {ALLOW_LOCAL_ANNOTATION}",
    )


def dispute(service: Service, outcome: Outcome, own: Tuple[Address, ...]) -> Tuple[str, str]:
    """Return what others undo again and again, and the remedy; `service` is what they left."""
    if foreign_entries(service, own):
        return overwritten(service, own)
    if isinstance(outcome, Assignment) and outcome.sets_cluster:
        return kept_local(service)
    if service.asks_reevaluation:
        return (
            f"the annotation {REEVALUATE_ANNOTATION} is set again whenever it has been removed",
            "take it out of the manifest",
        )
    remedy = (
        "have the tool that applies the Service leave its status and annotations such as "
        f"{ALLOCATED_BY_ANNOTATION} alone"
    )
    return "its annotations or its addresses are removed whenever they have been written", remedy


def _names(writers: FrozenSet[str]) -> str:
    others = sorted(filter(None, writers - FIELD_MANAGERS))
    return " and ".join(others) or "another program"
