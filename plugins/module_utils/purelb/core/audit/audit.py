# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The audit of a cluster from its Leases and Services alone, without access to nodes.

It uses the same election as the agents. It compares a Lease with the wall clock, because it reads
the Lease only once; an agent uses its monotonic clock since it saw the Lease change.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from ..election.claims import is_served
from ..election.draining import Drained
from ..election.election import Decision, Member, MembershipView, elect, prefer
from ..election.leases import taint_of
from ..election.vips import Vip, vips_of
from ..model import Address, Lease, Outage, PoolType, Reason, Service, ServiceGroup, ServiceKey
from ..names import FAMILIES
from ..times import format_time
from .findings import Finding, Severity, finding_dict, in_order, lease_title, vip_title

# How many candidates of an address are listed by name.
MAX_CANDIDATES = 5
# `map`, or a replacement that uses several processors.
ParallelMap = Callable[[Callable[[Vip], Decision], Sequence[Vip]], Iterable[Decision]]


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


@dataclass(frozen=True)
class Report:
    """The result of an audit."""

    leases: Tuple[LeaseReport, ...]
    vips: Tuple[VipReport, ...]
    findings: Tuple[Finding, ...]

    def with_findings(self, others: Iterable[Finding]) -> Report:
        """Return the report with additional findings."""
        return replace(self, findings=in_order([*self.findings, *others]))


def audit(  # noqa: PLR0913 - all input of an audit, and how to parallelise it
    leases: Iterable[Lease],
    services: Iterable[Service],
    *,
    wall_time: float,
    drained: Optional[Mapping[str, Drained]] = None,
    endpoints: Optional[Mapping[ServiceKey, FrozenSet[str]]] = None,
    groups: Optional[Sequence[ServiceGroup]] = None,
    parallel_map: ParallelMap = map,
) -> Report:
    """Audit Leases and Services as they were listed at `wall_time` (seconds since the epoch).

    `drained`: the draining Nodes by name. `endpoints` maps each Service to the nodes with a ready
    endpoint. `groups`: the pools; None if they are not known. `parallel_map` runs the elections.
    """
    lease_reports = tuple(
        replace(_lease_report(lease, wall_time), taint=taint_of(lease, drained or {}))
        for lease in sorted(leases, key=lambda lease: lease.node)
    )
    known = tuple(services)
    members = tuple(
        Member(r.lease.node, r.lease.subnets, r.taint) for r in lease_reports if r.is_live
    )
    membership = MembershipView(members)
    decide = partial(_decide, membership=membership, endpoints=endpoints or {})
    addresses = vips_of(known, groups or ())
    vips = tuple(map(VipReport, addresses, parallel_map(decide, addresses)))
    findings = [finding for report in lease_reports for finding in _lease_findings(report)]
    findings += _service_findings(known)
    live = frozenset(member.node for member in members)
    findings += [finding for vip in vips for finding in _vip_findings(vip, live)]
    findings += () if groups is None else map(_outside_pools, _unpooled(vips))
    return Report(lease_reports, vips, in_order(findings))


def _decide(
    vip: Vip, membership: MembershipView, endpoints: Mapping[ServiceKey, FrozenSet[str]]
) -> Decision:
    if vip.pool_type is PoolType.LOCAL:
        others = MAX_CANDIDATES - 1
        decision = elect(vip.address, membership, runners_up=others)
        if not vip.has_affinity:
            return decision
        return prefer(vip.address, decision, vip.endpoint_nodes(endpoints), runners_up=others)
    nodes = membership.remote_nodes(None if vip.everywhere else vip.endpoint_nodes(endpoints))
    reason = Reason.ANNOUNCING_NON_LOCAL if nodes else Reason.NO_LOCAL_ENDPOINT
    return Decision(None, reason, nodes)


def _lease_report(lease: Lease, wall_time: float) -> LeaseReport:
    if lease.renew_time is None:
        return LeaseReport(lease, LeaseState.NEVER_RENEWED, None)
    age = wall_time - lease.renew_time
    if age > lease.duration:
        return LeaseReport(lease, LeaseState.EXPIRED, age)
    if age < -lease.duration:
        return LeaseReport(lease, LeaseState.FROM_THE_FUTURE, age)
    return LeaseReport(lease, LeaseState.LIVE, age)


