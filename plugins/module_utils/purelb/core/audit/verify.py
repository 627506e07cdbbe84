# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the kernels of the nodes and the segment say, against what the election says.

Takes an audit's report, in which the agents' own election was held, and the evidence: the addresses
on the nodes' interfaces, and who answers on the segment. Never looks for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Iterable, Iterator, Mapping, Sequence, Tuple

from ..election.vips import Vip
from ..model import Address, InterfaceAddress, Network, PoolType, Reason
from ..names import lease_name
from ..node.interfaces import lease_subnets, place_for
from ..node.snapshot import NodeSnapshot
from .audit import LeaseReport, Report, VipReport
from .evidence import Evidence, Holding, NeighborReply, format_mac, holdings_of, snapshot_of
from .findings import Finding, FindingCode, Severity, in_order

# An address ends a second before its Lease, so this is two seconds late: more than rounding.
_SLACK = 1.0


@dataclass(frozen=True)
class Verification:
    """What is where, and all findings, the audit's among them."""

    holdings: Mapping[Address, Tuple[Holding, ...]]
    findings: Tuple[Finding, ...]


def verify(report: Report, evidence: Evidence) -> Verification:
    """Compare what was seen with what the audit says should be."""
    worlds = {one.node: snapshot_of(one, evidence) for one in evidence.observations}
    leases = {one.lease.node: one for one in report.leases}
    holdings = holdings_of(evidence.observations, worlds)
    findings = list(report.findings)
    findings += _node_findings(worlds, leases)
    findings += _unseen_findings(worlds, leases, evidence.unread)
    for vip in report.vips:
        held = holdings.get(vip.vip.address, ())
        if vip.vip.address in evidence.known:
            findings.append(_nodes_own(vip))
        elif vip.vip.pool_type is PoolType.REMOTE:
            findings += _remote_findings(vip, held, worlds, leases)
        else:
            findings += _local_findings(vip, held, worlds, leases)
    findings += _stray_findings(holdings, worlds, {one.vip.address for one in report.vips})
    findings += _wire_findings(report.vips, evidence, holdings)
    findings += [_silent(node, cause) for node, cause in evidence.silent.items()]
    return Verification(holdings, in_order(findings))


def _node_findings(
    worlds: Mapping[str, NodeSnapshot], leases: Mapping[str, LeaseReport]
) -> Iterator[Finding]:
    for node, world in worlds.items():
        lease = leases.get(node)
        if lease is None:
            yield Finding(
                Severity.WARNING,
                "noLease",
                f"node {node}",
                "has no Lease: it takes part in no election",
                "see whether an lbnodeagent pod runs there, and whether the Node has this name",
            )
        elif lease.is_live:
            yield from _subnet_findings(lease, world)


def _unseen_findings(
    worlds: Mapping[str, NodeSnapshot], leases: Mapping[str, LeaseReport], unread: Mapping[str, str]
) -> Iterator[Finding]:
    """Nodes about which this says nothing, unless nobody meant to look at any."""
    for node, cause in unread.items():
        yield Finding(
            Severity.WARNING,
            "nodeUnread",
            f"node {node}",
            f"its interfaces could not be read: {cause}",
            "see that Ansible reaches it, with a Python of 3.9 or later, and run this again",
        )
    if worlds or unread:
        for node, lease in leases.items():
            if lease.is_live and node not in worlds and node not in unread:
                yield Finding(
                    Severity.WARNING,
                    "nodeNotObserved",
                    f"node {node}",
                    "takes part in elections, and its interfaces were not looked at",
                    "add it to the inventory, under the name of its Node",
                )


def _subnet_findings(report: LeaseReport, world: NodeSnapshot) -> Iterator[Finding]:
    said, has = set(report.lease.subnets), set(lease_subnets(world.segments))
    name = f"Lease {lease_name(world.node)}"
    if said - has:
        yield Finding(
            Severity.ERROR,
            "subnetsDiffer",
            name,
            f"names {_listed(said - has)}, which {world.node} is not in: it cannot serve them",
            "find out who else writes this Lease; its agent mends it with the next renewal",
        )
    if has - said:
        yield Finding(
            Severity.WARNING,
            "subnetsDiffer",
            name,
            f"lacks {_listed(has - said)}, which {world.node} is in",
            f"run this again; if it stays so, look at the lbnodeagent log on {world.node}",
        )


