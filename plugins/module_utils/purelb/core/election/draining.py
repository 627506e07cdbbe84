# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which nodes are leaving, and when the announced end of a node becomes a taint on it.

A taint lasts, an event does not: the event of an eviction is turned into a taint, and the Node
keeps a mark of that occurrence. So an operator who takes the taint away is never overruled by what
was known already, whatever restarts in between; only a new occurrence taints again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, FrozenSet, Iterable, Mapping, NamedTuple, Optional, Tuple

from .. import names
from ..model import Address


class Taint(NamedTuple):
    """A taint as its Node has it."""

    key: str
    value: str = ""
    effect: str = ""
    # Text of the API: it is only ever handed back.
    time_added: str = ""


_SPOT_TAINT = Taint(names.SPOT_TAINT_KEY, names.SPOT_TAINT_VALUE, names.SPOT_TAINT_EFFECT)


@dataclass(frozen=True)
class NodeInfo:
    """What the decisions need to know of a Node object."""

    name: str
    uid: str = ""
    version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    addresses: FrozenSet[Address] = frozenset()
    taints: Tuple[Taint, ...] = ()
    # Seconds since the epoch, by the API server's clock.
    created: Optional[float] = None
    preempted_by: str = ""


@dataclass(frozen=True)
class PreemptEvent:
    """An event that says that a node will be taken away."""

    node: str
    uid: str
    count: int = 1
    # Of the last occurrence, in seconds since the epoch.
    time: Optional[float] = None
    # As the reporter has it: the Node's UID, its name, or nothing.
    node_uid: str = ""

    @property
    def mark(self) -> str:
        """Names this occurrence of the event."""
        return f"{self.uid}@{self.count}"


class PreemptReason(str, Enum):
    """Why a Node gets the taint, or why it does not."""

    SPOT_EVICTION = "spotEviction"
    ALREADY_DRAINING = "alreadyDraining"
    ALREADY_ACTED_UPON = "alreadyActedUpon"
    NO_EVENT = "noEvent"


@dataclass(frozen=True)
class Preemption:
    """What to do about a Node: a merge patch, or nothing, and about which event."""

    reason: PreemptReason
    event: Optional[PreemptEvent] = None
    patch: Optional[Dict[str, Any]] = None

    @property
    def mark(self) -> str:
        """The occurrence that this is about; empty where there is none."""
        return self.event.mark if self.event else ""


def draining_taint(taints: Iterable[Taint]) -> Optional[str]:
    """Key of the taint by which a node is leaving, whatever its value and effect, or None."""
    carried = {key for key, *_more in taints}
    return next((key for key in names.DRAINING_TAINTS if key in carried), None)


def preempt(node: NodeInfo, events: Iterable[PreemptEvent]) -> Preemption:
    """Decide what the events that name this node mean for it.

    Only the latest occurrence counts: an earlier one says nothing that this one does not. It leaves
    its mark also where the taint is there already, or it would act once the taint is taken away.
    """
    about = [event for event in events if _is_about(event, node)]
    if not about:
        return Preemption(PreemptReason.NO_EVENT)
    event = max(about, key=lambda e: (e.time or 0.0, e.count, e.uid))
    if node.preempted_by == event.mark:
        return Preemption(PreemptReason.ALREADY_ACTED_UPON, event)
    if any(taint.key == names.SPOT_TAINT_KEY for taint in node.taints):
        return Preemption(PreemptReason.ALREADY_DRAINING, event, _patch(node, event))
    # A merge patch replaces the whole list.
    taints = [*map(_taint_body, node.taints), _taint_body(_SPOT_TAINT)]
    patch = {**_patch(node, event), "spec": {"taints": taints}}
    return Preemption(PreemptReason.SPOT_EVICTION, event, patch)


def _is_about(event: PreemptEvent, node: NodeInfo) -> bool:
    """Whether an event is about this very Node, not about an earlier one of the same name."""
    if event.node != node.name or event.node_uid not in ("", node.name, node.uid):
        return False
    return event.time is None or node.created is None or event.time >= node.created


def _patch(node: NodeInfo, event: PreemptEvent) -> Dict[str, Any]:
    """The mark, on this version of the Node only: who changed it since may have changed taints."""
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