def _lease_findings(report: LeaseReport) -> Iterable[Finding]:
    lease, name = report.lease, lease_title(report.lease.node)
    if report.state in (LeaseState.EXPIRED, LeaseState.NEVER_RENEWED):
        since = "was never renewed" if report.age is None else f"is {report.age:.0f} s old"
        yield Finding(
            Severity.WARNING,
            "leaseExpired",
            name,
            f"{since} with a duration of {lease.duration:.0f} s: {lease.node} announces nothing",
            f"look at the lbnodeagent pod on {lease.node}; delete the Lease if the node is gone",
        )
    if report.state is LeaseState.FROM_THE_FUTURE:
        yield Finding(
            Severity.WARNING,
            "clockAhead",
            name,
            f"was renewed {-(report.age or 0.0):.0f} s in the future",
            f"set the clock of {lease.node} or of this machine (elections do not depend on it)",
        )
    if report.is_live and not lease.subnets:
        yield Finding(
            Severity.WARNING,
            "leaseWithoutSubnets",
            name,
            f"{lease.node} is a candidate for no address",
            "check the node's default route and the LBNodeAgent's localInterface",
        )
    if lease.malformed:
        yield Finding(
            Severity.WARNING,
            "leaseMalformed",
            name,
            f"its subnets annotation holds {', '.join(lease.malformed)}, which is no CIDR",
            "find out who else writes this Lease; its agent corrects it with the next renewal",
        )
    if lease.holder != lease.node:
        yield Finding(
            Severity.WARNING,
            "leaseHolder",
            name,
            f"is held by {lease.holder or 'nobody'} instead of {lease.node}",
            "find out who else writes this Lease; its agent corrects it with the next renewal",
        )


def _service_findings(services: Iterable[Service]) -> Iterable[Finding]:
    holders: Dict[Address, List[Service]] = defaultdict(list)
    for service in services:
        if is_served(service):
            for address in service.addresses:
                holders[address].append(service)
    for address, owners in holders.items():
        keys = {s.sharing_key for s in owners}
        if len(owners) > 1 and (len(keys) > 1 or None in keys):
            yield Finding(
                Severity.ERROR,
                "addressTwice",
                str(address),
                f"belongs to {', '.join(sorted(str(s.key) for s in owners))}",
                "delete one of the Services, or give both one purelb.io/allow-shared-ip key",
            )


def _vip_findings(report: VipReport, live: frozenset[str]) -> Iterable[Finding]:
    vip, where = report.vip, str(report)
    announcing = {entry.node for entry in vip.announcing}
    if vip.pool_type is PoolType.REMOTE:
        yield from _remote_findings(report, where, announcing, live)
        return
    winner = report.decision.winner
    if winner is None:
        yield Finding(
            Severity.ERROR,
            Reason.NO_ELIGIBLE_NODES.value,
            where,
            "no live node has a subnet that contains it",
            "check the pool against the subnets of the Leases",
        )
    elif winner not in announcing:
        yield Finding(
            Severity.ERROR,
            "notAnnounced",
            where,
            f"{winner} wins the election and does not say that it announces it",
            f"look at the lbnodeagent log on {winner}",
        )
    for node in sorted(announcing - {winner}):
        if node not in live:
            yield _stale(where, node)
        else:
            yield Finding(
                Severity.ERROR,
                "wrongAnnouncer",
                where,
                f"the Service says that {node} announces it; the winner is {winner or 'nobody'}",
                f"see on {node} whether the address is on an interface",
            )


def _unpooled(vips: Iterable[VipReport]) -> Iterable[VipReport]:
    return (report for report in vips if not report.vip.is_in_pool)


def _outside_pools(report: VipReport) -> Finding:
    return Finding(
        Severity.WARNING,
        Reason.OUTSIDE_POOLS.value,
        str(report),
        "no ServiceGroup has it: agents that knew it in one go on, agents that start do not "
        "announce it",
        "put the range back, or set purelb.io/re-evaluate on the Service for another address",
    )


def _remote_findings(
    report: VipReport, where: str, announcing: Set[str], live: frozenset[str]
) -> Iterable[Finding]:
    """Yield findings about a remote address, which every expected node announces."""
    expected = report.decision.candidates
    for node in sorted(expected - announcing):
        yield Finding(
            Severity.WARNING if expected & announcing else Severity.ERROR,
            "notAnnounced",
            where,
            f"{node} does not say that it announces it",
            f"look at the lbnodeagent log on {node}",
        )
    for node in sorted(announcing - live):
        yield _stale(where, node)


def _stale(where: str, node: str) -> Finding:
    return Finding(
        Severity.WARNING,
        "staleAnnouncer",
        where,
        f"the Service says that {node} announces it; that node has no live Lease",
        "another node's agent takes the entry away",
    )


def as_dict(report: Report) -> Dict[str, Any]:
    """Return the report as plain lists and dictionaries."""
    return {
        "leases": [_lease_dict(lease) for lease in report.leases],
        "vips": [_vip_dict(vip) for vip in report.vips],
        "findings": [finding_dict(finding) for finding in report.findings],
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
