# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which of several replicas leads: a state machine in each, fed with observations of the lock.

It returns whether to acquire, renew, wait or end; it reads no clock and sends nothing. Another
replica's lock is valid from the moment at which this observer *saw* it renewed, on its own
monotonic clock, so clocks need not agree. This replica's own leadership counts from the moment at
which its last successful write of the lock was *sent*, and ends early enough that none of its
writes arrives after a successor leads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Dict, Optional, Tuple

from ..api.codec import is_older
from ..errors import SettingError
from ..settings import LONGEST_DURATION

_NEVER, _ALWAYS = float("inf"), float("-inf")
# How long a write may take after it was sent: the sender's kernel drops unacknowledged data after
# the first, and the API server is asked to time out after the second.
ON_THE_WIRE = 2.0
AT_THE_SERVER = 2.0
# A released lock is free at once regardless of this; the API accepts no shorter duration.
_RELEASED_DURATION = 1.0


@dataclass(frozen=True)
class LeaderTiming:
    """The timing of the lock, in seconds.

    `duration`: how long it is valid after a renewal. `renew_deadline`: how long after its last
    successful renewal a leader still writes; the rest of `duration` is the time for its last write
    to arrive. `retry_period`: pause between renewals, and the timeout of each.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        """Raise a SettingError for timings with which two replicas could write at once."""
        if self.duration != int(self.duration):
            raise SettingError(
                f"the duration of the lock must be whole seconds ({self.duration:g}s): a Lease has "
                "no fractions"
            )
        if not self.renew_deadline + ON_THE_WIRE + AT_THE_SERVER < self.duration:
            raise SettingError(
                f"the renew deadline of the lock ({self.renew_deadline:g}s) must come more than "
                f"{ON_THE_WIRE + AT_THE_SERVER:g}s before its end ({self.duration:g}s): the last "
                "write arrives in between"
            )
        if not 0 < self.retry_period < self.renew_deadline:
            raise SettingError(
                f"the retry period of the lock ({self.retry_period:g}s) must be shorter than its "
                f"renew deadline ({self.renew_deadline:g}s): or there is no second attempt"
            )


@dataclass(frozen=True)
class LeaderRecord:
    """The content of a lock; times on the holder's wall clock, `version` is the object's."""

    holder: str = ""
    duration: float = 0.0
    acquire_time: Optional[float] = None
    renew_time: Optional[float] = None
    transitions: int = 0
    version: str = ""

    def is_same_renewal(self, other: LeaderRecord) -> bool:
        """Whether the lock was neither acquired nor renewed between two reads.

        The version is ignored: labelling the lock of a dead holder must not revive it.
        """
        return replace(self, version="") == replace(other, version="")


class LeaderState(str, Enum):
    """The state of a replica, with the reason once it no longer leads."""

    STANDING_BY = "standingBy"
    LEADING = "leaderElected"
    # It could not renew in time, or was suspended past its deadline.
    LAPSED = "notRenewed"
    # Another replica took the lock, or something emptied it.
    SUPERSEDED = "superseded"
    RELEASED = "released"


class LeaderEvent(str, Enum):
    """An event that concerns a replica's lock."""

    WRITTEN = "written"
    LAPSED = "lapsed"
    SUPERSEDED = "superseded"
    STOPPED = "stopped"


_S, _E = LeaderState, LeaderEvent
# No state leads back: a replica that lost the lock exits, and another process replaces it.
TRANSITIONS: Dict[Tuple[LeaderState, LeaderEvent], LeaderState] = {
    (_S.STANDING_BY, _E.WRITTEN): _S.LEADING,
    (_S.LEADING, _E.WRITTEN): _S.LEADING,
    (_S.LEADING, _E.LAPSED): _S.LAPSED,
    (_S.LEADING, _E.SUPERSEDED): _S.SUPERSEDED,
    (_S.STANDING_BY, _E.STOPPED): _S.RELEASED,
    (_S.LEADING, _E.STOPPED): _S.RELEASED,
}


class Action(str, Enum):
    """What a replica does next."""

    ACQUIRE = "acquire"
    RENEW = "renew"
    WAIT = "wait"
    END = "end"


@dataclass(frozen=True)
class Step:
    """The next action; after WAIT, call again at `until` or after a new observation."""

    action: Action
    until: float = _NEVER


