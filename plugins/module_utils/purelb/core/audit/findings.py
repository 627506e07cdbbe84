# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Findings of the audit, of the verification and of the lock report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Dict, Iterable, Literal, Tuple

from ..names import lease_name

# All codes of findings; docs/operate.md explains each.
FindingCode = Literal[
    "addressConflict",
    "addressTwice",
    "allocatorWithoutLeader",
    "answeredTwice",
    "clockAhead",
    "dadFailed",
    "fenceIncomplete",
    "foreignAddress",
    "forgottenTaint",
    "groupNotReady",
    "interfaceDown",
    "leaseExpired",
    "leaseHolder",
    "leaseMalformed",
    "leaseWithoutSubnets",
    "lockAbsent",
    "lockExpired",
    "lockFlapping",
    "lockFree",
    "lockUnreadable",
    "metricsUnreachable",
    "noAnswer",
    "noEligibleNodes",
    "noEndpoint",
    "noLease",
    "noLocalEndpoint",
    "noLocalInterface",
    "noService",
    "nodeAddress",
    "nodeAddressMistaken",
    "nodeAnswers",
    "nodeNotObserved",
    "nodeNotReady",
    "nodeUnread",
    "nodeWithoutAgent",
    "nodesNotExamined",
    "notAnnounced",
    "notHeld",
    "notProbed",
    "outlivesLease",
    "outsidePools",
    "requestsFiltered",
    "segmentNotExamined",
    "segmentUnread",
    "serviceDisputed",
    "servicePending",
    "serviceProxyDown",
    "staleAnnouncer",
    "subnetDeprecated",
    "subnetsDiffer",
    "tentative",
    "twoInterfacesAnswer",
    "versionsDiffer",
    "wrongAnnouncer",
    "wrongAnswer",
    "wrongHolder",
    "wrongInterface",
    "wrongPrefix",
]


class Severity(str, Enum):
    """The severity of a finding; an error means that an address does not work as intended."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """A fault and its remedy."""

    severity: Severity
    code: FindingCode
    object: str
    message: str
    remediation: str


def in_order(findings: Iterable[Finding]) -> Tuple[Finding, ...]:
    """Return the findings sorted: errors first, then by code and object."""
    return tuple(
        sorted(findings, key=lambda f: (f.severity is not Severity.ERROR, f.code, f.object))
    )


def node_title(node: str) -> str:
    """Return the `object` of findings about a Node."""
    return f"node {node}"


def group_title(name: str) -> str:
    """Return the `object` of findings about a ServiceGroup."""
    return f"ServiceGroup {name}"


def lease_title(node: str) -> str:
    """Return the `object` of findings about a node's Lease."""
    return f"Lease {lease_name(node)}"


def vip_title(address: str, services: Iterable[str]) -> str:
    """Return the `object` of findings about an address."""
    return f"{address} ({', '.join(services)})"


def finding_dict(finding: Finding) -> Dict[str, str]:
    """Return a finding as a plain dictionary."""
    return {
        "severity": finding.severity.value,
        "code": finding.code,
        "object": finding.object,
        "message": finding.message,
        "remediation": finding.remediation,
    }
