# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import logging

import pytest

from purelb_agent.runtime.tasks import ReplacedError, TaskEndedError, Tasks
from tests.support.agent.cancellation import cancel_at_each_await


@pytest.fixture
async def tasks():
    made = Tasks()
    yield made
    await made.stop()


async def works_for_ever():
    await asyncio.Event().wait()


async def fails_after(seconds, error):
    await asyncio.sleep(seconds)
    raise error


async def ends_after(seconds):
    await asyncio.sleep(seconds)


def event_after(seconds):
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, event.set)
    return event


class TestRunUntil:
    @pytest.mark.parametrize("first", [0, 1])
    async def test_any_of_the_events_ends_it(self, tasks, first):
        tasks.start("renewer", works_for_ever())
        events = [asyncio.Event(), asyncio.Event()]
        asyncio.get_running_loop().call_later(5, events[first].set)
        async with asyncio.timeout(6):
            await tasks.run_until(*events)
        assert tasks.names == {"renewer"}

    async def test_it_leaves_no_task_of_its_own(self, tasks):
        tasks.start("renewer", works_for_ever())
        before = asyncio.all_tasks()
        await tasks.run_until(event_after(1))
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    async def test_a_task_that_returns_is_an_error_that_names_it(self, tasks):
        tasks.start("renewer", works_for_ever())
        tasks.start("reporter", ends_after(1))
        with pytest.raises(TaskEndedError, match="reporter"):
            await tasks.run_until(asyncio.Event())

    async def test_a_task_that_fails_is_an_error_and_its_trace_is_logged(self, tasks, caplog):
        failure = OSError("broken")
        tasks.start("reporter", fails_after(1, failure))
        with pytest.raises(TaskEndedError, match="reporter") as ended:
            await tasks.run_until(asyncio.Event())
        assert ended.value.__cause__ is failure
        (record,) = caplog.records
        assert (record.levelno, record.getMessage()) == (logging.ERROR, "taskFailed")
        assert record.fields == {"task": "reporter"}
        assert record.exc_info[1] is failure

    async def test_a_replaced_process_is_no_failure(self, tasks, caplog):
        tasks.start("elector", fails_after(1, ReplacedError("another one leads")))
        with pytest.raises(ReplacedError, match="another one leads"):
            await tasks.run_until(asyncio.Event())
        assert caplog.records == []


class TestStop:
    async def test_named_tasks_end_and_the_others_continue(self, tasks):
        tasks.start("renewer", works_for_ever())
        tasks.start("reporter", works_for_ever())
        await tasks.stop("reporter")
        assert tasks.names == {"renewer"}
        assert {task.get_name() for task in asyncio.all_tasks()} & {"renewer", "reporter"} == {
            "renewer"
        }

    async def test_it_waits_until_the_tasks_have_cleaned_up(self, tasks):
        cleaned = []

        async def work():
            try:
                await works_for_ever()
            finally:
                await asyncio.sleep(3)
                cleaned.append(True)

        tasks.start("renewer", work())
        await asyncio.sleep(0)
        await tasks.stop()
        assert cleaned
        assert tasks.names == set()

    async def test_the_failure_of_a_task_that_stops_is_ignored(self, tasks):
        tasks.start("reporter", fails_after(1, OSError("broken")))
        await asyncio.sleep(2)
        await tasks.stop()
        assert tasks.names == set()


async def test_a_cancelled_run_leaves_no_helper_task():
    tasks = Tasks()
    tasks.start("a", asyncio.Event().wait())
    before = asyncio.all_tasks()

    async def run():
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(1, stop.set)
        await tasks.run_until(stop)

    async for interruption in cancel_at_each_await(run):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before, interruption
    await tasks.stop()
