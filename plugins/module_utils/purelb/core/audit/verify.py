# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Comparison of the election with the kernels of the nodes and with the network segment.

Its input is an audit's report and the evidence: the addresses on the nodes' interfaces, and the
hosts that answer on the segment. It never collects evidence itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Iterable, Iterator, Mapping, Sequence, Tuple

from ..election.vips import Vip
from ..fence.gaps import EXACT
from ..model import Address, InterfaceAddress, Network, PoolType, Reason
from ..names import FENCED_PROTOCOL, lease_name
from ..node.interfaces import lease_subnets, place_for
from ..node.snapshot import NodeSnapshot
from .arp import arp_findings
from .evidence import Evidence, Holding, holdings_of, snapshot_of
from .findings import Finding, FindingCode, Severity, in_order, node_title
from .report import LeaseReport, Report, VipReport
from .segment import segment_findings

# An address expires a second before its Lease, so this allows two seconds: more than rounding.
_SLACK = 1.0


@dataclass(frozen=True)
class Verification:
    """Where each address is held, and all findings, including those of the audit."""

    holdings: Mapping[Address, Tuple[Holding, ...]]
    findings: Tuple[Finding, ...]


def verify(report: Report, evidence: Evidence) -> Verification:
    """Compare the evidence with the audit's report."""
    leases = {lease.lease.node: lease for lease in report.leases}
    live = {node for node, lease in leases.items() if lease.is_live}
    snapshots = {
        seen.node: snapshot_of(seen, evidence, has_right=seen.node in live)
        for seen in evidence.observations
    }
    holdings = holdings_of(evidence.observations, snapshots)
    findings = list(report.findings)
    findings += _unexamined_findings(evidence)
    findings += _node_findings(snapshots, leases, {node.node for node in report.nodes})
    findings += _unseen_findings(snapshots, leases, evidence.unread)
    for vip in report.vips:
        held = holdings.get(vip.vip.address, ())
        if vip.vip.address in evidence.known:
            findings.append(_nodes_own(vip))
        elif vip.vip.pool_type is PoolType.REMOTE:
            findings += _remote_findings(vip, held, snapshots, leases)
        else:
            findings += _local_findings(vip, held, snapshots, leases)
    findings += _unused_findings(holdings, snapshots, {vip.vip.address for vip in report.vips})
    held_vips = [h for vip in report.vips for h in holdings.get(vip.vip.address, ())]
    fenced = {node for node in live if leases[node].lease.fence == EXACT}
    findings += arp_findings(evidence.observations, snapshots, held_vips, fenced)
    findings += segment_findings(report, evidence, holdings)
    findings += [_silent(node, cause) for node, cause in evidence.silent.items()]
    return Verification(holdings, in_order(findings))


