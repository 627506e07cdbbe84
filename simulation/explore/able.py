# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which nodes can serve now, and if there are none or too few, why addresses may be on no node."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import NamedTuple

from purelb.core.names import DEFAULT_NAMESPACE
from purelb.core.settings import LeaseTiming
from simulation.api.way import Reach
from simulation.cluster import Cluster, Node
from simulation.manifests import KINDS

CONFIG, SELECTED = "selected", {"selected": "True"}
# A right by writes that take so long ends before the next one; it lasts only where enough others
# agree that none is faster.
_TOO_SLOW = 0.4 * LeaseTiming().renew_deadline


class Excuse(Enum):
    """Why addresses may be on no node."""

    UNNOTICED = "no node need have noticed a silent watch"
    DOWN = "no agent runs on a node with a place for addresses"
    OUTAGE = "no node reaches the API"
    SLOW = "only nodes with slow writes can renew, and they are no majority"


class Moment(NamedTuple):
    """When something changed, in microseconds, and what is so from then on.

    `is_split`: some nodes reach the API, and others do not that could serve else.
    """

    at: int
    excuse: Excuse | None = None
    is_split: bool = False


class Able:
    """Looks at a cluster. `refused`: the programs all of whose requests the API refuses."""

    def __init__(self, cluster: Cluster) -> None:
        self.refused: Counter[str] = Counter()
        self._cluster = cluster

    def now(self, *, is_unnoticed: bool) -> Moment:
        """Return what is so now; `is_unnoticed`: a silent watch need not have been noticed."""
        nodes = tuple(self._cluster.nodes.values())
        placed = [node for node in nodes if self._has_place(node)]
        able = [node for node in placed if self._reaches(node)]
        excuse: Excuse | None = None
        if is_unnoticed:
            excuse = Excuse.UNNOTICED
        elif not placed:
            excuse = Excuse.DOWN
        elif not able:
            excuse = Excuse.OUTAGE
        elif all(map(self._is_slow, able)) and 2 * len(able) <= len(nodes):
            excuse = Excuse.SLOW
        return Moment(self._cluster.timeline.now, excuse, 0 < len(able) < len(placed))

    def serves(self, node: Node) -> bool:
        """Whether a node's agent runs, can renew and has a Node and a place for addresses."""
        return self._reaches(node) and self._has_place(node)

    def _reaches(self, node: Node) -> bool:
        user = f"agent/{node.name}"
        return self._cluster.way(user).reach is Reach.WHOLE and not self.refused[user]

    def _is_slow(self, node: Node) -> bool:
        slow = self._cluster.way(f"agent/{node.name}").slow
        return sum(slow("PUT", KINDS["leases"])) >= _TOO_SLOW

    def _has_place(self, node: Node) -> bool:
        return (
            runs(node)
            and node.machine.runs
            and node.eth0.is_up
            and node.eth0.has_carrier
            and not self.is_tainted(node)
            and self._is_selected(node)
            and self._cluster.find("nodes", "", node.name) is not None
        )

    def is_tainted(self, node: Node) -> bool:
        """Whether there is a Node that has a taint."""
        found = self._cluster.find("nodes", "", node.name)
        return bool(found and found["spec"].get("taints"))

    def _is_selected(self, node: Node) -> bool:
        if self._cluster.find("configs", DEFAULT_NAMESPACE, CONFIG) is None:
            return True
        found = self._cluster.find("nodes", "", node.name)
        return bool(found and found["metadata"].get("labels", {}).items() >= SELECTED.items())


def runs(node: Node) -> bool:
    """Whether a node has an agent whose code runs."""
    agent = node.agent
    return agent is not None and not (
        agent.is_dead or agent.has_ended or agent.is_frozen or agent.stands_still
    )