@dataclass(frozen=True)
class Leadership:
    """One replica: its knowledge of the lock and its state.

    `record`: the lock as last seen, `known_at` that time; `exists`: whether it existed then.
    `free_at`: when it may be acquired. `next_attempt`: when the next write is due. `fence_at`:
    until when the last successful write of the lock allows this replica to write.
    """

    identity: str
    timing: LeaderTiming
    state: LeaderState = LeaderState.STANDING_BY
    record: Optional[LeaderRecord] = None
    known_at: float = _ALWAYS
    exists: bool = False
    free_at: float = _NEVER
    next_attempt: float = _ALWAYS
    fence_at: float = _ALWAYS

    def _to(self, event: LeaderEvent) -> Leadership:
        return replace(self, state=TRANSITIONS[self.state, event])

    @property
    def holder(self) -> str:
        """The holder of the lock as last seen; empty without one."""
        return self.record.holder if self.record else ""

    def observed(
        self, record: LeaderRecord, now: float, *, asked_at: float = _ALWAYS
    ) -> Leadership:
        """Record the lock as read; a version older than the known one is ignored.

        `asked_at`: when the API server was asked for the lock as it is. If that is older than what
        was known before the question, an older store has been put back, as by a restore of etcd.
        Its holder may be one of the past, and who led until then may not have noticed yet: it knows
        what is no more, so it ends as it cannot renew.
        """
        is_back = self.record is not None and is_older(record.version, self.record.version)
        if is_back and (asked_at <= self.known_at or self.state is LeaderState.LEADING):
            return self
        is_lost = self.state is LeaderState.LEADING and record.holder != self.identity
        machine = self._to(LeaderEvent.SUPERSEDED) if is_lost else self
        free_at = self._free_at(record, now)
        if is_back:
            free_at = max(free_at, now + self.timing.duration)
        return replace(machine, record=record, known_at=now, exists=True, free_at=free_at)

    def _free_at(self, record: LeaderRecord, now: float) -> float:
        # With the own identity: the write succeeded, but its response was lost.
        if record.holder in ("", self.identity):
            return _ALWAYS
        if self.record is not None and record.is_same_renewal(self.record):
            return self.free_at
        return now + min(record.duration or self.timing.duration, LONGEST_DURATION)

    def gone(self, now: float, version: str = "") -> Leadership:
        """Record that the lock does not exist, or was deleted at this version.

        Its holder leads on until its deadline, and creates the lock again if it can. An observer
        cannot know when it was last renewed, and waits as if that had been just now.
        """
        if self.record is not None and is_older(version, self.record.version):
            return self
        if self.state is LeaderState.LEADING:
            return replace(self, exists=False, next_attempt=now)
        return replace(self, exists=False, free_at=now + self.timing.duration)

    def at(self, now: float) -> Leadership:
        """Return the state at this time: leadership lapses for good at its deadline."""
        if self.state is LeaderState.LEADING and now >= self.fence_at:
            return self._to(LeaderEvent.LAPSED)
        return self

    def step(self, now: float) -> Step:
        """Return the next action; call `at` with the same time first."""
        if self.state is LeaderState.STANDING_BY:
            due = max(self.free_at, self.next_attempt)
            return Step(Action.ACQUIRE) if now >= due else Step(Action.WAIT, due)
        if self.state is LeaderState.LEADING:
            if now >= self.next_attempt:
                return Step(Action.RENEW)
            return Step(Action.WAIT, min(self.next_attempt, self.fence_at))
        return Step(Action.END)

    def wanted(self, wall_time: float) -> LeaderRecord:
        """Return the lock to write; it replaces the version that was seen, if any."""
        known = self.record or LeaderRecord()
        is_own = known.holder == self.identity
        was_held = known.renew_time is not None
        return LeaderRecord(
            holder=self.identity,
            duration=self.timing.duration,
            acquire_time=known.acquire_time if is_own else wall_time,
            renew_time=wall_time,
            transitions=known.transitions + (1 if was_held and not is_own else 0),
            version=known.version if self.exists else "",
        )

    def written(self, record: LeaderRecord, *, sent_at: float, now: float) -> Leadership:
        """Record a successful write, sent at `sent_at` and answered by `now`."""
        if (self.state, LeaderEvent.WRITTEN) not in TRANSITIONS:
            return self
        written = replace(
            self._to(LeaderEvent.WRITTEN),
            record=record,
            known_at=now,
            exists=True,
            next_attempt=max(now, sent_at + self.timing.retry_period),
            fence_at=sent_at + self.timing.renew_deadline,
        )
        return written.at(now)

    def failed(self, *, sent_at: float, now: float) -> Leadership:
        """Record a failed write, or one with an unknown outcome."""
        return replace(self, next_attempt=max(now, sent_at + self.timing.retry_period))

    def may_write(self, now: float) -> bool:
        """Whether this replica may send a write at this time."""
        return self.state is LeaderState.LEADING and now < self.fence_at

    def stopped(self) -> Leadership:
        """Stop leading permanently."""
        return self._to(LeaderEvent.STOPPED)


def released(record: LeaderRecord, wall_time: float) -> LeaderRecord:
    """Return the lock as its holder releases it: free at once, with its transition count."""
    return replace(
        record,
        holder="",
        duration=_RELEASED_DURATION,
        acquire_time=wall_time,
        renew_time=wall_time,
    )
