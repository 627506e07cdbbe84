# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Leader locks of any program: their JSON, and their state as an auditor sees it.

A lock is a Lease; programs that predate Leases use an annotation on an Endpoints or ConfigMap
object. The auditor reads it once, so it compares with the wall clock; the replicas never do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, Mapping, Optional

from ..names import LEADER_ANNOTATION
from ..times import format_time, parse_time
from .leader import LeaderRecord

Json = Mapping[str, Any]
_HOUR = 3600.0
# A rolling update of three replicas may move the lock up to three times.
_FEWEST_TRANSITIONS = 4


class LockState(str, Enum):
    """The state of a lock at the time of the audit."""

    HELD = "held"
    EXPIRED = "expired"
    RELEASED = "released"
    ABSENT = "absent"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class LockName:
    """The object that contains a lock; `kind` is Lease, Endpoints or ConfigMap."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class LockReport:
    """A lock at the time of the audit; time spans are in seconds."""

    name: LockName
    state: LockState
    record: LeaderRecord = field(default_factory=LeaderRecord)
    age: Optional[float] = None
    held_for: Optional[float] = None
    transitions_per_hour: Optional[float] = None

    @property
    def is_flapping(self) -> bool:
        """Whether the lock changes its holder frequently.

        It had four transitions or more, on average more than one per hour since the object was
        created, and the last one within the last hour.
        """
        rate, held_for = self.transitions_per_hour, self.held_for
        return (
            self.record.transitions >= _FEWEST_TRANSITIONS
            and (rate is not None and rate > 1.0)
            and (held_for is not None and held_for < _HOUR)
        )


def record_of(body: Json) -> LeaderRecord:
    """Return the lock in a Lease."""
    spec = body.get("spec") or {}
    return LeaderRecord(
        holder=spec.get("holderIdentity") or "",
        duration=float(spec.get("leaseDurationSeconds") or 0),
        acquire_time=parse_time(spec.get("acquireTime")),
        renew_time=parse_time(spec.get("renewTime")),
        transitions=int(spec.get("leaseTransitions") or 0),
        version=body["metadata"].get("resourceVersion", ""),
    )


def lease_spec(record: LeaderRecord) -> Dict[str, Any]:
    """Return the spec of the Lease of a lock."""
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": int(record.duration),
        "acquireTime": format_time(record.acquire_time or 0.0),
        "renewTime": format_time(record.renew_time or 0.0),
        "leaseTransitions": record.transitions,
    }


def annotated_record_of(body: Json) -> Optional[LeaderRecord]:
    """Return the lock in an object's annotation; None if it is missing or unreadable."""
    text = (body["metadata"].get("annotations") or {}).get(LEADER_ANNOTATION, "")
    try:
        found = json.loads(text)
        return LeaderRecord(
            holder=found.get("holderIdentity") or "",
            duration=float(found.get("leaseDurationSeconds") or 0),
            acquire_time=parse_time(found.get("acquireTime")),
            renew_time=parse_time(found.get("renewTime")),
            transitions=int(found.get("leaderTransitions") or 0),
        )
    except (ValueError, TypeError, AttributeError):
        return None


def assess_lock(name: LockName, body: Optional[Json], *, wall_time: float) -> LockReport:
    """Return the report on a lock at `wall_time` (seconds since the epoch)."""
    if body is None:
        return LockReport(name, LockState.ABSENT)
    record = record_of(body) if name.kind == "Lease" else annotated_record_of(body)
    if record is None:
        return LockReport(name, LockState.UNREADABLE)

    def since(moment: Optional[float]) -> Optional[float]:
        return None if moment is None else wall_time - moment

    age, exists_for = since(record.renew_time), since(_creation_time(body))
    return LockReport(
        name,
        _state(record, age),
        record,
        age=age,
        held_for=since(record.acquire_time) if record.holder else None,
        transitions_per_hour=record.transitions / max(exists_for, 1.0) * _HOUR
        if exists_for is not None
        else None,
    )


def _creation_time(body: Json) -> Optional[float]:
    return parse_time(body["metadata"].get("creationTimestamp"))


def _state(record: LeaderRecord, age: Optional[float]) -> LockState:
    if not record.holder:
        return LockState.RELEASED
    return LockState.HELD if age is not None and age <= record.duration else LockState.EXPIRED


def lock_dict(report: LockReport) -> Dict[str, Any]:
    """Return the report as a plain dictionary."""

    def seconds(span: Optional[float]) -> Optional[float]:
        return None if span is None else round(span, 3)

    return {
        "kind": report.name.kind,
        "namespace": report.name.namespace,
        "name": report.name.name,
        "holder": report.record.holder,
        "state": report.state.value,
        "duration": report.record.duration,
        "age": seconds(report.age),
        "held_for": seconds(report.held_for),
        "transitions": report.record.transitions,
        "transitions_per_hour": seconds(report.transitions_per_hour),
        "flapping": report.is_flapping,
    }
