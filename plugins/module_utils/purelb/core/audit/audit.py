# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The audit of a cluster from its Leases and Services alone, without access to nodes.

It uses the same election as the agents. It compares a Lease with the wall clock, because it reads
the Lease only once; an agent uses its monotonic clock since it saw the Lease change.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import (
    Callable,
    FrozenSet,
    Iterable,
    Mapping,
    Optional,
    Sequence,
    Set,
)

from ..allocation.duplicates import listed_duplicates
from ..election.draining import NodeMarks, marks_of
from ..election.election import Decision, MembershipView, elect, prefer
from ..election.members import Standing, members_of
from ..election.vips import Vip, vips_of
from ..model import Lease, PoolType, Reason, Service, ServiceGroup, ServiceKey
from .findings import Finding, Severity, in_order, lease_title
from .report import MAX_CANDIDATES, LeaseReport, LeaseState, Report, VipReport

# `map`, or a replacement that uses several processors.
ParallelMap = Callable[[Callable[[Vip], Decision], Sequence[Vip]], Iterable[Decision]]


def audit(  # noqa: PLR0913 - all input of an audit, and how to parallelise it
    leases: Iterable[Lease],
    services: Iterable[Service],
    *,
    wall_time: float,
    marked: Optional[Mapping[str, NodeMarks]] = None,
    endpoints: Optional[Mapping[ServiceKey, FrozenSet[str]]] = None,
    groups: Optional[Sequence[ServiceGroup]] = None,
    parallel_map: ParallelMap = map,
) -> Report:
    """Audit Leases and Services as they were listed at `wall_time` (seconds since the epoch).

    `marked`: the Nodes that something keeps addresses off. `endpoints` maps each Service to the
    nodes with a ready endpoint. `groups`: the pools; None if they are not known. `parallel_map`
    runs the elections.
    """
    found = [_lease_report(lease, wall_time) for lease in leases]
    members = members_of((report.lease for report in found if report.is_live), marked or {})
    standings = {member.node: member.standing for member in members}
    lease_reports = tuple(
        replace(
            report,
            taint=marks_of(report.lease, marked or {}).taint,
            standing=standings.get(report.lease.node, Standing.FIRST),
        )
        for report in sorted(found, key=lambda report: report.lease.node)
    )
    known = tuple(services)
    membership = MembershipView(members)
    decide = partial(_decide, membership=membership, endpoints=endpoints or {})
    addresses = vips_of(known, groups or ())
    vips = tuple(map(VipReport, addresses, parallel_map(decide, addresses)))
    findings = [finding for report in lease_reports for finding in _lease_findings(report)]
    findings += _service_findings(known, vips)
    live = frozenset(member.node for member in members)
    findings += [finding for vip in vips for finding in _vip_findings(vip, live)]
    findings += () if groups is None else map(_outside_pools, _unpooled(vips))
    duplicates = listed_duplicates(r.lease for r in lease_reports if r.is_live)
    findings += [
        _conflict(v, duplicates[v.vip.address]) for v in vips if v.vip.address in duplicates
    ]
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
    if nodes:
        return Decision(None, Reason.ANNOUNCING_NON_LOCAL, nodes)
    has_nodes = bool(membership.remote_nodes()) and not vip.everywhere
    reason = Reason.NO_LOCAL_ENDPOINT if has_nodes else Reason.NO_ELIGIBLE_NODES
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
    if lease.malformed:
        yield Finding(
            Severity.WARNING,
            "leaseMalformed",
            name,
            f"its subnets annotation holds {', '.join(lease.malformed)}, no CIDR of an interface",
            "find the other program that writes this Lease; the next renewal corrects it",
        )
    if lease.holder != lease.node:
        yield Finding(
            Severity.WARNING,
            "leaseHolder",
            name,
            f"is held by {lease.holder or 'no node'} instead of {lease.node}",
            "find the other program that writes this Lease; the next renewal corrects it",
        )


def _service_findings(services: Iterable[Service], vips: Iterable[VipReport]) -> Iterable[Finding]:
    sharing_key = {service.key: service.sharing_key for service in services}
    for vip in (report.vip for report in vips):
        keys = {sharing_key[owner] for owner in vip.services}
        if len(vip.services) > 1 and (len(keys) > 1 or None in keys):
            yield Finding(
                Severity.ERROR,
                "addressTwice",
                str(vip.address),
                f"belongs to {', '.join(map(str, vip.services))}",
                "delete one of the Services, or set the same purelb.io/allow-shared-ip key on both",
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
            f"{winner} has won the election but does not announce the address",
            f"read the lbnodeagent log on {winner}",
        )
    who_wins = f"the winner is {winner}" if winner else "no node wins it"
    for node in sorted(announcing - {winner}):
        if node not in live:
            yield _stale(where, node)
        else:
            yield Finding(
                Severity.ERROR,
                "wrongAnnouncer",
                where,
                f"the Service says that {node} announces it; {who_wins}",
                f"check on {node} whether the address is on an interface",
            )


def _conflict(report: VipReport, node: str) -> Finding:
    return Finding(
        Severity.WARNING,
        "addressConflict",
        str(report),
        f"{node} found within the last hour that another host has it",
        "find that host by the MAC address in the event AddressConflict of the Service, or take "
        "the address out of the pool",
    )


def _unpooled(vips: Iterable[VipReport]) -> Iterable[VipReport]:
    return (report for report in vips if not report.vip.is_in_pool)


def _outside_pools(report: VipReport) -> Finding:
    return Finding(
        Severity.WARNING,
        Reason.OUTSIDE_POOLS.value,
        str(report),
        "no ServiceGroup has it: it is announced only if it was in one when its Service got it",
        "put the range back, or set purelb.io/re-evaluate on the Service for another address",
    )


def _remote_findings(
    report: VipReport, where: str, announcing: Set[str], live: frozenset[str]
) -> Iterable[Finding]:
    """Yield findings about a remote address, which every expected node announces."""
    expected = report.decision.candidates
    if report.decision.reason is Reason.NO_LOCAL_ENDPOINT:
        yield Finding(
            Severity.WARNING,
            Reason.NO_LOCAL_ENDPOINT.value,
            where,
            "its Service takes only local traffic, and no live node has a ready endpoint of it",
            "see the Pods of the Service",
        )
    elif not expected:
        yield Finding(
            Severity.ERROR,
            Reason.NO_ELIGIBLE_NODES.value,
            where,
            "no node is live, or each has a draining taint",
            "see the findings about Leases and Nodes",
        )
    for node in sorted(expected - announcing):
        yield Finding(
            Severity.WARNING if expected & announcing else Severity.ERROR,
            "notAnnounced",
            where,
            f"{node} does not announce the address",
            f"read the lbnodeagent log on {node}",
        )
    for node in sorted(announcing - live):
        yield _stale(where, node)


def _stale(where: str, node: str) -> Finding:
    return Finding(
        Severity.WARNING,
        "staleAnnouncer",
        where,
        f"the Service says that {node} announces it; that node has no live Lease",
        "another node's agent removes the entry",
    )