def _listed(networks: Iterable[Network]) -> str:
    return ", ".join(sorted(map(str, networks)))


def _nodes_own(report: VipReport) -> Finding:
    return Finding(
        Severity.ERROR,
        Reason.NODE_ADDRESS.value,
        str(report),
        "is an address of a node itself: nobody announces it",
        "take it out of the pool, and delete the Service",
    )


def _local_findings(
    report: VipReport,
    holdings: Sequence[Holding],
    worlds: Mapping[str, NodeSnapshot],
    leases: Mapping[str, LeaseReport],
) -> Iterator[Finding]:
    """A local address is on the winner, and on no other node."""
    winner = report.decision.winner
    right = [one for one in holdings if one.node == winner]
    if winner is not None and winner in worlds:
        yield from _winner_findings(report, right, worlds[winner], leases[winner])
    also = f"; {', '.join(map(str, right))}" if right else ""
    for one in holdings:
        if one.node != winner:
            yield Finding(
                Severity.ERROR,
                "wrongHolder",
                str(report),
                f"{one}, and the winner is {winner or 'nobody'}{also}",
                f"look at the lbnodeagent log on {one.node}; if no agent runs there, "
                f"remove it: ip addr del {one.held.address}/{one.held.prefixlen} "
                f"dev {one.link.name}",
            )


def _winner_findings(
    report: VipReport, right: Sequence[Holding], world: NodeSnapshot, lease: LeaseReport
) -> Iterator[Finding]:
    place = place_for(report.vip.address, world.segments)
    if not right:
        code: FindingCode = Reason.NO_LOCAL_INTERFACE.value if place is None else "notHeld"
        yield Finding(
            Severity.ERROR,
            code,
            str(report),
            f"{world.node} wins the election and has it on no interface",
            f"look at the lbnodeagent log on {world.node}",
        )
    for one in right:
        if place is None or one.link.index != place[0].index:
            yield _misplaced(report, one, place[0].name if place else "no interface of this node")
        else:
            yield from _state_findings(report, one, place[1], lease)


def _misplaced(report: VipReport, one: Holding, where: str) -> Finding:
    return Finding(
        Severity.ERROR,
        "wrongInterface",
        str(report),
        f"{one}, and it belongs on {where}",
        f"look at the lbnodeagent log on {one.node}, and at the LBNodeAgent's localInterface",
    )


def _state_findings(
    report: VipReport, one: Holding, network: Network, lease: LeaseReport
) -> Iterator[Finding]:
    """What can be wrong with an address where it should be."""
    held, look = one.held, f"look at the lbnodeagent log on {one.node}"
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
            not one.link.is_up,
            Severity.ERROR,
            "interfaceDown",
            "and that interface is down",
            f"set {one.link.name} up",
        ),
        (
            held.prefixlen != _prefixlen(report.vip, network),
            Severity.WARNING,
            "wrongPrefix",
            f"as /{held.prefixlen} instead of /{_prefixlen(report.vip, network)}",
            look,
        ),
        (
            _outlives(held, lease),
            Severity.ERROR,
            "outlivesLease",
            "for longer than its Lease: if it dies, two nodes will have it",
            "see whether somebody added it by hand; otherwise " + look,
        ),
    )
    for is_so, severity, code, text, remediation in problems:
        if is_so:
            yield Finding(severity, code, str(report), f"{one}: {text}", remediation)


def _prefixlen(vip: Vip, network: Network) -> int:
    return network.prefixlen if vip.prefixlen is None else vip.prefixlen


def _outlives(held: InterfaceAddress, report: LeaseReport) -> bool:
    """Whether an address lasts longer than the Lease, both by the clock of the node itself."""
    ends_at = (report.lease.renew_time or 0.0) + report.lease.duration
    return held.expires_at is None or held.expires_at > ends_at + _SLACK


