# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What is found wrong: by the audit, which asks nobody, and by those who look further."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Dict, Iterable, Literal, Tuple

from ..names import lease_name

# All that is ever found, by whom it may be; docs/operate.md explains each.
FindingCode = Literal[
    "addressTwice",
    "answeredTwice",
    "clockAhead",
    "dadFailed",
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
    "noLease",
    "noLocalInterface",
    "noService",
    "nodeAddress",
    "nodeNotObserved",
    "nodeUnread",
    "notAnnounced",
    "notHeld",
    "outlivesLease",
    "staleAnnouncer",
    "subnetsDiffer",
    "tentative",
    "wrongAnnouncer",
    "wrongAnswer",
    "wrongHolder",
    "wrongInterface",
    "wrongPrefix",
]


class Severity(str, Enum):
    """How bad a finding is: an error is an address that does not work as it should."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be, and what to do about it."""

    severity: Severity
    code: FindingCode
    object: str
    message: str
    remediation: str


def in_order(findings: Iterable[Finding]) -> Tuple[Finding, ...]:
    """Errors first, then by code and by what they are about."""
    return tuple(
        sorted(findings, key=lambda f: (f.severity is not Severity.ERROR, f.code, f.object))
    )


def lease_title(node: str) -> str:
    """What findings about a node's Lease are about."""
    return f"Lease {lease_name(node)}"


def vip_title(address: str, services: Iterable[str]) -> str:
    """What findings about an address are about."""
    return f"{address} ({', '.join(services)})"


def finding_dict(finding: Finding) -> Dict[str, str]:
    """A finding as plain data."""
    return {
        "severity": finding.severity.value,
        "code": finding.code,
        "object": finding.object,
        "message": finding.message,
        "remediation": finding.remediation,
    }
