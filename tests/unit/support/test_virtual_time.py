# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import socket
import time

import pytest

from purelb_agent.runtime import clock
from tests.support.agent.virtual_time import (
    NeedsRealTimeError,
    NothingToWaitForError,
    VirtualClock,
    VirtualTimeLoop,
)

DAY = 86_400.0


async def test_a_sleep_moves_the_clock_and_takes_no_time():
    began, really = clock.now(), time.monotonic()
    await asyncio.sleep(10 * DAY)
    assert clock.now() == began + 10 * DAY
    assert time.monotonic() - really < 1


async def test_both_clocks_of_the_agent_follow_the_loop():
    loop = asyncio.get_running_loop()
    time, now, wall_time = loop.time(), clock.now(), clock.wall_time()
    await asyncio.sleep(3)
    assert (loop.time(), clock.now()) == (time + 3, now + 3)
    assert clock.wall_time() == wall_time + 3


async def test_work_that_does_not_wait_takes_no_time():
    began = clock.now()
    for _turn in range(1000):
        await asyncio.sleep(0)
    assert clock.now() == began


async def test_timers_fire_in_order_of_their_moments():
    order = []

    async def note(seconds):
        await asyncio.sleep(seconds)
        order.append(seconds)

    await asyncio.gather(note(30), note(0.001), note(7), note(7.5))
    assert order == [0.001, 7, 7.5, 30]


async def test_a_timeout_ends_a_wait_after_its_time():
    began = clock.now()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.Event().wait()
    assert clock.now() == began + 5


async def test_a_machine_that_was_suspended_finds_its_timers_due(virtual_clock):
    task = asyncio.create_task(asyncio.sleep(10))
    await asyncio.sleep(0)
    virtual_clock.advance(60)
    began = clock.now()
    await task
    assert clock.now() == began


def test_a_test_without_a_loop_has_the_clock_too(virtual_clock):
    began = clock.now()
    virtual_clock.advance(2)
    assert clock.now() == began + 2


def test_time_goes_forward_only(virtual_clock):
    with pytest.raises(ValueError, match="forward"):
        virtual_clock.advance(-1)


async def test_a_thread_is_awaited_while_time_stands_still():
    began = clock.now()
    async with asyncio.timeout(0.01):
        await asyncio.to_thread(time.sleep, 0.05)
    assert clock.now() == began


async def test_what_is_written_to_a_socket_pair_comes_before_any_timer():
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(0.001):
            await loop.sock_sendall(far, b"news")
            assert await loop.sock_recv(near, 10) == b"news"


@pytest.fixture
def loop():
    made = VirtualTimeLoop(VirtualClock())
    yield made
    made.close()


def test_a_wait_that_nothing_can_end_fails_at_once(loop):
    async def waits_for_ever():
        await asyncio.Event().wait()

    with pytest.raises(NothingToWaitForError):
        loop.run_until_complete(waits_for_ever())
    for task in asyncio.all_tasks(loop):
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["v4", "v6"]
)
def test_a_network_socket_needs_real_time(loop, family, host):
    async def serve():
        with socket.create_server((host, 0), family=family) as listening:
            await asyncio.start_server(lambda *_: None, sock=listening)

    with pytest.raises(NeedsRealTimeError, match="real_time"):
        loop.run_until_complete(serve())


def test_a_child_process_needs_real_time(loop):
    for start in (
        asyncio.create_subprocess_exec("true"),
        asyncio.create_subprocess_shell("true"),
    ):
        with pytest.raises(NeedsRealTimeError, match="real_time"):
            loop.run_until_complete(start)


@pytest.mark.real_time
async def test_a_marked_test_runs_on_real_time(virtual_clock):
    assert virtual_clock is None
    # Each reading of the agent's clock is between two of ours, however long this process pauses.
    before, began, after = time.monotonic(), clock.now(), time.monotonic()
    await asyncio.sleep(0.02)
    least = time.monotonic() - after
    took = clock.now() - began
    assert 0.02 <= least <= took <= time.monotonic() - before
    assert clock.wall_time() == pytest.approx(time.time(), abs=1)
