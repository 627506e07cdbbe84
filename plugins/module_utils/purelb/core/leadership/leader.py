# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which of several replicas leads: one machine in each, told what was seen of the lock and when.

It answers whether to acquire, renew, wait or end; it reads no clock and sends nothing. Another's
lock counts from the moment that this observer *saw* it renewed, on its own monotonic clock, so
clocks need not agree. The own right counts from the moment at which the last good write of the lock
was *sent*, and ends so early that no write made under it can arrive after a successor may lead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Dict, Optional, Tuple

from ..api.codec import is_older
from ..errors import SettingError

_NEVER, _ALWAYS = float("inf"), float("-inf")
# What a write may take after it was sent: the sender's kernel gives up what is not acknowledged
# after the first, and the API server is told to give up after the second.
ON_THE_WIRE = 2.0
AT_THE_SERVER = 2.0
# A lock that was given up is free at once, whatever this says; but the API takes nothing less.
_RELEASED_DURATION = 1.0


@dataclass(frozen=True)
class LeaderTiming:
    """How the lock is kept, in seconds.

    `duration`: how long it counts after a renewal. `renew_deadline`: how long after its last good
    renewal a leader still writes; what is left until `duration` is the time that its last write has
    to arrive. `retry_period`: pause between renewals, good or failed, and the time each one gets.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        """Refuse timings with which two replicas could write at once."""
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
    """What a lock says. Times by the holder's wall clock; `version` is that of the object."""

    holder: str = ""
    duration: float = 0.0
    acquire_time: Optional[float] = None
    renew_time: Optional[float] = None
    transitions: int = 0
    version: str = ""

    def is_same_renewal(self, other: LeaderRecord) -> bool:
        """Whether nobody has acquired or renewed in between.

        Not by the version: somebody who labels the lock of a dead holder must not revive it.
        """
        return replace(self, version="") == replace(other, version="")


class LeaderState(str, Enum):
    """What a replica is, and why it no longer leads."""

    STANDING_BY = "standingBy"
    LEADING = "leaderElected"
    # It could not renew in time, or slept through its deadline.
    LAPSED = "notRenewed"
    # Somebody else took the lock, or emptied it.
    SUPERSEDED = "superseded"
    RELEASED = "released"


class LeaderEvent(str, Enum):
    """What can happen to a replica's lock."""

    WRITTEN = "written"
    LAPSED = "lapsed"
    SUPERSEDED = "superseded"
    STOPPED = "stopped"


_S, _E = LeaderState, LeaderEvent
# Nothing leads back: a replica that lost the lock ends, and another process takes its place.
TRANSITIONS: Dict[Tuple[LeaderState, LeaderEvent], LeaderState] = {
    (_S.STANDING_BY, _E.WRITTEN): _S.LEADING,
    (_S.LEADING, _E.WRITTEN): _S.LEADING,
    (_S.LEADING, _E.LAPSED): _S.LAPSED,
    (_S.LEADING, _E.SUPERSEDED): _S.SUPERSEDED,
    (_S.STANDING_BY, _E.STOPPED): _S.RELEASED,
    (_S.LEADING, _E.STOPPED): _S.RELEASED,
}


class Action(str, Enum):
    """What a replica is to do now."""

    ACQUIRE = "acquire"
    RENEW = "renew"
    WAIT = "wait"
    END = "end"


@dataclass(frozen=True)
class Step:
    """What to do now; after a WAIT, ask again at `until` or when something was seen."""

    action: Action
    until: float = _NEVER


