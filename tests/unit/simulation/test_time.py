# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated time: what comes first, what clocks show, and when the code of a process runs."""

from __future__ import annotations

import asyncio

import pytest

from purelb_agent.runtime import clock
from purelb_agent.runtime.wakeup import Wakeup
from simulation.time.machine import Clock, Machine
from simulation.time.process import Process, SpinsError
from simulation.time.timeline import MICROSECONDS, Timeline, microseconds

HOUR = 3600 * MICROSECONDS


class Socket:
    """A model's socket: what is put in can be read."""

    def __init__(self, process):
        self._process, self._callback, self.content = process, None, []

    def on_readable(self, callback):
        self._callback = callback

    def put(self, what):
        self.content.append(what)
        if self._callback:
            self._process.deliver(self._callback)


class TestTimeline:
    def order(self, seed):
        timeline, seen = Timeline(seed), []
        for name in "abcdef":
            timeline.after(1, lambda name=name: seen.append(name))
        timeline.run(HOUR)
        return "".join(seen)

    def test_actions_happen_at_their_moments(self, timeline):
        seen = []
        for seconds in (3, 1, 2):
            timeline.after(seconds, lambda: seen.append(timeline.now))
        timeline.run(HOUR)
        assert seen == [1_000_000, 2_000_000, 3_000_000]
        assert timeline.now == HOUR

    def test_what_comes_at_the_end_or_later_does_not_happen(self, timeline):
        seen = []
        timeline.after(1, lambda: seen.append(1))
        timeline.run(1_000_000)
        assert seen == []
        timeline.run(1_000_001)
        assert seen == [1]

    def test_what_is_cancelled_does_not_happen(self, timeline):
        seen = []
        timeline.after(1, lambda: seen.append(1)).cancel()
        timeline.run(HOUR)
        assert seen == []

    def test_the_past_is_now(self, timeline):
        timeline.run(HOUR)
        seen = []
        timeline.at(5, lambda: seen.append(timeline.now))
        timeline.run(2 * HOUR)
        assert seen == [HOUR]

    def test_of_one_moment_a_seed_decides_and_repeats_itself(self):
        orders = [self.order(seed) for seed in range(20)]
        assert orders == [self.order(seed) for seed in range(20)]
        assert len(set(orders)) > 10
        assert {"".join(sorted(order)) for order in orders} == {"abcdef"}

    @pytest.mark.parametrize(
        ("seconds", "expected"),
        [
            (0, 0),
            (-1, 0),
            (0.1, 100_000),
            (2.3, 2_300_000),
            (1e-8, 1),
            (1e-13, 1),
            (1.0000001, 1_000_001),
        ],
    )
    def test_durations_are_never_shorter(self, seconds, expected):
        assert microseconds(seconds) == expected


class TestClock:
    def test_goes_at_its_rate_and_never_jumps_when_it_changes(self, timeline):
        clock = Clock(timeline, 100.0)
        timeline.run(10 * MICROSECONDS)
        clock.set_rate(1.5)
        assert clock.read() == 110.0
        timeline.run(20 * MICROSECONDS)
        assert clock.read() == 125.0
        assert clock.moment_of(128.0) == 22 * MICROSECONDS

    def test_stands_still(self, timeline):
        clock = Clock(timeline, 100.0)
        clock.set_rate(0)
        timeline.run(HOUR)
        assert (clock.read(), clock.moment_of(101.0)) == (100.0, None)

    def test_steps(self, timeline):
        clock = Clock(timeline, 100.0)
        clock.step(-40)
        timeline.run(MICROSECONDS)
        assert clock.read() == 61.0


def test_a_machine_that_comes_later_shows_the_time_of_the_others(timeline):
    first = Machine(timeline, "n1")
    timeline.run(100 * MICROSECONDS)
    assert Machine(timeline, "n2").wall.read() == first.wall.read()


