# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio

import pytest

from purelb_agent.runtime.wakeup import Wakeup
from purelb_agent.runtime.workqueue import WorkQueue

FIRST, LONGEST = 1.0, 30.0


class ManualLoop:
    """Timers that a test lets expire; what the queue uses of an event loop."""

    def __init__(self):
        self.now = 0.0
        self.timers = []

    def call_later(self, seconds, call, *args):
        timer = ManualTimer(self.now + seconds, call, args)
        self.timers.append(timer)
        return timer

    def advance(self, seconds):
        """Let time pass, and every timer expire that is due by then."""
        end = self.now + seconds
        while due := [t for t in self.timers if not t.cancelled and t.when <= end]:
            timer = min(due, key=lambda t: t.when)
            self.timers.remove(timer)
            self.now = timer.when
            timer.call(*timer.args)
        self.now = end

    @property
    def pending(self):
        return [timer.when - self.now for timer in self.timers if not timer.cancelled]


class ManualTimer:
    def __init__(self, when, call, args):
        self.when, self.call, self.args = when, call, args
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


@pytest.fixture
def loop(monkeypatch):
    loop = ManualLoop()
    monkeypatch.setattr("purelb_agent.runtime.workqueue.asyncio.get_running_loop", lambda: loop)
    return loop


@pytest.fixture
def queue():
    return WorkQueue(first_pause=FIRST, longest_pause=LONGEST)


def taken(queue):
    """Every key that waits, each done at once."""
    keys = []
    while (key := queue.take()) is not None:
        queue.done(key)
        keys.append(key)
    return keys


class TestOrder:
    def test_keys_are_taken_in_the_order_in_which_they_came(self, queue):
        for key in ("b", "a", "c"):
            queue.add(key)
        assert taken(queue) == ["b", "a", "c"]

    def test_a_key_added_twice_waits_once_in_its_first_place(self, queue):
        for key in ("a", "b", "a"):
            queue.add(key)
        assert taken(queue) == ["a", "b"]

    def test_nothing_is_taken_from_an_empty_queue(self, queue):
        assert queue.take() is None


class TestWork:
    def test_a_key_being_worked_on_is_not_taken_again(self, queue):
        queue.add("a")
        assert queue.take() == "a"
        queue.add("a")
        assert queue.take() is None

    def test_a_key_added_during_its_work_is_worked_on_once_more(self, queue):
        queue.add("a")
        queue.take()
        queue.add("a")
        queue.add("a")
        queue.done("a")
        assert taken(queue) == ["a"]

    def test_a_key_added_before_its_work_is_not_worked_on_twice(self, queue):
        queue.add("a")
        queue.add("a")
        queue.take()
        queue.done("a")
        assert queue.take() is None

    def test_a_queue_is_empty_when_no_key_waits(self, queue):
        assert queue.is_empty
        queue.add("a")
        assert not queue.is_empty
        queue.take()
        assert queue.is_empty
        queue.add("a")
        assert not queue.is_empty

    def test_done_of_a_key_that_is_not_worked_on_is_a_fault(self, queue):
        with pytest.raises(KeyError):
            queue.done("a")


class TestBackOff:
    def test_pauses_double_up_to_the_longest(self, queue, loop):
        pauses = []
        for _failure in range(7):
            queue.retry("a")
            pauses += loop.pending
            loop.advance(loop.pending[0])
            assert taken(queue) == ["a"]
        assert pauses == [1, 2, 4, 8, 16, 30, 30]

    def test_a_permanent_failure_waits_the_longest_pause_at_once_and_from_then_on(
        self, queue, loop
    ):
        queue.retry("a", is_permanent=True)
        assert loop.pending == [LONGEST]
        queue.retry("a")
        assert loop.pending == [LONGEST]

    def test_forget_starts_over_and_leaves_the_retry_to_come(self, queue, loop):
        queue.retry("a")
        queue.retry("a")
        queue.forget("a")
        loop.advance(2 * FIRST)
        assert taken(queue) == ["a"]
        queue.retry("a")
        assert loop.pending == [FIRST]

    def test_a_later_retry_replaces_the_one_to_come(self, queue, loop):
        queue.retry("a")
        queue.retry("a")
        assert loop.pending == [2 * FIRST]

    def test_keys_have_pauses_of_their_own(self, queue, loop):
        queue.retry("a")
        queue.retry("a")
        queue.retry("b")
        assert sorted(loop.pending) == [1, 2]

    def test_a_retry_of_a_key_that_waits_already_adds_nothing(self, queue, loop):
        queue.retry("a")
        queue.add("a")
        loop.advance(1)
        assert taken(queue) == ["a"]

    def test_a_retry_during_work_is_worked_on_afterwards(self, queue, loop):
        queue.add("a")
        queue.take()
        queue.retry("a")
        loop.advance(1)
        assert queue.take() is None
        queue.done("a")
        assert taken(queue) == ["a"]

    def test_no_retry_comes_after_close(self, queue, loop):
        queue.retry("a")
        queue.retry("b")
        queue.close()
        loop.advance(60)
        assert queue.take() is None


class TestGet:
    async def test_get_returns_a_key_that_waits(self, queue):
        queue.add("a")
        assert await queue.get() == "a"

    async def test_get_waits_for_a_key(self, queue):
        task = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        assert not task.done()
        queue.add("a")
        assert await task == "a"

    async def test_get_waits_again_when_what_it_was_woken_for_is_taken(self, queue):
        queue.add("a")
        assert queue.take() == "a"
        task = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.done("a")
        await asyncio.sleep(0)
        assert not task.done()
        queue.add("b")
        assert await task == "b"

    async def test_get_is_woken_by_a_retry(self):
        queue = WorkQueue(first_pause=0.01, longest_pause=1)
        queue.retry("a")
        assert await queue.get() == "a"

    @pytest.mark.parametrize("is_first", [True, False], ids=["added-first", "cancelled-first"])
    async def test_a_cancelled_get_takes_no_key(self, queue, is_first):
        task = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        if is_first:
            queue.add("a")
        task.cancel()
        if not is_first:
            queue.add("a")
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(1):
            assert await queue.get() == "a"

    async def test_a_wakeup_of_the_workers_own_hears_of_every_key(self):
        wakeup = Wakeup()
        queue = WorkQueue(first_pause=FIRST, longest_pause=LONGEST, wakeup=wakeup)
        queue.add("a")
        assert await wakeup.wait(seconds=0)
        assert queue.take() == "a"
        assert not await wakeup.wait(seconds=0)
        queue.add("a")
        queue.done("a")
        assert await wakeup.wait(seconds=0)
        assert queue.take() == "a"
