# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which addresses are the Nodes' own, and which ones other programs took for such."""

from __future__ import annotations

from typing import FrozenSet, Iterable, Iterator, Sequence

from ..api.nodes import NodeView
from ..model import Address
from ..node.mistaken import Pairs, mistaken_addresses
from .findings import Finding, Severity, node_title
from .report import LeaseReport, VipReport

_REMEDY = (
    "name the node's own address, or its interface, in the settings of the program: --node-ip of "
    "kubelet and of k3s, IP_AUTODETECTION_METHOD of Calico, --iface of flannel"
)


def _mistaken(nodes: Iterable[NodeView], leases: Iterable[LeaseReport]) -> Pairs:
    said = [report.lease for report in leases]
    live = {report.lease.node: report.lease.mistaken for report in leases if report.is_live}
    return mistaken_addresses(
        {node.info.name: node.info.addresses for node in nodes},
        live,
        frozenset(pair for lease in said for pair in lease.mistaken),
    )


def own_addresses(nodes: Sequence[NodeView], leases: Sequence[LeaseReport]) -> FrozenSet[Address]:
    """Return the addresses in the status of Nodes that are theirs, as agents see it."""
    mistaken = _mistaken(nodes, leases)
    return frozenset(
        address
        for node in nodes
        for address in node.info.addresses
        if (node.info.name, address) not in mistaken
    )


def mistaken_findings(
    nodes: Sequence[NodeView], leases: Sequence[LeaseReport], vips: Iterable[VipReport]
) -> Iterator[Finding]:
    """Yield where a Node's status, or an annotation of it, has the address of a Service."""
    for name, address in sorted(_mistaken(nodes, leases), key=str):
        yield Finding(
            Severity.WARNING,
            "nodeAddressMistaken",
            node_title(name),
            f"its status lists {address}, which its agent announces for a Service, as the node's",
            _REMEDY,
        )
    known = own_addresses(nodes, leases)
    given = {vip.vip.address for vip in vips} - known
    for node in nodes:
        for annotation, addresses in node.annotated.items():
            for address in addresses:
                if address in given:
                    yield Finding(
                        Severity.WARNING,
                        "nodeAddressMistaken",
                        node_title(node.info.name),
                        f"its annotation {annotation} has {address}, the address of a Service",
                        _REMEDY,
                    )