class TestProcess:
    def test_a_program_sleeps_on_simulated_time(self, timeline, process):
        seen = []

        async def program():
            for _ in range(3):
                seen.append((timeline.now, clock.now(), clock.wall_time()))
                await asyncio.sleep(600)

        process.start(program())
        timeline.run(HOUR)
        assert [moment for moment, _now, _wall in seen] == [0, HOUR // 6, HOUR // 3]
        assert [now for _moment, now, _wall in seen] == [2000, 2600, 3200]
        assert seen[2][2] - seen[0][2] == 1200
        assert process.has_ended
        assert process.error is None

    def test_its_clock_decides_when_it_wakes(self, timeline, machine, process):
        machine.monotonic.set_rate(0.5)
        process.start(asyncio.sleep(60))
        ended = []
        process.on_end(lambda: ended.append(timeline.now))
        timeline.run(HOUR)
        assert ended == [120 * MICROSECONDS]

    def test_waiting_for_another_clock_than_the_loops_ends(self, timeline, machine, process):
        # 0.1 is no number of whole microseconds on these clocks.
        machine.boot.set_rate(1 + 1e-7)

        async def program():
            wakeup, until = Wakeup(), clock.now() + 0.1
            while clock.now() < until:
                await wakeup.wait(until=until)

        process.start(program())
        timeline.run(MICROSECONDS)
        assert process.has_ended

    def test_what_is_delivered_is_read_at_once(self, timeline, process):
        socket, seen = Socket(process), []

        async def program():
            loop = asyncio.get_running_loop()
            loop.add_reader(socket, lambda: seen.append((socket.content.pop(), timeline.now)))
            await asyncio.sleep(5)
            loop.remove_reader(socket)
            await asyncio.sleep(5)

        process.start(program())
        for seconds in (1, 2, 7):
            timeline.after(seconds, lambda: socket.put("x"))
        timeline.run(HOUR)
        assert seen == [("x", 1_000_000), ("x", 2_000_000)]

    def test_an_error_ends_it(self, timeline, process):
        async def program():
            await asyncio.sleep(1)
            raise ValueError("no")

        process.start(program())
        timeline.run(HOUR)
        assert process.has_ended
        assert str(process.error) == "no"

    def test_a_killed_one_does_nothing_any_more(self, timeline, process):
        seen = []

        async def program():
            try:
                await asyncio.sleep(10)
            finally:
                seen.append("finally")

        process.start(program())
        timeline.after(5, process.kill)
        timeline.after(6, lambda: process.deliver(seen.append, "delivered"))
        timeline.run(HOUR)
        assert seen == []
        assert not process.has_ended

    def test_a_frozen_one_finds_everything_late(self, timeline, process):
        seen = []

        async def program():
            await asyncio.sleep(10)
            seen.append(("timer", timeline.now))

        process.start(program())
        timeline.after(5, process.freeze)
        timeline.after(6, lambda: process.deliver(lambda: seen.append(("news", timeline.now))))
        timeline.after(60, process.thaw)
        timeline.run(HOUR)
        assert sorted(seen) == [("news", 60_000_000), ("timer", 60_000_000)]

    def test_one_that_is_frozen_has_done_nothing_until_it_runs_again(self, timeline, process):
        passed = []

        async def program():
            await asyncio.sleep(100)

        process.start(program())
        process.freeze()
        process.after_pass(lambda: passed.append(timeline.now))
        timeline.after(5, process.thaw)
        timeline.run(HOUR)
        assert passed == [5 * MICROSECONDS]

    def test_two_on_one_timeline_have_clocks_of_their_own(self, timeline, process):
        other = Process(Machine(timeline, "n2"), "agent n2")
        other.machine.boot.step(500)
        seen = {}

        async def program(name):
            await asyncio.sleep(1)
            seen[name] = clock.now()

        process.start(program("n1"))
        other.start(program("n2"))
        timeline.run(HOUR)
        other.close()
        assert seen == {"n1": 2001, "n2": 2501}

    def test_one_that_never_waits_is_an_error(self, timeline, process):
        async def program():
            while True:  # noqa: ASYNC110 - it waits for nothing
                await asyncio.sleep(0)

        process.start(program())
        with pytest.raises(SpinsError, match="agent n1: it spins"):
            timeline.run(HOUR)

    @pytest.mark.parametrize("what", ["file", "thread"])
    def test_nothing_real_is_reached(self, timeline, process, what):
        async def program():
            if what == "file":
                await asyncio.open_connection("127.0.0.1", 1)
            else:
                await asyncio.to_thread(print)

        process.start(program())
        timeline.run(HOUR)
        assert isinstance(process.error, NotImplementedError)


def test_a_model_must_not_read_the_clock_of_the_programs():
    with pytest.raises(RuntimeError, match="a model reads"):
        clock.now()