@dataclass(frozen=True)
class Leadership:
    """One replica: what it knows of the lock, and what it may do.

    `record`: the lock as last seen; `exists`: whether it was there. `free_at`: when it may be
    taken. `next_attempt`: when the next write is due. `fence_at`: when the right that the last good
    write of the lock gave ends.
    """

    identity: str
    timing: LeaderTiming
    state: LeaderState = LeaderState.STANDING_BY
    record: Optional[LeaderRecord] = None
    exists: bool = False
    free_at: float = _NEVER
    next_attempt: float = _ALWAYS
    fence_at: float = _ALWAYS

    def _to(self, event: LeaderEvent) -> Leadership:
        return replace(self, state=TRANSITIONS[self.state, event])

    @property
    def holder(self) -> str:
        """Who holds the lock, as far as was seen; empty if nobody."""
        return self.record.holder if self.record else ""

    def observed(self, record: LeaderRecord, now: float) -> Leadership:
        """Take note of the lock as it is; what is older than what is known says nothing new."""
        if self.record is not None and is_older(record.version, self.record.version):
            return self
        is_lost = self.state is LeaderState.LEADING and record.holder != self.identity
        machine = self._to(LeaderEvent.SUPERSEDED) if is_lost else self
        return replace(machine, record=record, exists=True, free_at=self._free_at(record, now))

    def _free_at(self, record: LeaderRecord, now: float) -> float:
        # The own identity: an answer was lost, but the write was not.
        if record.holder in ("", self.identity):
            return _ALWAYS
        if self.record is not None and record.is_same_renewal(self.record):
            return self.free_at
        return now + (record.duration or self.timing.duration)

    def gone(self, now: float, version: str = "") -> Leadership:
        """Take note that the lock is not there, or was deleted at this version.

        Its holder leads on until its deadline, and writes it again if it can. Who sees no lock
        cannot know who renewed it last, and waits as if that had been just now.
        """
        if self.record is not None and is_older(version, self.record.version):
            return self
        if self.state is LeaderState.LEADING:
            return replace(self, exists=False, next_attempt=now)
        return replace(self, exists=False, free_at=now + self.timing.duration)

    def at(self, now: float) -> Leadership:
        """Look at the clock: a right that was not renewed by its deadline lapses for good."""
        if self.state is LeaderState.LEADING and now >= self.fence_at:
            return self._to(LeaderEvent.LAPSED)
        return self

    def step(self, now: float) -> Step:
        """What to do now, on what `at` made of this moment."""
        if self.state is LeaderState.STANDING_BY:
            due = max(self.free_at, self.next_attempt)
            return Step(Action.ACQUIRE) if now >= due else Step(Action.WAIT, due)
        if self.state is LeaderState.LEADING:
            if now >= self.next_attempt:
                return Step(Action.RENEW)
            return Step(Action.WAIT, min(self.next_attempt, self.fence_at))
        return Step(Action.END)

    def wanted(self, wall_time: float) -> LeaderRecord:
        """The lock as it is to be written, in place of the version that was seen, if any."""
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
        """Take note of a good write, sent at `sent_at` and answered by `now`."""
        if (self.state, LeaderEvent.WRITTEN) not in TRANSITIONS:
            return self
        written = replace(
            self._to(LeaderEvent.WRITTEN),
            record=record,
            exists=True,
            next_attempt=max(now, sent_at + self.timing.retry_period),
            fence_at=sent_at + self.timing.renew_deadline,
        )
        return written.at(now)

    def failed(self, *, sent_at: float, now: float) -> Leadership:
        """Take note of a write that did not succeed, or of which that is not known."""
        return replace(self, next_attempt=max(now, sent_at + self.timing.retry_period))

    def may_write(self, now: float) -> bool:
        """Whether a write may be sent at this moment."""
        return self.state is LeaderState.LEADING and now < self.fence_at

    def stopped(self) -> Leadership:
        """Lead no more, and never again."""
        return self._to(LeaderEvent.STOPPED)


def released(record: LeaderRecord, wall_time: float) -> LeaderRecord:
    """The lock as its holder leaves it: free at once, its count of transitions kept."""
    return replace(
        record,
        holder="",
        duration=_RELEASED_DURATION,
        acquire_time=wall_time,
        renew_time=wall_time,
    )
