# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Findings about nodes that renew their Leases and list no subnet, by their LBNodeAgents."""

from __future__ import annotations

from typing import Iterable, Iterator, Sequence, Tuple

from ..api.nodes import NodeView
from ..node.configuration import NodeConfig, SelectedConfig, SelectorState, choose
from .findings import Finding, Severity, lease_title
from .report import LeaseReport


def without_subnets(leases: Iterable[LeaseReport]) -> Tuple[str, ...]:
    """Return the nodes that are alive, and candidates for no address."""
    return tuple(r.lease.node for r in leases if r.is_live and not r.lease.subnets)


def subnet_findings(
    leases: Iterable[LeaseReport], nodes: Iterable[NodeView], configs: Sequence[NodeConfig]
) -> Iterator[Finding]:
    """Yield which nodes are candidates for no address, and why."""
    labels = {view.info.name: view.info.labels for view in nodes}
    for node in without_subnets(leases):
        detail, remedy = _cause(node, choose(configs, labels.get(node, {})))
        yield Finding(Severity.WARNING, "leaseWithoutSubnets", lease_title(node), detail, remedy)


def _cause(node: str, selected: SelectedConfig) -> Tuple[str, str]:
    config = selected.config
    if config is None:
        remedy = (
            "create an LBNodeAgent without spec.nodeSelector, for all nodes that no other one "
            "selects, or correct the node's labels"
        )
        return f"no LBNodeAgent selects {node}, so it announces nothing", remedy
    if config.problem:
        return f"LBNodeAgent {config.name} is invalid: {config.problem}", "correct it"
    if selected.state is SelectorState.DEFAULT:
        return (
            f"{node} is a candidate for no address: no interface with a default route has a subnet",
            "check the node's default route, or name interfaces in an LBNodeAgent",
        )
    detail = (
        f"{node} is a candidate for no address: no interface that LBNodeAgent {config.name} "
        "selects has a subnet"
    )
    return detail, "check spec.local.localInterface and .interfaces there, and the node's links"
