# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which nodes can serve now, and if there are none or too few, why addresses may be on no node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from purelb.core.api.codec import lease_of
from purelb.core.names import DEFAULT_NAMESPACE
from purelb.core.settings import LeaseTiming
from simulation.api.way import Reach
from simulation.cluster import Cluster
from simulation.manifests import KINDS
from simulation.member import Node
from simulation.node.wire import Segment
from simulation.time.process import Process
from simulation.time.timeline import MICROSECONDS

CONFIG, SELECTED = "selected", {"selected": "True"}
# From the start of an agent to its first plan, at most, if the API answers.
STARTS = 2.0
# A right by writes that take so long ends before the next one; it lasts only where enough others
# agree that none is faster.
_TOO_SLOW = 0.4 * LeaseTiming().renew_deadline


class Excuse(Enum):
    """Why addresses may be on no node."""

    UNNOTICED = "no node need have noticed a silent watch"
    DOWN = "no agent runs on a node with a place for addresses"
    OUTAGE = "no node reaches the API"
    CUT_OFF = "of those near each other only nodes without the segment reach the API"
    SLOW = "only nodes with slow writes can renew, and they are no majority"
    SLOW_START = "nodes that have started can renew, but only after the end of the right of it"


class State(NamedTuple):
    """What is so on one segment.

    `is_split`: some nodes reach the API, and others do not that could serve else. `members`: the
    nodes with a Lease that have to agree when they cannot renew.
    """

    excuse: Excuse | None = None
    is_split: bool = False
    members: frozenset[str] = frozenset()


class Moment(NamedTuple):
    """When something changed, in microseconds, and what is so from then on.

    `allocates`: whether an allocator runs and reaches the API. `states`: by the numbers of the
    segments.
    """

    at: int
    allocates: bool = True
    states: tuple[State, ...] = ()


class Able:
    """Looks at a cluster. `refused`: the programs all of whose requests the API refuses."""

    def __init__(self, cluster: Cluster) -> None:
        self.refused: Counter[str] = Counter()
        self._cluster = cluster
        # The agents whose watch of Nodes stands still, and whether their Node had a taint before.
        self._heard: dict[str, bool] = {}
        # Since when writes of nodes take as long as a right lasts, in microseconds.
        self._late_since: dict[str, int] = {}

    def stall(self, user: str, kinds: Sequence[str]) -> None:
        """Note of which kinds the watches of an agent stand still: all that do."""
        if KINDS["nodes"] in kinds:
            name = user.partition("/")[2]
            self._heard.setdefault(user, self.is_tainted(self._cluster.nodes[name]))
        else:
            self._heard.pop(user, None)

    def now(self, *, is_unnoticed: bool) -> Moment:
        """Return what is so now; `is_unnoticed`: a silent watch need not have been noticed."""
        stored = self._cluster.api.objects.of_kind(KINDS["leases"], "")
        leases = map(lease_of, (each.body for each in stored))
        members = {lease.node for lease in leases if lease and not lease.is_released}
        states = (
            self._state(segment, members, is_unnoticed=is_unnoticed)
            for segment in self._cluster.segments
        )
        self._note_late()
        allocates = any(map(self._allocates, self._cluster.allocators))
        return Moment(self._cluster.timeline.now, allocates, tuple(states))

    def _state(self, segment: Segment, members: set[str], *, is_unnoticed: bool) -> State:
        nodes = self._cluster.nodes_on(segment)
        # Those that share any subnet with one of these.
        near = {
            node.name: node
            for other in self._cluster.segments
            if any(other.link_of(node.kernel) for node in nodes)
            for node in self._cluster.nodes_on(other)
        }
        renews = any(runs(node) and self._reaches(node) for node in near.values())
        placed = [node for node in nodes if self._has_place(node, segment)]
        able = [node for node in placed if self._reaches(node)]
        excuse: Excuse | None = None
        if is_unnoticed:
            excuse = Excuse.UNNOTICED
        elif not placed:
            excuse = Excuse.DOWN
        elif not able:
            excuse = Excuse.CUT_OFF if renews else Excuse.OUTAGE
        elif all(map(self._is_slow, able)) and 2 * len(able) <= len(near):
            excuse = Excuse.SLOW
        elif all(map(self._has_no_right, able)):
            excuse = Excuse.SLOW_START
        is_split = renews and len(able) < len(placed)
        return State(excuse, is_split, frozenset(near.keys() & members))

    def _allocates(self, name: str) -> bool:
        process = self._cluster.allocators[name]
        reach = self._cluster.way(f"allocator/{name}").reach
        return _runs(process) and process.machine.runs and reach is Reach.WHOLE

    def serves(self, node: Node, segment: Segment) -> bool:
        """Whether a node's agent runs, can renew, and has a Node and a place for addresses."""
        return self._reaches(node) and self._has_place(node, segment)

    def _reaches(self, node: Node) -> bool:
        user = f"agent/{node.name}"
        return self._cluster.way(user).reach is Reach.WHOLE and not self.refused[user]

    def _is_slow(self, node: Node) -> bool:
        return self._seconds_of_a_write(node) >= _TOO_SLOW

    def _seconds_of_a_write(self, node: Node) -> float:
        return sum(self._cluster.way(f"agent/{node.name}").slow("PUT", KINDS["leases"]))

    def _note_late(self) -> None:
        nodes, now = self._cluster.nodes.values(), self._cluster.timeline.now
        lasts = LeaseTiming().renew_deadline
        late = (node.name for node in nodes if self._seconds_of_a_write(node) >= lasts)
        self._late_since = {name: self._late_since.get(name, now) for name in late}

    def _has_no_right(self, node: Node) -> bool:
        """Whether all writes of a node's agent took as long as a right that they give lasts."""
        since = self._late_since.get(node.name)
        if since is None or node.agent is None:
            return False
        return since <= self._cluster.timeline.now - node.agent.has_run_for() * MICROSECONDS

    def _has_place(self, node: Node, segment: Segment) -> bool:
        link = segment.link_of(node.kernel)
        return (
            link is not None
            and _has_started(node)
            and node.machine.runs
            and link.is_up
            and link.has_carrier
            and not self.is_tainted(node)
            and not self._heard.get(f"agent/{node.name}", False)
            and self._is_selected(node)
            and self._cluster.find("nodes", "", node.name) is not None
        )

    def is_tainted(self, node: Node) -> bool:
        """Whether there is a Node that has a taint."""
        found = self._cluster.find("nodes", "", node.name)
        return bool(found and found["spec"].get("taints"))

    def _is_selected(self, node: Node) -> bool:
        """Whether no LBNodeAgent selects nodes, or one selects this one, or all."""
        names = ("default", CONFIG)
        of_all, of_some = (self._cluster.find("configs", DEFAULT_NAMESPACE, n) for n in names)
        if of_all is not None or of_some is None:
            return True
        found = self._cluster.find("nodes", "", node.name)
        return bool(found and found["metadata"].get("labels", {}).items() >= SELECTED.items())


def _has_started(node: Node) -> bool:
    """Whether a node has an agent that has had its time to start, and is not to end."""
    agent = node.agent
    return (
        agent is not None and _runs(agent) and agent.has_run_for() >= STARTS and not node.is_leaving
    )


def runs(node: Node) -> bool:
    """Whether a node has an agent whose code runs."""
    return node.agent is not None and _runs(node.agent)


def _runs(process: Process) -> bool:
    return not (process.is_dead or process.has_ended or process.is_frozen or process.stands_still)
