# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The queue against a model that keeps lists and moments, over random sequences of calls."""

from __future__ import annotations

from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from purelb_agent.runtime import workqueue
from purelb_agent.runtime.wakeup import Wakeup
from tests.unit.agent.runtime.test_workqueue import ManualLoop

FIRST, LONGEST = 1.0, 30.0
KEYS = st.sampled_from("abc")


class QueueModel(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = ManualLoop()
        self.patch = mock.patch.object(
            workqueue.asyncio, "get_running_loop", return_value=self.loop
        )
        self.patch.start()
        self.wakeup = Wakeup()
        self.queue = workqueue.WorkQueue(
            first_pause=FIRST, longest_pause=LONGEST, wakeup=self.wakeup
        )
        self.waiting = []
        self.worked = {}
        self.failures = {}
        self.due = {}

    def teardown(self):
        self.patch.stop()

    def _add(self, key):
        if key in self.worked:
            self.worked[key] = True
        elif key not in self.waiting:
            self.waiting.append(key)

    @rule(key=KEYS)
    def add(self, key):
        self.queue.add(key)
        self._add(key)

    @rule()
    def take(self):
        expected = self.waiting.pop(0) if self.waiting else None
        key = self.queue.take()
        assert key == expected
        assert key not in self.worked
        if key is not None:
            self.worked[key] = False

    @precondition(lambda self: self.worked)
    @rule(data=st.data())
    def done(self, data):
        key = data.draw(st.sampled_from(sorted(self.worked)))
        self.queue.done(key)
        if self.worked.pop(key):
            self._add(key)

    @rule(key=KEYS, is_permanent=st.booleans())
    def retry(self, key, is_permanent):
        self.queue.retry(key, is_permanent=is_permanent)
        self.due.pop(key, None)
        pause = LONGEST if is_permanent else min(LONGEST, 2.0 ** self.failures.get(key, 0))
        self.due[key] = self.loop.now + pause
        self.failures[key] = 9 if is_permanent else self.failures.get(key, 0) + 1

    @rule(key=KEYS)
    def forget(self, key):
        self.queue.forget(key)
        self.failures.pop(key, None)

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0, 30.0]))
    def advance(self, seconds):
        end = self.loop.now + seconds
        # Keys that are due at one moment come in the order in which they were retried.
        for key in sorted(self.due, key=self.due.__getitem__):
            if self.due[key] <= end:
                del self.due[key]
                self._add(key)
        self.loop.advance(seconds)

    @invariant()
    def only_retries_to_come_have_timers(self):
        assert sorted(self.loop.pending) == sorted(due - self.loop.now for due in self.due.values())

    @invariant()
    def emptiness_is_that_no_key_waits(self):
        assert self.queue.is_empty == (not self.waiting and not any(self.worked.values()))

    @invariant()
    def a_key_that_waits_has_woken_the_worker(self):
        assert not self.waiting or self.wakeup._news.is_set()  # noqa: SLF001 - no task waits here


QueueModel.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestQueueModel = QueueModel.TestCase
