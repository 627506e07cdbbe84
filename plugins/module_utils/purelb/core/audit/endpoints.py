# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Findings about Services behind whose addresses nothing answers."""

from __future__ import annotations

from typing import AbstractSet, Any, Iterable, Iterator, Mapping, Optional

from ..election.claims import Classes, asks_us
from ..model import Service, ServiceKey
from .findings import Finding, Severity

Json = Mapping[str, Any]


def is_ready_slice(body: Json) -> bool:
    """Whether an EndpointSlice has a ready endpoint, also one without a node."""
    return any(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for endpoint in body.get("endpoints") or ()
    )


def endpoint_findings(
    services: Iterable[Service], classes: Classes, served: Optional[AbstractSet[ServiceKey]]
) -> Iterator[Finding]:
    """Yield Services of ours that have addresses and no ready endpoint.

    `served`: those with a ready endpoint; None if that is not known.
    """
    if served is None:
        return
    for service in services:
        if service.addresses and asks_us(service, classes) and service.key not in served:
            yield Finding(
                Severity.WARNING,
                "noEndpoint",
                f"Service {service.key}",
                "has no ready endpoint, so clients of its addresses get no answer",
                "check its selector, and whether its Pods are ready: kubectl get endpointslices "
                f"-n {service.key.namespace} -l kubernetes.io/service-name={service.key.name}",
            )
