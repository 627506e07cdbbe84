# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which nodes are draining, and when an eviction event becomes a taint on its Node.

A taint is permanent and an event is not, so an eviction event is turned into a taint. An annotation
on the Node records that occurrence: after an operator has removed the taint, only a new occurrence
sets it again, even after a restart. No more than a part of all Nodes is tainted at a time, so that
false events cannot take every address out of service.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import AbstractSet, Any, Dict, FrozenSet, Iterable, Mapping, NamedTuple, Optional, Tuple

from .. import names
from ..model import Address, Lease


class Taint(NamedTuple):
    """A taint of a Node."""

    key: str
    value: str = ""
    effect: str = ""
    # As the API wrote it; it is only written back.
    time_added: str = ""


_SPOT_TAINT = Taint(names.SPOT_TAINT_KEY, names.SPOT_TAINT_VALUE, names.SPOT_TAINT_EFFECT)


@dataclass(frozen=True)
class NodeInfo:
    """The fields of a Node object that decisions depend on."""

    name: str
    uid: str = ""
    version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    addresses: FrozenSet[Address] = frozenset()
    taints: Tuple[Taint, ...] = ()
    # In seconds since the epoch, on the API server's clock.
    created: Optional[float] = None
    preempted_by: str = ""


@dataclass(frozen=True)
class PreemptEvent:
    """An event that announces the eviction of a node."""

    node: str
    uid: str
    count: int = 1
    # Time of the last occurrence, in seconds since the epoch.
    time: Optional[float] = None
    # Depends on the reporter: the Node's UID, its name, or empty.
    node_uid: str = ""

    @property
    def mark(self) -> str:
        """Identifies this occurrence of the event."""
        return f"{self.uid}@{self.count}"


class PreemptReason(str, Enum):
    """Why a Node gets the taint or not."""

    SPOT_EVICTION = "spotEviction"
    ALREADY_DRAINING = "alreadyDraining"
    ALREADY_ACTED_UPON = "alreadyActedUpon"
    TOO_MANY_EVICTED = "tooManyEvicted"
    NO_EVENT = "noEvent"


@dataclass(frozen=True)
class Preemption:
    """What to do with a Node: the reason, the event, and a merge patch or None."""

    reason: PreemptReason
    event: Optional[PreemptEvent] = None
    patch: Optional[Dict[str, Any]] = None

    @property
    def mark(self) -> str:
        """The occurrence of the event; empty without an event."""
        return self.event.mark if self.event else ""


class NodeMarks(NamedTuple):
    """What a Node says that keeps addresses off it.

    `taint`: the key of its draining taint, or empty. `is_excluded`: by its label it is meant to
    take no traffic of load balancers.
    """

    uid: str = ""
    taint: str = ""
    is_excluded: bool = False


_UNMARKED = NodeMarks()


def draining_taint(taints: Iterable[Taint]) -> str:
    """Return the key of the draining taint that counts, with any value and effect; empty: none."""
    carried = {key for key, *_more in taints}
    return next((key for key in names.DRAINING_TAINTS if key in carried), "")


def marked_nodes(nodes: Iterable[NodeInfo], *, drains: bool = True) -> Dict[str, NodeMarks]:
    """Return the Nodes that something keeps addresses off, by name; `drains`: taints do."""
    found = {}
    for node in nodes:
        taint = draining_taint(node.taints) if drains else ""
        # The label's value does not matter, as for the controllers of clouds.
        is_excluded = names.EXCLUDE_LABEL in node.labels
        if taint or is_excluded:
            found[node.name] = NodeMarks(node.uid, taint, is_excluded)
    return found


def marks_of(lease: Lease, marked: Mapping[str, NodeMarks]) -> NodeMarks:
    """Return the marks of the Node that owns a Lease.

    A Lease that is owned by another Node of the same name is not affected.
    """
    node = marked.get(lease.node)
    return node if node and lease.node_uid in ("", node.uid) else _UNMARKED


def is_evicted(node: NodeInfo) -> bool:
    """Whether a Node has the eviction taint."""
    return any(taint.key == names.SPOT_TAINT_KEY for taint in node.taints)


def preempt(
    node: NodeInfo,
    events: Iterable[PreemptEvent],
    evicted: AbstractSet[str],
    limit: int,
) -> Preemption:
    """Decide whether the events about this node add the taint to it.

    Only the latest occurrence counts. It is also recorded if the taint already exists; otherwise it
    would set the taint again once an operator has removed it. `evicted`: the Nodes that have the
    taint; `limit`: how many may have it.
    """
    relevant = [event for event in events if _is_about(event, node)]
    if not relevant:
        return Preemption(PreemptReason.NO_EVENT)
    event = max(relevant, key=lambda e: (e.time or 0.0, e.count, e.uid))
    if node.preempted_by == event.mark:
        return Preemption(PreemptReason.ALREADY_ACTED_UPON, event)
    if is_evicted(node):
        return Preemption(PreemptReason.ALREADY_DRAINING, event, _patch(node, event))
    if len(evicted - {node.name}) >= limit:
        return Preemption(PreemptReason.TOO_MANY_EVICTED, event)
    # A merge patch replaces the whole list.
    taints = [*map(_taint_body, node.taints), _taint_body(_SPOT_TAINT)]
    patch = {**_patch(node, event), "spec": {"taints": taints}}
    return Preemption(PreemptReason.SPOT_EVICTION, event, patch)


def _is_about(event: PreemptEvent, node: NodeInfo) -> bool:
    """Whether an event is about this Node, not about an earlier one of the same name."""
    if event.node != node.name or event.node_uid not in ("", node.name, node.uid):
        return False
    return event.time is None or node.created is None or event.time >= node.created


def _patch(node: NodeInfo, event: PreemptEvent) -> Dict[str, Any]:
    """Return a patch with the mark; it applies to this version only, as taints may change."""
    return {
        "metadata": {
            "resourceVersion": node.version,
            "annotations": {names.PREEMPTED_ANNOTATION: event.mark},
        }
    }


def _taint_body(taint: Taint) -> Dict[str, str]:
    body = {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "timeAdded": taint.time_added,
    }
    return {name: text for name, text in body.items() if text}
