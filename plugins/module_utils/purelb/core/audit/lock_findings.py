# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Findings about leader locks."""

from __future__ import annotations

from typing import Iterable, Iterator, Optional

from ..leadership.locks import LockName, LockReport, LockState
from .findings import Finding, FindingCode, Severity

# Seconds. A released lock is acquired within one if another replica is running.
UNTAKEN = 5.0
_PODS = "look at the pods of the program that keeps it, and at their logs"


def lock_findings(
    locks: Iterable[LockReport], *, allocators: Optional[LockName] = None
) -> Iterator[Finding]:
    """Yield findings about locks without a holder or with frequent transitions.

    `allocators`: the lock of which `programs.leader_findings` says whether it has a holder.
    """
    for lock in locks:
        if lock.name != allocators:
            yield from _holder_findings(lock)
        if lock.is_flapping:
            yield _warning(lock, "lockFlapping", _flapping(lock), f"{_PODS}: why do they end?")


def _holder_findings(lock: LockReport) -> Iterator[Finding]:
    if lock.state is LockState.EXPIRED:
        yield _warning(lock, "lockExpired", _expired(lock), _PODS)
    elif lock.state is LockState.RELEASED and (lock.age is None or lock.age > UNTAKEN):
        since = "never" if lock.age is None else f"not for {lock.age:.0f} s"
        yield _warning(lock, "lockFree", f"was {since} held: no replica leads", _PODS)
    elif lock.state is LockState.ABSENT:
        yield _warning(
            lock,
            "lockAbsent",
            "does not exist: no replica leads, or the lock has another name",
            f"{_PODS}, or correct leader_locks",
        )
    elif lock.state is LockState.UNREADABLE:
        yield _warning(
            lock,
            "lockUnreadable",
            "has no annotation that names a leader",
            "name the object on which the program keeps its lock, or the Lease of that name",
        )


def _warning(lock: LockReport, code: FindingCode, message: str, remediation: str) -> Finding:
    return Finding(Severity.WARNING, code, str(lock.name), message, remediation)


def _expired(lock: LockReport) -> str:
    since = "never renewed" if lock.age is None else f"last renewed {lock.age:.0f} s ago"
    return (
        f"was {since} by {lock.record.holder}, with a duration of {lock.record.duration:.0f} s: "
        "no replica leads"
    )


def _flapping(lock: LockReport) -> str:
    return (
        f"changed hands {lock.record.transitions} times, {lock.transitions_per_hour:.1f} times an "
        "hour since it was created, and within the last hour"
    )
