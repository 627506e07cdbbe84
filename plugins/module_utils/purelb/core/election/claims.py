# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which Services are ours: by their class, and beside another PureLB by who gave them addresses.

Services without a class may be left to another load balancer. One of the first generation marks
what it serves as we do, but for the type of the pool, which only this generation writes: by that a
Service is handed over.
"""

from __future__ import annotations

from typing import FrozenSet, Optional

from ..model import Service
from ..names import LOAD_BALANCER_CLASSES

# None stands for no class.
Classes = FrozenSet[Optional[str]]
ALL_CLASSES: Classes = frozenset({None, *LOAD_BALANCER_CLASSES})


def claimed(*, unclassed: bool) -> Classes:
    """The classes of Services that ask us for addresses; of those without one only if told so."""
    return ALL_CLASSES if unclassed else ALL_CLASSES - {None}


def asks_us(service: Service, classes: Classes) -> bool:
    """Whether a Service asks us for an address."""
    return service.is_load_balancer and service.load_balancer_class in classes


def concerns_agents(service: Service, classes: Classes) -> bool:
    """Whether agents have to do with a Service."""
    if service.load_balancer_class in classes:
        return True
    return service.load_balancer_class is None and service.pool_type is not None


def is_served(service: Service) -> bool:
    """Whether the addresses that a Service shows are ours to announce."""
    return asks_us(service, ALL_CLASSES) and service.allocated_by_us
