# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The result of an audit: Leases, Nodes and VIPs as they are, and the findings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Dict, Iterable, List, Optional, Tuple

from ..election.election import Decision
from ..election.members import Standing
from ..election.vips import Vip
from ..model import Lease, Outage
from ..names import FAMILIES
from ..times import format_time
from .findings import Finding, finding_dict, in_order, vip_title

# How many candidates of an address are listed by name.
MAX_CANDIDATES = 5


class LeaseState(str, Enum):
    """Whether a Lease is live, with the reason."""

    LIVE = "live"
    EXPIRED = "expired"
    NEVER_RENEWED = "neverRenewed"
    FROM_THE_FUTURE = "fromTheFuture"


@dataclass(frozen=True)
class LeaseReport:
    """A Lease at the time of the audit; `age` is the seconds since its renewal."""

    lease: Lease
    state: LeaseState
    age: Optional[float]
    # The key of the Node's draining taint; empty: none.
    taint: str = ""
    # How well the node is suited for addresses, as all agents see it; of a live one.
    standing: Standing = Standing.FIRST

    @property
    def is_live(self) -> bool:
        """Whether the node takes part in elections."""
        return self.state in (LeaseState.LIVE, LeaseState.FROM_THE_FUTURE)


@dataclass(frozen=True)
class VipReport:
    """A VIP: its expected holder, and in `vip.announcing` the nodes that report holding it."""

    vip: Vip
    decision: Decision

    @property
    def ranked(self) -> List[str]:
        """The first five candidates, the winner first; sorted by name for a remote address."""
        if self.decision.winner is None:
            return sorted(self.decision.candidates)[:MAX_CANDIDATES]
        return [self.decision.winner, *self.decision.runners_up]

    def __str__(self) -> str:
        return vip_title(str(self.vip.address), map(str, self.vip.services))


class NodeState(str, Enum):
    """Whether a Node takes part in elections, with the reason."""

    LIVE = "live"
    # Its agent's Pod is ready and does not renew the Lease; the finding is about the Lease.
    SILENT = "silent"
    DOWN = "down"
    # The DaemonSet puts no agent there; the second one if the Node's label says that it is meant.
    EXCLUDED = "excluded"
    EXEMPT = "exempt"


@dataclass(frozen=True)
class NodeReport:
    """A Node; `reason`: why it takes part in no election, empty if it does."""

    node: str
    state: NodeState
    reason: str = ""
    pod: str = ""
    is_ready: bool = True


@dataclass(frozen=True)
class Report:
    """The result of an audit."""

    leases: Tuple[LeaseReport, ...]
    vips: Tuple[VipReport, ...]
    findings: Tuple[Finding, ...]
    nodes: Tuple[NodeReport, ...] = ()

    def with_findings(self, others: Iterable[Finding]) -> Report:
        """Return the report with additional findings."""
        return replace(self, findings=in_order([*self.findings, *others]))


def report_dict(report: Report) -> Dict[str, Any]:
    """Return the report as plain lists and dictionaries."""
    return {
        "nodes": [_node_dict(node) for node in report.nodes],
        "leases": [_lease_dict(lease) for lease in report.leases],
        "vips": [_vip_dict(vip) for vip in report.vips],
        "findings": [finding_dict(finding) for finding in report.findings],
    }


def _node_dict(report: NodeReport) -> Dict[str, Any]:
    return {
        "node": report.node,
        "state": report.state.value,
        "reason": report.reason,
        "ready": report.is_ready,
        "pod": report.pod,
    }


def _lease_dict(report: LeaseReport) -> Dict[str, Any]:
    lease = report.lease
    return {
        "node": lease.node,
        "holder": lease.holder,
        "instance": lease.instance,
        "subnets": [str(subnet) for subnet in lease.subnets],
        "duration": lease.duration,
        "age": None if report.age is None else round(report.age, 3),
        "live": report.is_live,
        "reason": report.state.value,
        "draining": bool(report.taint),
        "standing": report.standing.name.lower(),
        "outage": None if lease.outage is None else _outage_dict(lease.outage),
    }


def _outage_dict(outage: Outage) -> Dict[str, Any]:
    return {
        "begin": format_time(outage.begin_time),
        "end": format_time(outage.end_time),
        "seconds": round(outage.end_time - outage.begin_time, 3),
    }


def _vip_dict(report: VipReport) -> Dict[str, Any]:
    vip, decision = report.vip, report.decision
    return {
        "address": str(vip.address),
        "family": FAMILIES[vip.address.version],
        "services": [str(key) for key in vip.services],
        "pool_type": vip.pool_type.value,
        "candidates": report.ranked,
        "candidate_count": len(decision.candidates),
        "winner": decision.winner,
        "reason": decision.reason.value,
        "announcing": [
            {"node": entry.node, "interface": entry.interface} for entry in vip.announcing
        ],
    }
