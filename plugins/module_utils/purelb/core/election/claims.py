# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which Services PureLB handles: by load balancer class and, next to PureLB v1, by annotation.

Services without a class may be left to another load balancer. PureLB v1 sets the same annotations
as this version, except the pool type. The migration hands a Service over by setting the pool type.
"""

from __future__ import annotations

from typing import FrozenSet, Optional

from ..model import Service
from ..names import LOAD_BALANCER_CLASSES

# None stands for a Service without a class.
Classes = FrozenSet[Optional[str]]
ALL_CLASSES: Classes = frozenset({None, *LOAD_BALANCER_CLASSES})


def claimed(*, unclassed: bool) -> Classes:
    """Return the classes that PureLB allocates for; `unclassed` includes Services without one."""
    return ALL_CLASSES if unclassed else ALL_CLASSES - {None}


def asks_us(service: Service, classes: Classes) -> bool:
    """Whether a Service requests an address from PureLB; one that is being deleted does not."""
    is_wanted = service.is_load_balancer and not service.is_terminating
    return is_wanted and service.load_balancer_class in classes


def concerns_agents(service: Service, classes: Classes) -> bool:
    """Whether agents have to watch a Service."""
    if service.load_balancer_class in classes:
        return True
    return service.load_balancer_class is None and service.pool_type is not None


def is_left_to_others(service: Service, classes: Classes) -> bool:
    """Whether PureLB v1 serves this Service; it sets the same annotations."""
    is_unclassed = service.is_load_balancer and service.load_balancer_class is None
    return is_unclassed and None not in classes


def is_served(service: Service) -> bool:
    """Whether PureLB announces those addresses in a Service's status that are its own.

    They are known by the pools. No annotation is asked: who replaces a Service takes them away.
    """
    return asks_us(service, ALL_CLASSES)
