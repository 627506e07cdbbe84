# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Acquires and renews the lock with which one of several allocators leads: a Lease.

The state machine in core/leadership decides. Every write of the leader is checked before it is sent
(see leader_kube). The deadlines, in seconds since the last good renewal was *sent*:

    10  leadership ends: nothing more is sent
    12  the local kernel has dropped everything unacknowledged (TCP_USER_TIMEOUT of 2 s)
    14  the API server has dropped every write it had not carried out (`timeout=2s` of each write)
    15  another replica may lead at the earliest: it *saw* that renewal after it was sent, and waits
        a full duration from then, by its own clock

The remaining second is for late timers and the like. A process that was frozen finds its leadership
expired when it resumes, and ends; another takes its place.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any

from purelb.core import names
from purelb.core.leadership import locks
from purelb.core.leadership.leader import (
    AT_THE_SERVER,
    ON_THE_WIRE,
    Action,
    LeaderRecord,
    Leadership,
    LeaderState,
    LeaderTiming,
    released,
)
from purelb_agent.kube.client import CONFLICT, NOT_FOUND, ApiError, Json, Kube
from purelb_agent.kube.events import Events, ObjectReference
from purelb_agent.leader.metrics import LeaderMetrics
from purelb_agent.runtime import clock, log
from purelb_agent.runtime.tasks import ReplacedError
from purelb_agent.runtime.wakeup import Wakeup

_RELEASE_ATTEMPTS = 3
_RELEASE_SECONDS = 1.0


class LeadershipLostError(ReplacedError):
    """Another replica may lead: the process must end."""


