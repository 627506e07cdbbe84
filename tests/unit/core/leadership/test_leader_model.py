# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas that share one lock, on every schedule: never two of them may write.

The server keeps the lock under resource versions. Everything between it and a replica takes as long
as the schedule likes or is lost; a replica that the schedule passes over is a frozen process.
Clocks differ in what they show and a little in how fast they go.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

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

# On a busy machine, under coverage.
pytestmark = pytest.mark.timeout(60)
TIMING = LeaderTiming()
_STANDING_BY = LeaderState.STANDING_BY
REPLICAS = st.integers(0, 2)
PAUSES = st.sampled_from([0.1, 0.5, 1.9, 2.0, 3.0, 5.0, 7.0, 9.8, 13.0, 15.2, 40.0])
# The fate of a write: most arrive and are answered at once.
FATES = st.sampled_from(["good", "good", "good", "late", "answered late", "answer lost"])


@dataclass
class Write:
    by: Replica
    record: LeaderRecord
    sent_at: float
    is_awaited: bool = True


@dataclass
class Replica:
    machine: Leadership
    offset: float
    rate: float
    # What is on its way to this replica: how the lock was at some time.
    news: list[LeaderRecord | None] = field(default_factory=list)
    answers: list[tuple[Write, LeaderRecord]] = field(default_factory=list)
    attempt: Write | None = None

    def clock(self, moment):
        return self.offset + self.rate * moment

    def moment(self, clock):
        return (clock - self.offset) / self.rate


class Lock(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.version = 0
        self.lock: LeaderRecord | None = None
        self.under_way: list[Write] = []
        self.born = 0
        self.replicas = [self.new(offset, 1.0) for offset in (0.0, 500.0, -7.0)]
        self.past: list[Replica] = []

    def new(self, offset, rate):
        self.born += 1
        return Replica(Leadership(f"r{self.born}", TIMING), offset, rate)

    def store(self, record):
        self.version += 1
        self.lock = None if record is None else replace(record, version=str(self.version))
        return self.lock

    @rule(pause=PAUSES)
    def time_passes(self, pause):
        self.now += pause

    @rule(i=REPLICAS, offset=st.floats(-1e6, 1e6), rate=st.floats(0.99, 1.01))
    def a_process_ends_and_another_begins(self, i, offset, rate):
        self.past.append(self.replicas[i])
        self.replicas[i] = self.new(offset, rate)

    @rule(i=REPLICAS)
    def the_lock_is_looked_at(self, i):
        self.replicas[i].news.append(self.lock)

    @precondition(lambda self: any(r.news for r in self.replicas))
    @rule(data=st.data())
    def what_was_seen_arrives(self, data):
        self.hear(data.draw(st.sampled_from([r for r in self.replicas if r.news])))

    def hear(self, replica):
        record, clock = replica.news.pop(0), replica.clock(self.now)
        if record is None:
            replica.machine = replica.machine.gone(clock)
        else:
            replica.machine = replica.machine.observed(record, clock)

    @rule(i=REPLICAS, looks=st.sampled_from([True, True, False]), fate=FATES)
    def a_replica_runs(self, i, looks, fate):
        replica = self.replicas[i]
        if looks:
            replica.news.append(self.lock)
            while replica.news:
                self.hear(replica)
        clock = replica.clock(self.now)
        replica.machine = replica.machine.at(clock)
        if replica.attempt is not None and not self.is_given_up(replica, clock):
            return
        if replica.machine.step(clock).action not in (Action.ACQUIRE, Action.RENEW):
            return
        replica.attempt = Write(replica, replica.machine.wanted(self.now), clock)
        self.under_way.append(replica.attempt)
        if fate != "late":
            self.arrive(self.under_way.pop())
            if fate == "good" and replica.answers:
                self.answer(replica)
            elif fate == "answer lost":
                replica.answers.clear()

    def is_given_up(self, replica, clock):
        if clock < replica.attempt.sent_at + TIMING.retry_period:
            return False
        replica.attempt.is_awaited = False
        sent_at, replica.attempt = replica.attempt.sent_at, None
        replica.machine = replica.machine.failed(sent_at=sent_at, now=clock)
        return True

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def a_write_arrives(self, data):
        self.arrive(self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1))))

    def arrive(self, write):
        if write.record.version == (self.lock.version if self.lock else ""):
            write.by.answers.append((write, self.store(write.record)))

    @precondition(lambda self: any(r.answers for r in self.replicas))
    @rule(data=st.data())
    def an_answer_arrives(self, data):
        self.answer(data.draw(st.sampled_from([r for r in self.replicas if r.answers])))

    def answer(self, replica):
        write, record = replica.answers.pop(0)
        if not write.is_awaited:
            return
        replica.attempt = None
        clock = replica.clock(self.now)
        before = replica.machine.state
        replica.machine = replica.machine.written(record, sent_at=write.sent_at, now=clock)
        if (before, replica.machine.state) == (LeaderState.STANDING_BY, LeaderState.LEADING):
            self.nothing_of_another_leader_is_on_its_way(replica)

    @rule(i=REPLICAS)
    def a_leader_leaves(self, i):
        replica = self.replicas[i]
        if replica.machine.state is LeaderState.LEADING:
            replica.machine = replica.machine.stopped()
            left = released(replica.machine.record, self.now)
            self.under_way.append(Write(replica, left, 0.0, is_awaited=False))

    @rule(label=st.booleans())
    def others_delete_or_label_the_lock(self, label):
        """Deleted only if each standby has heard of its holder.

        One that sees no lock may make one, and no version shows the server that there was another
        in between: a deletion in that moment lets two lead.
        """
        standing_by = (r.machine for r in self.replicas if r.machine.state is _STANDING_BY)
        if self.lock is not None and label:
            self.store(self.lock)
        elif self.lock is not None and all(m.holder == self.lock.holder for m in standing_by):
            self.store(None)

    def nothing_of_another_leader_is_on_its_way(self, leader):
        for other in (*self.replicas, *self.past):
            machine = other.machine
            if other is not leader and machine.state is not LeaderState.RELEASED:
                last_sent = other.moment(machine.fence_at)
                assert last_sent + ON_THE_WIRE + AT_THE_SERVER < self.now

    @invariant()
    def never_may_two_write(self):
        both = (*self.replicas, *self.past)
        writers = [r for r in both if r.machine.may_write(r.clock(self.now))]
        assert len(writers) <= 1


TestLock = Lock.TestCase
TestLock.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