def _remote_findings(
    report: VipReport,
    holdings: Sequence[Holding],
    worlds: Mapping[str, NodeSnapshot],
    leases: Mapping[str, LeaseReport],
) -> Iterator[Finding]:
    """A remote address is on the dummy interface of each node that may have it."""
    expected, vip = report.decision.candidates, report.vip
    holders = {one.node for one in holdings if one.is_on_dummy}
    for node in sorted(expected & worlds.keys() - holders):
        yield Finding(
            Severity.WARNING if holders else Severity.ERROR,
            "notHeld",
            str(report),
            f"{node} does not have it on its dummy interface",
            f"look at the lbnodeagent log on {node}, and at the LBNodeAgent's dummyInterface",
        )
    for one in holdings:
        if not one.is_on_dummy:
            yield _misplaced(report, one, "the dummy interface")
        # It does not depend on the Lease: a node without one keeps it, and does no harm.
        elif one.node not in expected and one.node in leases and leases[one.node].is_live:
            why = "is draining" if vip.everywhere else "is draining or has no ready endpoint"
            yield Finding(
                Severity.WARNING,
                "wrongHolder",
                str(report),
                f"{one}, and that node {why}",
                f"look at the lbnodeagent log on {one.node}",
            )


def _stray_findings(
    holdings: Mapping[Address, Tuple[Holding, ...]],
    worlds: Mapping[str, NodeSnapshot],
    vips: Iterable[Address],
) -> Iterator[Finding]:
    """Addresses that look like ours and belong to no Service."""
    for address in holdings.keys() - set(vips):
        for one in holdings[address]:
            if worlds[one.node].is_vip(one.held):
                yield Finding(
                    Severity.WARNING,
                    Reason.NO_SERVICE.value,
                    str(address),
                    f"{one}, and no Service has this address",
                    f"run this again; if it stays so, look at the lbnodeagent log on {one.node}",
                )


def _wire_findings(
    vips: Iterable[VipReport],
    evidence: Evidence,
    holdings: Mapping[Address, Tuple[Holding, ...]],
) -> Iterator[Finding]:
    reports = {one.vip.address: one for one in vips}
    owners = {
        link.mac: f"{seen.node}, {link.name}"
        for seen in evidence.observations
        for link in seen.links
    }
    for answer in evidence.answers:
        report = reports.get(answer.address)
        if report is None or report.decision.winner is None:
            continue
        winner = report.decision.winner
        places = holdings.get(answer.address, ())
        own = {one.link.mac for one in places if one.node == winner}
        yield from _answer_findings(report, answer, own, owners)


def _answer_findings(
    report: VipReport, answer: NeighborReply, own: AbstractSet[bytes], owners: Mapping[bytes, str]
) -> Iterator[Finding]:
    """One host answers for an address: the winner."""
    winner = report.decision.winner
    who = ", ".join(f"{format_mac(m)} ({owners.get(m, 'no known node')})" for m in answer.macs)
    if not answer.macs and not answer.is_own:
        yield Finding(
            Severity.ERROR,
            "noAnswer",
            str(report),
            f"nobody answers for it on the segment; the winner is {winner}",
            f"see on {winner} whether it is on an interface, and whether the switch passes ARP and "
            "neighbour solicitations",
        )
    elif len(answer.macs) > 1:
        yield Finding(
            Severity.ERROR,
            "answeredTwice",
            str(report),
            f"is answered for by {who}; the winner is {winner}",
            "take it off the host that is not the winner",
        )
    elif answer.macs and own and answer.macs[0] not in own:
        yield Finding(
            Severity.ERROR,
            "wrongAnswer",
            str(report),
            f"is answered for by {who}; the winner is {winner}",
            "take it off the host that answers",
        )


def _silent(node: str, cause: str) -> Finding:
    return Finding(
        Severity.WARNING,
        "metricsUnreachable",
        f"node {node}",
        cause,
        f"look at the lbnodeagent pod on {node}, and at what filters port 7472",
    )