@dataclass(frozen=True)
class Lock:
    """The Lease that the replicas share."""

    namespace: str
    name: str = names.LEADER_LEASE

    @property
    def collection(self) -> str:
        """Path of the Leases of its namespace."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def path(self) -> str:
        """Path of the Lease."""
        return f"{self.collection}/{self.name}"


class Elector:
    """One replica's view of the lock, fed by a watch, and whether this replica may write."""

    def __init__(
        self,
        kube: Kube,
        lock: Lock,
        identity: str,
        *,
        metrics: LeaderMetrics,
        timing: LeaderTiming | None = None,
    ) -> None:
        self.elected = asyncio.Event()
        self.has_looked = False
        self._kube = kube
        self._lock = lock
        self._timing = timing or LeaderTiming()
        self._machine = Leadership(identity, self._timing)
        self._metrics = metrics
        self._uid = ""
        self._logged_holder = ""
        self._is_failing = False
        self._news = Wakeup()

    # Called by the watcher.

    def replace(self, items: list[Json], *, asked_at: float) -> None:
        """Take the listed Lease, or that there is none."""
        if items:
            self._take(items[0], asked_at=asked_at)
        else:
            self._note(self._machine.gone(clock.now()))

    def put(self, item: Json) -> None:
        """Take a new or changed Lease."""
        self._take(item, asked_at=-math.inf)

    def drop(self, item: Json) -> None:
        """Take the deletion of the Lease."""
        version = item["metadata"]["resourceVersion"]
        self._note(self._machine.gone(clock.now(), version))

    def _take(self, item: Json, *, asked_at: float) -> None:
        self._uid = item["metadata"]["uid"]
        record = locks.record_of(item)
        self._note(self._machine.observed(record, clock.now(), asked_at=asked_at))

    def _note(self, machine: Leadership) -> None:
        self._machine = machine
        self.has_looked = True
        self._news.notify()

    # Leadership.

    def seconds_left(self) -> float:
        """Return for how many seconds this process may write; 0 if it does not lead."""
        now = clock.now()
        return self._machine.fence_at - now if self._machine.may_write(now) else 0.0

    def may_ask(self, *, takes: float) -> bool:
        """Return whether a call of another system that takes so many seconds may begin.

        It must end before the last write to the API server would.
        """
        return self.seconds_left() > max(0.0, takes - ON_THE_WIRE - AT_THE_SERVER)

    async def run(self) -> None:
        """Acquire the lock and renew it; LeadershipLostError when it is lost."""
        while True:
            self._machine = self._machine.at(clock.now())
            self._log_holder()
            step = self._machine.step(clock.now())
            if step.action is Action.END:
                raise self._lost()
            if step.action is Action.WAIT:
                await self._news.wait(until=min(step.until, clock.now() + self._timing.duration))
            else:
                await self._attempt()

    async def _attempt(self) -> None:
        sent_at, wanted = clock.now(), self._machine.wanted(clock.wall_time())
        before = self._machine.holder
        try:
            body = await self._write(wanted, self._timing.retry_period)
        except ApiError as error:
            self._machine = self._machine.failed(sent_at=sent_at, now=clock.now())
            await self._failed(error)
            return
        self._is_failing = False
        self._uid = body["metadata"]["uid"]
        record = locks.record_of(body)
        self._machine = self._machine.written(record, sent_at=sent_at, now=clock.now())
        if self._machine.state is LeaderState.LEADING and not self.elected.is_set():
            self._lead(before)

    async def _write(self, record: LeaderRecord, seconds: float) -> Json:
        """Replace the version of the lock that the record names, or create it if that is empty."""
        body: dict[str, Any] = {"metadata": {}, "spec": locks.lease_spec(record)}
        if record.version:
            body["metadata"]["resourceVersion"] = record.version
            return await self._kube.request("PATCH", self._lock.path, body, seconds=seconds)
        body["metadata"] = {"name": self._lock.name, "labels": names.LEADER_LABELS}
        return await self._kube.request("POST", self._lock.collection, body, seconds=seconds)

    async def _failed(self, error: ApiError) -> None:
        if error.status in (CONFLICT, NOT_FOUND):
            await self._read()
        elif not self._is_failing:
            self._is_failing = True
            log.warning("lockNotWritten", lock=self._lock.name, error=str(error))

    async def _read(self) -> None:
        """Read the lock after a write that was based on an outdated one."""
        asked_at = clock.now()
        try:
            seen = await self._kube.request(
                "GET", self._lock.path, seconds=self._timing.retry_period
            )
        except ApiError as error:
            if error.status == NOT_FOUND:
                self._note(self._machine.gone(clock.now()))
            return
        self._take(seen, asked_at=asked_at)

    # Log, metric and event.

    def _log_holder(self) -> None:
        """Log the holder once while this replica stands by."""
        holder = self._machine.holder
        is_news = self.has_looked and holder != self._logged_holder
        if is_news and self._machine.state is LeaderState.STANDING_BY:
            self._logged_holder = holder
            log.info(self._machine.state.value, lock=self._lock.name, holder=holder or "none")

    def _lead(self, before: str) -> None:
        self.elected.set()
        self._metrics.show(is_leader=True)
        log.info(
            self._machine.state.value,
            lock=self._lock.name,
            holder=self._machine.identity,
            before=before or "none",
            transitions=self._machine.wanted(0.0).transitions,
        )

    def record_event(self, events: Events) -> None:
        """Record an event on the lock: this replica leads."""
        about = ObjectReference("Lease", self._lock.name, self._lock.namespace, self._uid)
        events.record(
            about, "LeaderElected", f"{self._machine.identity} allocates the addresses from now on"
        )

    def _lost(self) -> LeadershipLostError:
        self._metrics.show(is_leader=False)
        why = self._machine.state.value
        log.warning("leadershipLost", lock=self._lock.name, reason=why, holder=self._machine.holder)
        return LeadershipLostError(f"leadershipLost: {why}: this process may write no more")

    # Shutdown.

    async def release(self) -> None:
        """Release the lock if this process holds it; after `run` and every write have ended.

        Reads it first: an attempt that was interrupted may have succeeded.
        """
        if self._machine.state in (LeaderState.STANDING_BY, LeaderState.LEADING):
            self._machine = self._machine.stopped()
        self._metrics.show(is_leader=False)
        for _attempt in range(_RELEASE_ATTEMPTS):
            try:
                if await self._release_once():
                    log.info("leadershipReleased", lock=self._lock.name)
            except ApiError as error:
                if error.status == CONFLICT:
                    continue
                log.warning("lockNotReleased", lock=self._lock.name, error=str(error))
            return

    async def _release_once(self) -> bool:
        try:
            body = await self._kube.request("GET", self._lock.path, seconds=_RELEASE_SECONDS)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        record = locks.record_of(body)
        if record.holder != self._machine.identity:
            return False
        await self._write(released(record, clock.wall_time()), _RELEASE_SECONDS)
        return True
