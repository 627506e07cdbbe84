# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Findings about nodes that answer ARP where they should not, or whose kernels drop requests.

IPv6 is not concerned: a neighbor solicitation is answered only on the interface that has the
address, and the kernel does not check the way back.
"""

from __future__ import annotations

from collections import defaultdict
from typing import AbstractSet, Dict, Iterable, Iterator, List, Mapping

from ..model import Link
from ..node.interfaces import default_links, segments
from ..node.snapshot import NodeSnapshot
from .evidence import Holding, LinkSettings, Observation
from .findings import Finding, Severity, node_title
from .report import LeaseReport

STRICT_ARP = "if kube-proxy is in IPVS mode, set its ipvs.strictARP, and restart it"
_STRICT = 1
_UNKNOWN = LinkSettings()


def answering_findings(leases: Iterable[LeaseReport]) -> Iterator[Finding]:
    """Yield which nodes answer for addresses of others, as agents found."""
    found: Dict[str, List[str]] = defaultdict(list)
    for report in leases:
        for node in report.lease.answering if report.is_live else ():
            found[node].append(report.lease.node)
    for node, finders in sorted(found.items()):
        yield Finding(
            Severity.ERROR,
            "nodeAnswers",
            node_title(node),
            f"answers for addresses of {', '.join(sorted(finders))}, too",
            f"{STRICT_ARP}; otherwise read the lbnodeagent log on {node}",
        )


def arp_findings(
    observations: Iterable[Observation],
    snapshots: Mapping[str, NodeSnapshot],
    vips: Iterable[Holding],
    fenced: AbstractSet[str],
) -> Iterator[Finding]:
    """Yield what is wrong with ARP on the nodes, or with the check of the way back to clients.

    `vips`: where the addresses of Services are. `fenced`: the nodes whose fence lets only the
    interface with an address answer for it.
    """
    used: Dict[str, Dict[int, Link]] = defaultdict(dict)
    for vip in vips:
        if vip.held.address.version == 4 and not vip.is_on_dummy:  # noqa: PLR2004 - the IP version
            used[vip.node][vip.link.index] = vip.link
    for seen in observations:
        snapshot = snapshots[seen.node]
        if seen.node not in fenced:
            yield from _proxy_findings(seen, snapshot)
            yield from _shared_findings(seen, snapshot)
        held_on = [link for link in snapshot.links if link.index in used[seen.node]]
        yield from _filter_findings(seen, held_on)


def _proxy_findings(seen: Observation, snapshot: NodeSnapshot) -> Iterator[Finding]:
    answering = [k.name for k in snapshot.links if _ignores_nothing(seen, k)]
    for name in seen.proxies if answering else ():
        yield Finding(
            Severity.ERROR,
            "nodeAnswers",
            node_title(seen.node),
            f"has the addresses of all Services on {name}, and answers for them on "
            f"{', '.join(answering)} (arp_ignore is 0)",
            STRICT_ARP,
        )


def _shared_findings(seen: Observation, snapshot: NodeSnapshot) -> Iterator[Finding]:
    """Yield interfaces that answer for addresses on another one in the same subnet."""
    others = [k for k in seen.links if k.is_ethernet and k not in snapshot.links]
    theirs = segments(others, seen.addresses, is_vip=snapshot.is_vip)
    known = list(snapshot.segments)
    for position, (link, network) in enumerate(known):
        for other, its_network in (*known[position + 1 :], *theirs):
            if (
                network.version == 4  # noqa: PLR2004 - the IP version
                and network == its_network
                and other != link
                and _ignores_nothing(seen, other)
            ):
                yield Finding(
                    Severity.WARNING,
                    "twoInterfacesAnswer",
                    node_title(seen.node),
                    f"{link.name} and {other.name} are both in {network}, and {other.name} answers "
                    f"for addresses on {link.name} (arp_ignore is 0)",
                    f"set net.ipv4.conf.{other.name}.arp_ignore to 1 on {seen.node}, or take "
                    "one of them out of the subnet",
                )


def _filter_findings(seen: Observation, held_on: Iterable[Link]) -> Iterator[Finding]:
    """Yield interfaces with addresses on which the kernel drops what comes from other subnets."""
    routed = [link for link in default_links(seen.links) if 4 in link.default_metrics]  # noqa: PLR2004
    for link in held_on:
        is_strict = seen.settings.get(link.index, _UNKNOWN).rp_filter == _STRICT
        if is_strict and routed and link not in routed:
            yield Finding(
                Severity.WARNING,
                "requestsFiltered",
                node_title(seen.node),
                f"drops what clients of other subnets send to addresses on {link.name}: the "
                f"default route is on {routed[0].name}, and rp_filter of {link.name} is 1 (strict)",
                f"set net.ipv4.conf.{link.name}.rp_filter to 2 (loose) on {seen.node}, or route "
                f"these clients through {link.name}",
            )


def _ignores_nothing(seen: Observation, link: Link) -> bool:
    return seen.settings.get(link.index, _UNKNOWN).arp_ignore == 0