def _unexamined_findings(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding if nodes were to be looked at and none was: nothing wrong was seen there."""
    if "nodes" in evidence.examined and not evidence.observations:
        yield Finding(
            Severity.ERROR,
            "nodesNotExamined",
            "nodes",
            "the interfaces of no node were examined",
            "add the nodes to the inventory, or leave nodes out of examine",
        )


def _node_findings(
    snapshots: Mapping[str, NodeSnapshot],
    leases: Mapping[str, LeaseReport],
    known: AbstractSet[str],
) -> Iterator[Finding]:
    for node, snapshot in snapshots.items():
        lease = leases.get(node)
        if lease is None and node not in known:
            yield Finding(
                Severity.WARNING,
                "noLease",
                node_title(node),
                "was examined, and there is neither a Node nor a Lease of this name",
                "set purelb_node_name of this host to the name of its Node",
            )
        elif lease is not None and lease.is_live:
            yield from _subnet_findings(lease, snapshot)


def _unseen_findings(
    snapshots: Mapping[str, NodeSnapshot],
    leases: Mapping[str, LeaseReport],
    unread: Mapping[str, str],
) -> Iterator[Finding]:
    """Yield findings about unobserved nodes, unless no node was observed at all."""
    for node, cause in unread.items():
        yield Finding(
            Severity.WARNING,
            "nodeUnread",
            node_title(node),
            f"its interfaces could not be read: {cause}",
            "check that Ansible reaches it, with a Python of 3.9 or later, and run this again",
        )
    if snapshots or unread:
        for node, lease in leases.items():
            if lease.is_live and node not in snapshots and node not in unread:
                yield Finding(
                    Severity.WARNING,
                    "nodeNotObserved",
                    node_title(node),
                    "takes part in elections, and its interfaces were not examined",
                    "add it to the inventory, under the name of its Node",
                )


def _subnet_findings(report: LeaseReport, snapshot: NodeSnapshot) -> Iterator[Finding]:
    listed, present = set(report.lease.subnets), set(lease_subnets(snapshot.segments))
    extra, missing = listed - present, present - listed
    name = f"Lease {lease_name(snapshot.node)}"
    if extra:
        yield Finding(
            Severity.ERROR,
            "subnetsDiffer",
            name,
            f"names {_listed(extra)}, which {snapshot.node} is not in: it cannot serve them",
            "find the other program that writes this Lease; the next renewal corrects it",
        )
    if missing:
        yield Finding(
            Severity.WARNING,
            "subnetsDiffer",
            name,
            f"does not name {_listed(missing)}, which {snapshot.node} is in",
            f"run this again; if it persists, read the lbnodeagent log on {snapshot.node}",
        )


def _listed(networks: Iterable[Network]) -> str:
    return ", ".join(sorted(map(str, networks)))


def _nodes_own(report: VipReport) -> Finding:
    return Finding(
        Severity.ERROR,
        Reason.NODE_ADDRESS.value,
        str(report),
        "is a node's own address: no node announces it",
        "take it out of the pool, and delete the Service",
    )


def _local_findings(
    report: VipReport,
    holdings: Sequence[Holding],
    snapshots: Mapping[str, NodeSnapshot],
    leases: Mapping[str, LeaseReport],
) -> Iterator[Finding]:
    """Yield findings about a local address, which only the winner holds."""
    winner = report.decision.winner
    winners_own = [holding for holding in holdings if holding.node == winner]
    if winner is not None and winner in snapshots:
        yield from _winner_findings(report, winners_own, snapshots[winner], leases[winner])
    who_wins = f"the winner is {winner}" if winner else "no node wins it"
    also = f"; {', '.join(map(str, winners_own))}" if winners_own else ""
    for holding in holdings:
        if holding.node != winner:
            yield Finding(
                Severity.ERROR,
                "wrongHolder",
                str(report),
                f"{holding}, and {who_wins}{also}",
                f"read the lbnodeagent log on {holding.node}; if no agent runs there, "
                f"remove it: ip addr del {holding.held.address}/{holding.held.prefixlen} "
                f"dev {holding.link.name}",
            )


def _winner_findings(
    report: VipReport, winners_own: Sequence[Holding], snapshot: NodeSnapshot, lease: LeaseReport
) -> Iterator[Finding]:
    place = place_for(report.vip.address, snapshot.segments)
    if not winners_own:
        code: FindingCode = Reason.NO_LOCAL_INTERFACE.value if place is None else "notHeld"
        yield Finding(
            Severity.ERROR,
            code,
            str(report),
            f"{snapshot.node} has won the election but has it on no interface",
            f"read the lbnodeagent log on {snapshot.node}",
        )
    for holding in winners_own:
        if snapshot.keeps_marks and not snapshot.is_vip(holding.held):
            yield _foreign(report, holding)
        elif place is None or holding.link.index != place[0].index:
            yield _misplaced(
                report, holding, place[0].name if place else "no interface of this node"
            )
        else:
            yield from _state_findings(report, holding, place[1], lease)


def _foreign(report: VipReport, holding: Holding) -> Finding:
    return Finding(
        Severity.ERROR,
        Reason.FOREIGN_ADDRESS.value,
        str(report),
        f"{holding}, and no agent put it there, so {holding.node} does not announce it",
        f"remove it: ip addr del {holding.held.address}/{holding.held.prefixlen} "
        f"dev {holding.link.name}; or take it out of the pool, and delete the Service",
    )


def _misplaced(report: VipReport, holding: Holding, where: str) -> Finding:
    return Finding(
        Severity.ERROR,
        "wrongInterface",
        str(report),
        f"{holding}, and it belongs on {where}",
        f"read the lbnodeagent log on {holding.node}, and at the LBNodeAgent's localInterface",
    )


def _state_findings(
    report: VipReport, holding: Holding, network: Network, lease: LeaseReport
) -> Iterator[Finding]:
    """Yield findings about the state of an address on the expected interface."""
    held, look = holding.held, f"read the lbnodeagent log on {holding.node}"
    problems: Tuple[Tuple[bool, Severity, FindingCode, str, str], ...] = (
        (
            held.dad_failed,
            Severity.ERROR,
            "dadFailed",
            "duplicate address detection found it in use, so the node does not answer for it",
            "find the other host by its MAC address: purelb_neighbor_info shows who answers",
        ),
        (
            held.tentative and not held.dad_failed,
            Severity.WARNING,
            "tentative",
            "duplicate address detection is not done: the node does not answer for it yet",
            "run this again in two seconds",
        ),
        (
            not holding.link.is_up,
            Severity.ERROR,
            "interfaceDown",
            "and that interface is down",
            f"set {holding.link.name} up",
        ),
        (
            held.prefixlen not in {held.address.max_prefixlen, _prefixlen(report.vip, network)},
            Severity.WARNING,
            "wrongPrefix",
            f"as /{held.prefixlen} instead of /{held.address.max_prefixlen}",
            look,
        ),
        (
            _outlives(held, lease),
            Severity.ERROR,
            "outlivesLease",
            "for longer than its Lease: if it dies, two nodes will have it",
            "check whether it was added manually; otherwise " + look,
        ),
    )
    for is_so, severity, code, text, remediation in problems:
        if is_so:
            yield Finding(severity, code, str(report), f"{holding}: {text}", remediation)


def _prefixlen(vip: Vip, network: Network) -> int:
    """Return the mask that agents of other versions give an address."""
    return network.prefixlen if vip.prefixlen is None else vip.prefixlen


def _outlives(held: InterfaceAddress, report: LeaseReport) -> bool:
    """Whether an address outlives the Lease, both by the node's own clock, and no fence ends it."""
    if held.protocol == FENCED_PROTOCOL and held.expires_at is not None:
        return False
    ends_at = (report.lease.renew_time or 0.0) + report.lease.duration
    return held.expires_at is None or held.expires_at > ends_at + _SLACK


def _remote_findings(
    report: VipReport,
    holdings: Sequence[Holding],
    snapshots: Mapping[str, NodeSnapshot],
    leases: Mapping[str, LeaseReport],
) -> Iterator[Finding]:
    """Yield findings about a remote address, which belongs on each expected dummy interface."""
    expected, vip = report.decision.candidates, report.vip
    holders = {holding.node for holding in holdings if holding.is_on_dummy}
    for node in sorted(expected & snapshots.keys() - holders):
        yield Finding(
            Severity.WARNING if holders else Severity.ERROR,
            "notHeld",
            str(report),
            f"{node} does not have it on its dummy interface",
            f"read the lbnodeagent log on {node}, and at the LBNodeAgent's dummyInterface",
        )
    for holding in holdings:
        if not holding.is_on_dummy:
            yield _misplaced(report, holding, "the dummy interface")
        # A remote address does not depend on the Lease, so a node without one may keep it.
        elif (
            holding.node not in expected and holding.node in leases and leases[holding.node].is_live
        ):
            why = "is draining" if vip.everywhere else "is draining or has no ready endpoint"
            yield Finding(
                Severity.WARNING,
                "wrongHolder",
                str(report),
                f"{holding}, and that node {why}",
                f"read the lbnodeagent log on {holding.node}",
            )


def _unused_findings(
    holdings: Mapping[Address, Tuple[Holding, ...]],
    snapshots: Mapping[str, NodeSnapshot],
    vips: Iterable[Address],
) -> Iterator[Finding]:
    """Yield findings about VIPs on interfaces that belong to no Service."""
    for address in holdings.keys() - set(vips):
        for holding in holdings[address]:
            if snapshots[holding.node].is_vip(holding.held):
                yield Finding(
                    Severity.WARNING,
                    Reason.NO_SERVICE.value,
                    str(address),
                    f"{holding}, and no Service has this address",
                    f"run this again; if it persists, read the lbnodeagent log on {holding.node}",
                )


def _silent(node: str, cause: str) -> Finding:
    return Finding(
        Severity.WARNING,
        "metricsUnreachable",
        node_title(node),
        cause,
        f"look at the lbnodeagent pod on {node}, and at what filters port 7472",
    )
