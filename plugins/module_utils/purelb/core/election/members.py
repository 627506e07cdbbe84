# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which nodes take part in elections, and which of them only where no better one can.

Every observer computes it from the same Leases and Nodes. What only this implementation looks at
(the label, the service proxy) counts while the Lease of every live node says that its agent does,
too. So all of a cluster agree with agents of the Go implementation among them, during a roll-out,
and while a setting changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import FrozenSet, Iterable, Mapping, Tuple

from .. import names
from ..model import Lease, Network
from .draining import NodeMarks, marks_of


class Standing(IntEnum):
    """How well a node is suited for an address; of several reasons the worst counts.

    An address goes to the nodes of the best standing among those of its subnets. EXCLUDED: the
    Node's label says that it is meant to take no traffic. EVICTED: a program announced its
    eviction. ILL: its service proxy does not work. DRAINED: it leaves, and gets none in any case.
    """

    FIRST = 0
    EXCLUDED = 1
    EVICTED = 2
    ILL = 3
    DRAINED = 4


class ServiceProxy(str, Enum):
    """What a node's agent says of its service proxy (kube-proxy); see node.service_proxy."""

    UNKNOWN = ""
    # Nothing answers, and nothing did: a replacement of kube-proxy, or one that does not start.
    ABSENT = "absent"
    WELL = "well"
    UNSURE = "unsure"
    ILL = "ill"


# Rules of an election that the Go implementation does not have, as a Lease lists them.
EXCLUDE_RULE = "exclude-labelled-nodes"
PROXY_RULE = "service-proxy"
_NONE: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class Member:
    """A node with a live Lease."""

    node: str
    subnets: Tuple[Network, ...] = ()
    standing: Standing = Standing.FIRST


def members_of(leases: Iterable[Lease], marked: Mapping[str, NodeMarks]) -> Tuple[Member, ...]:
    """Return the nodes of these live Leases, sorted by name; `marked`: the marks of Nodes."""
    live = sorted(leases, key=lambda lease: lease.node)
    rules = frozenset.intersection(*(frozenset(lease.rules) for lease in live)) if live else _NONE
    ill = _ill(live) if PROXY_RULE in rules else _NONE
    return tuple(
        Member(
            lease.node,
            lease.subnets,
            max(
                _of_marks(marks_of(lease, marked), is_label_counted=EXCLUDE_RULE in rules),
                Standing.ILL if lease.node in ill else Standing.FIRST,
            ),
        )
        for lease in live
    )


def _of_marks(marks: NodeMarks, *, is_label_counted: bool) -> Standing:
    if marks.taint:
        return Standing.EVICTED if marks.taint == names.SPOT_TAINT_KEY else Standing.DRAINED
    return Standing.EXCLUDED if marks.is_excluded and is_label_counted else Standing.FIRST


def _ill(leases: Iterable[Lease]) -> FrozenSet[str]:
    """Return the nodes whose service proxy does not work while that of others does.

    Where nothing ever answered, the cluster may do without kube-proxy: such a node is ill only if
    at least half of the others have one that works.
    """
    said = {lease.node: lease.service_proxy for lease in leases}
    well = sum(state == ServiceProxy.WELL for state in said.values())
    ill = {ServiceProxy.ILL} if well else set()
    if 2 * well >= len(said):
        ill.add(ServiceProxy.ABSENT)
    return frozenset(node for node, state in said.items() if state in ill)
