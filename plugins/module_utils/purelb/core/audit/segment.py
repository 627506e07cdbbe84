# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Findings about the hosts that answer for addresses on a segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Iterator, Mapping, Optional, Tuple

from ..model import Address, PoolType
from .arp import STRICT_ARP
from .evidence import Evidence, Holding, NeighborReply, format_mac
from .findings import Finding, Severity
from .report import Report, VipReport


@dataclass(frozen=True)
class _Owner:
    """Who has a MAC address."""

    node: str
    interface: str = ""

    def __str__(self) -> str:
        return f"{self.node}, {self.interface}" if self.interface else self.node


def segment_findings(
    report: Report,
    evidence: Evidence,
    holdings: Mapping[Address, Tuple[Holding, ...]],
) -> Iterator[Finding]:
    """Yield findings about who answers for local addresses, or that no host was asked."""
    reports = {vip.vip.address: vip for vip in report.vips}
    owners = {mac: _Owner(seen.lease.node) for seen in report.leases for mac in seen.lease.macs}
    owners.update(
        (link.mac, _Owner(seen.node, link.name))
        for seen in evidence.observations
        for link in seen.links
    )
    is_needed = any(vip.pool_type is PoolType.LOCAL for vip in (r.vip for r in reports.values()))
    if "segment" in evidence.examined and is_needed and not evidence.answers:
        yield Finding(
            Severity.ERROR,
            "segmentNotExamined",
            "segment",
            "no host asked the segment for the addresses",
            "add a host of the segment to the inventory, or leave segment out of examine",
        )
    yield from _unread_findings(evidence)
    asked = {answer.address for answer in evidence.answers}
    for address, one in reports.items():
        is_local = one.vip.pool_type is PoolType.LOCAL
        if asked and address not in asked and is_local and one.decision.winner:
            yield Finding(
                Severity.WARNING,
                "notProbed",
                str(one),
                "no host of its segment was asked for it",
                "add a host of this segment to the inventory",
            )
    for answer in evidence.answers:
        vip = reports.get(answer.address)
        if vip is None or vip.decision.winner is None:
            continue
        winner = vip.decision.winner
        places = holdings.get(answer.address, ())
        own = {place.link.mac for place in places if place.node == winner}
        yield from _answer_findings(vip, answer, own, owners)


def _unread_findings(evidence: Evidence) -> Iterator[Finding]:
    for host, cause in evidence.unasked.items():
        yield Finding(
            Severity.WARNING,
            "segmentUnread",
            f"host {host}",
            f"could not probe its segments: {cause}",
            "check that Ansible reaches it as root, that it has scapy, and run this again",
        )


def _answer_findings(
    report: VipReport,
    answer: NeighborReply,
    own: AbstractSet[bytes],
    owners: Mapping[bytes, _Owner],
) -> Iterator[Finding]:
    """Yield findings unless exactly the winner answers for the address."""
    winner = report.decision.winner
    who = ", ".join(f"{format_mac(m)} ({owners.get(m, 'no known node')})" for m in answer.macs)
    nodes = {owners[mac].node if mac in owners else "" for mac in answer.macs}
    if not answer.macs and not answer.is_own:
        yield Finding(
            Severity.ERROR,
            "noAnswer",
            str(report),
            f"no host on the segment answers for it; the winner is {winner}",
            f"check on {winner} whether it is on an interface, and whether the switch passes ARP "
            "and neighbor solicitations",
        )
    elif len(answer.macs) > 1:
        yield Finding(
            Severity.ERROR,
            "answeredTwice",
            str(report),
            f"is answered for by {who}; the winner is {winner}",
            _remedy(nodes, winner),
        )
    elif answer.macs and own and answer.macs[0] not in own:
        yield Finding(
            Severity.ERROR,
            "wrongAnswer",
            str(report),
            f"is answered for by {who}; the winner is {winner}",
            "remove it from the host that answers",
        )


def _remedy(nodes: AbstractSet[str], winner: Optional[str]) -> str:
    """Return what to do if these nodes answer; empty: a host that is none."""
    if nodes == {winner}:
        return f"set net.ipv4.conf.all.arp_ignore to 1 on {winner}: two of its interfaces answer"
    if "" not in nodes:
        return f"remove it from the nodes that are not the winner; {STRICT_ARP}"
    return "remove it from the host that is not the winner"
