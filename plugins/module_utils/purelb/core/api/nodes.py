# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Conversion of Node objects, and of events about them, to records.

Reading is tolerant: a missing optional field never raises an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple

from .. import names
from ..addresses import parse_address
from ..election.draining import NodeInfo, PreemptEvent, Taint
from ..model import Address
from ..times import parse_time
from .codec import Json, node_addresses


@dataclass(frozen=True)
class NodeView:
    """A Node as an audit sees it.

    `is_ready`: its kubelet is up. `tainted`: when its taints changed last, in seconds since the
    epoch; None if the API server does not know. `annotated`: the addresses in its annotations, by
    their names; network plugins write there what they take for the node's.
    """

    info: NodeInfo
    is_ready: bool = True
    tainted: Optional[float] = None
    annotated: Mapping[str, Tuple[Address, ...]] = field(default_factory=dict)


def node_view_of(body: Json) -> NodeView:
    """Return the record of a Node object for an audit."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    writes = (
        parse_time(entry.get("time"))
        for entry in body["metadata"].get("managedFields") or ()
        if "f:taints" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    )
    tainted = max((time for time in writes if time is not None), default=None)
    annotations = body["metadata"].get("annotations") or {}
    found = {name: _addresses_in(value) for name, value in annotations.items()}
    annotated = {name: addresses for name, addresses in found.items() if addresses}
    return NodeView(node_info_of(body), is_ready, tainted, annotated)


def _addresses_in(text: str) -> Tuple[Address, ...]:
    """Return the addresses in a list of them, with masks or without; empty for another text."""
    try:
        return tuple(parse_address(entry.strip().partition("/")[0]) for entry in text.split(","))
    except ValueError:
        return ()


def node_info_of(body: Json) -> NodeInfo:
    """Return the record of a Node object."""
    meta, spec = body["metadata"], body.get("spec") or {}
    annotations = meta.get("annotations") or {}
    return NodeInfo(
        name=meta["name"],
        uid=meta.get("uid", ""),
        version=meta.get("resourceVersion", ""),
        labels=dict(meta.get("labels") or {}),
        addresses=node_addresses(body),
        taints=tuple(map(_taint_of, spec.get("taints") or ())),
        created=parse_time(meta.get("creationTimestamp")),
        preempted_by=annotations.get(names.PREEMPTED_ANNOTATION, ""),
    )


def _taint_of(body: Json) -> Taint:
    return Taint(
        body["key"],
        body.get("value") or "",
        body.get("effect") or "",
        body.get("timeAdded") or "",
    )


def preempt_event_of(body: Json) -> PreemptEvent:
    """Return the record of an event about a Node, from a reporter of the old or the new API.

    Its time is that of the last occurrence, but not earlier than the creation by the API server, as
    the reporter's clock may be slow.
    """
    meta, series = body["metadata"], body.get("series") or {}
    about = body.get("involvedObject") or {}
    texts = (
        meta.get("creationTimestamp"),
        body.get("eventTime"),
        body.get("lastTimestamp"),
        series.get("lastObservedTime"),
    )
    return PreemptEvent(
        node=about.get("name") or "",
        uid=meta.get("uid", ""),
        count=series.get("count") or body.get("count") or 1,
        time=max((t for t in map(parse_time, texts) if t is not None), default=None),
        node_uid=about.get("uid") or "",
    )
