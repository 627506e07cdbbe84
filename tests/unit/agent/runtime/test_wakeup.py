# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio

import pytest

from purelb_agent.runtime import clock
from purelb_agent.runtime.wakeup import Wakeup

SOON = 0.02


@pytest.fixture
def wakeup():
    return Wakeup()


async def started(work):
    """A task of this coroutine that has run up to its first wait."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    assert not task.done()
    return task


class TestNews:
    async def test_news_before_the_wait_ends_it_at_once(self, wakeup):
        wakeup.notify()
        assert await wakeup.wait(seconds=0)

    async def test_news_during_the_wait_ends_it(self, wakeup):
        task = await started(wakeup.wait())
        wakeup.notify()
        assert await task

    async def test_many_notifications_are_one_wake_up(self, wakeup):
        wakeup.notify()
        wakeup.notify()
        assert await wakeup.wait(seconds=0)
        assert not await wakeup.wait(seconds=0)

    async def test_news_while_the_task_works_ends_its_next_wait(self, wakeup):
        wakeup.notify()
        assert await wakeup.wait()
        wakeup.notify()
        assert await wakeup.wait(seconds=0)


class TestDeadline:
    async def test_the_deadline_ends_a_wait_without_news(self, wakeup):
        loop = asyncio.get_running_loop()
        start = loop.time()
        assert not await wakeup.wait(seconds=SOON)
        assert loop.time() - start == pytest.approx(SOON)

    async def test_a_moment_of_the_clock_is_a_deadline(self, wakeup):
        loop = asyncio.get_running_loop()
        start = loop.time()
        assert not await wakeup.wait(until=clock.now() + SOON)
        assert loop.time() - start == pytest.approx(SOON)

    @pytest.mark.parametrize("deadline", [{"seconds": -1.0}, {"until": 0.0}])
    async def test_a_deadline_in_the_past_ends_the_wait_at_once(self, wakeup, deadline):
        async with asyncio.timeout(1):
            assert not await wakeup.wait(**deadline)

    @pytest.mark.parametrize("deadline", [{"seconds": -1.0}, {"until": 0.0}])
    async def test_news_goes_before_a_deadline_in_the_past(self, wakeup, deadline):
        wakeup.notify()
        assert await wakeup.wait(**deadline)

    async def test_news_in_the_moment_of_the_deadline_is_not_lost(self, wakeup):
        task = await started(wakeup.wait(seconds=0))
        # The timeout cancels the wait in the same pass of the loop in which the news comes.
        asyncio.get_running_loop().call_soon(wakeup.notify)
        was_news = await task
        assert was_news or await wakeup.wait(seconds=0)

    async def test_news_after_the_deadline_ends_the_next_wait(self, wakeup):
        assert not await wakeup.wait(seconds=0)
        wakeup.notify()
        assert await wakeup.wait(seconds=0)


class TestCancellation:
    async def test_a_cancelled_wait_ends(self, wakeup):
        task = await started(wakeup.wait(seconds=60))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    @pytest.mark.parametrize("is_first", [True, False], ids=["news-first", "cancelled-first"])
    async def test_a_wait_that_is_cancelled_with_news_keeps_the_news(self, wakeup, is_first):
        task = await started(wakeup.wait(seconds=60))
        if is_first:
            wakeup.notify()
        task.cancel()
        if not is_first:
            wakeup.notify()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await wakeup.wait(seconds=0)


class TestMinor:
    async def test_only_minor_news_are_minor(self, wakeup):
        for kinds in ((True,), (True, True)):
            for is_minor in kinds:
                wakeup.notify(is_minor=is_minor)
            assert await wakeup.wait(seconds=0)
            assert wakeup.was_minor

    @pytest.mark.parametrize("kinds", [(False, True), (True, False), (False,)], ids=str)
    async def test_with_others_they_are_not(self, wakeup, kinds):
        for is_minor in kinds:
            wakeup.notify(is_minor=is_minor)
        assert await wakeup.wait(seconds=0)
        assert not wakeup.was_minor
        wakeup.notify(is_minor=True)
        assert await wakeup.wait(seconds=0)
        assert wakeup.was_minor
