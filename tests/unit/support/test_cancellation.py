# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

import pytest

from tests.support.agent.cancellation import cancel_at_each_await


async def interruptions(factory):
    return [interruption async for interruption in cancel_at_each_await(factory)]


async def test_each_suspension_is_cancelled_once_and_the_last_run_reaches_its_end():
    reached = []

    async def inner():
        reached[-1].append("inner")
        await asyncio.sleep(5)

    async def work():
        reached.append(["begun"])
        await asyncio.sleep(0)
        await inner()
        reached[-1].append("waiting")
        await asyncio.get_running_loop().run_in_executor(None, int)
        reached[-1].append("ended")
        return "result"

    runs = await interruptions(work)
    assert [(run.number, run.was_cancelled) for run in runs] == [
        (1, True),
        (2, True),
        (3, True),
        (4, False),
    ]
    assert runs[-1].result == "result"
    assert reached == [
        ["begun"],
        ["begun", "inner"],
        ["begun", "inner", "waiting"],
        ["begun", "inner", "waiting", "ended"],
    ]


async def test_an_interruption_has_the_place_where_the_coroutine_waited():
    async def work():
        await asyncio.Event().wait()

    interruption = await anext(aiter(cancel_at_each_await(work)))
    assert interruption.place.rpartition(":")[0].endswith("asyncio/locks.py")


async def test_cleaning_up_may_wait():
    cleaned = []

    async def work():
        try:
            await asyncio.sleep(1)
        finally:
            await asyncio.sleep(1)
            cleaned.append(True)

    runs = await interruptions(work)
    assert [run.was_cancelled for run in runs] == [True, True, False]
    # The second run is cancelled while it cleans up.
    assert len(cleaned) == 2


async def test_a_coroutine_that_ignores_its_cancellation_is_reported_as_not_cancelled():
    async def work():
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            return "ignored"
        return "ended"

    runs = await interruptions(work)
    assert [(run.was_cancelled, run.result) for run in runs] == [
        (False, "ignored"),
        (False, "ended"),
    ]


async def test_a_timeout_inside_is_not_taken_for_the_cancellation():
    async def work():
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(2)
        except TimeoutError:
            return "timeout"

    runs = await interruptions(work)
    assert [(run.was_cancelled, run.result) for run in runs] == [(True, None), (False, "timeout")]


async def test_another_exception_is_raised():
    async def work():
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError as error:
            raise OSError("broken") from error

    with pytest.raises(OSError, match="broken"):
        await interruptions(work)


async def test_a_coroutine_that_never_waits_is_run_once():
    async def work():
        return 1

    runs = await interruptions(work)
    assert [(run.was_cancelled, run.result) for run in runs] == [(False, 1)]
