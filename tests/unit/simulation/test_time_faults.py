# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Machines that do not run, clocks at other rates, programs that are slow or stopped."""

from __future__ import annotations

import asyncio

import pytest

from purelb_agent.runtime import clock
from simulation.time.machine import Machine
from simulation.time.process import Process
from simulation.time.timeline import MICROSECONDS
from simulation.time.timers import Timers

HOUR = 3600 * MICROSECONDS


class Ticks:
    """A program that notes the moment after each sleep."""

    def __init__(self, timeline, process, seconds=10):
        self.timeline, self.seen = timeline, []
        process.start(self.run(seconds))

    async def run(self, seconds):
        while True:
            await asyncio.sleep(seconds)
            self.seen.append(self.timeline.now / MICROSECONDS)


def read(machine):
    return machine.boot.read(), machine.monotonic.read(), machine.wall.read()


def passed(machine, timeline, seconds):
    """How far each clock of a machine runs in so many seconds."""
    before = read(machine)
    timeline.run(timeline.now + seconds * MICROSECONDS)
    return tuple(round(b - a, 6) for a, b in zip(before, read(machine), strict=True))


class TestMachine:
    @pytest.mark.parametrize(("stop", "expected"), [("pause", (0, 0, 0)), ("suspend", (12, 0, 12))])
    def test_its_clocks_stand_and_continue(self, timeline, machine, stop, expected):
        getattr(machine, stop)()
        assert not machine.runs
        assert passed(machine, timeline, 12) == expected
        machine.resume()
        assert machine.runs
        assert passed(machine, timeline, 5) == (5, 5, 5)

    def test_it_may_learn_the_true_time_when_it_resumes(self, timeline, machine):
        machine.pause()
        timeline.run(12 * MICROSECONDS)
        machine.resume(sets_wall_clock=True)
        assert machine.wall.read() == Machine(timeline, "n2").wall.read()
        assert machine.boot.read() == 2000

    def test_its_rate_is_that_of_all_its_clocks_also_after_a_pause(self, timeline, machine):
        machine.set_rate(1.5)
        assert passed(machine, timeline, 10) == (15, 15, 15)
        machine.pause()
        machine.set_rate(0.5)
        assert passed(machine, timeline, 10) == (0, 0, 0)
        machine.resume()
        assert passed(machine, timeline, 10) == (5, 5, 5)


class TestProcess:
    @pytest.mark.parametrize("stop", ["pause", "suspend"])
    def test_it_sleeps_longer_while_its_machine_does_not_run(
        self, timeline, machine, process, stop
    ):
        ticks = Ticks(timeline, process)
        timeline.after(4, getattr(machine, stop))
        timeline.after(16, machine.resume)
        timeline.run(40 * MICROSECONDS)
        assert ticks.seen == [22, 32]

    def test_what_comes_while_its_machine_is_paused_is_found_later(
        self, timeline, machine, process
    ):
        Ticks(timeline, process)
        seen = []
        timeline.after(4, machine.pause)
        timeline.after(5, lambda: process.deliver(lambda: seen.append(timeline.now)))
        timeline.after(16, machine.resume)
        timeline.run(HOUR)
        assert seen == [16 * MICROSECONDS]

    def test_it_stays_frozen_when_its_machine_resumes(self, timeline, machine, process):
        ticks = Ticks(timeline, process)
        process.freeze()
        machine.pause()
        machine.resume()
        timeline.run(20 * MICROSECONDS)
        assert ticks.seen == []

    def test_it_wakes_by_the_rate_that_its_clock_has_meanwhile(self, timeline, machine, process):
        ticks = Ticks(timeline, process)
        timeline.after(5, lambda: machine.set_rate(0.5))
        timeline.run(40 * MICROSECONDS)
        assert ticks.seen == [15, 35]

    @pytest.mark.parametrize("rate", [1.0005, 0.9995])
    def test_it_does_not_spin_by_a_clock_that_is_not_exact(self, timeline, machine, process, rate):
        machine.set_rate(rate)
        ticks = Ticks(timeline, process, seconds=0.1)
        timeline.run(HOUR)
        assert len(ticks.seen) == pytest.approx(36000 * rate, abs=2)

    def test_a_starved_one_is_not_run_again_before_its_pass_is_over(self, timeline, process):
        ticks = Ticks(timeline, process, seconds=1)
        process.pass_seconds = 0.2
        seen = []
        for seconds in (1.05, 1.1, 1.5):
            timeline.after(
                seconds, lambda: process.deliver(lambda: seen.append(timeline.now / MICROSECONDS))
            )
        timeline.run(2 * MICROSECONDS)
        assert ticks.seen == [1]
        assert seen == [1.2, 1.2, 1.5]


class TestTimers:
    def test_they_end_by_the_monotonic_clock(self, timeline, machine):
        timers, seen = Timers(timeline, machine.monotonic), []
        timers.after(10, lambda: seen.append(timeline.now / MICROSECONDS))
        timeline.after(4, machine.suspend)
        timeline.after(16, machine.resume)
        timeline.after(17, lambda: machine.set_rate(0.5))
        timeline.run(HOUR)
        assert seen == [27]

    def test_one_may_be_made_while_they_stand(self, timeline, machine):
        timers, seen = Timers(timeline, machine.monotonic), []
        machine.suspend()
        timers.after(10, lambda: seen.append(timeline.now / MICROSECONDS))
        timeline.after(60, machine.resume)
        timeline.run(HOUR)
        assert seen == [70]


class TestStandingStill:
    def stopped(self, timeline, process, seconds=30):
        """Start a program that is stopped at 1 s in the middle of a pass; return what it sees."""
        seen = []

        async def program():
            await asyncio.sleep(1)
            before = asyncio.current_task()
            seen.append((timeline.now, clock.now()))
            process.stand_still(seconds)
            seen.append((timeline.now, clock.now()))
            assert asyncio.current_task() is before
            await asyncio.sleep(1)
            seen.append((timeline.now, clock.now()))

        process.start(program())
        return seen

    def test_its_next_line_runs_later(self, timeline, process):
        seen = self.stopped(timeline, process)
        timeline.run(HOUR)
        assert seen == [(1e6, 2001), (31e6, 2031), (32e6, 2032)]
        assert process.has_ended
        assert process.error is None

    def test_all_others_continue(self, timeline, process):
        other = Process(Machine(timeline, "n2"), "agent n2")
        ticks = Ticks(timeline, other)
        self.stopped(timeline, process)
        timeline.run(2 * MICROSECONDS)
        assert ticks.seen == [10, 20, 30]
        other.close()

    def test_a_run_may_end_later_than_it_should(self, timeline, process):
        self.stopped(timeline, process)
        timeline.run(5 * MICROSECONDS)
        assert timeline.now == 31 * MICROSECONDS
        timeline.run(6 * MICROSECONDS)
        assert timeline.now == 31 * MICROSECONDS
        assert not process.has_ended
        timeline.run(33 * MICROSECONDS)
        assert process.has_ended

    def test_what_comes_meanwhile_is_found_in_the_same_pass(self, timeline, process):
        self.stopped(timeline, process)
        seen = []
        timeline.after(5, lambda: process.deliver(lambda: seen.append(timeline.now)))
        timeline.run(HOUR)
        assert seen == [31 * MICROSECONDS]

    def test_killed_meanwhile_it_does_nothing_more(self, timeline, process):
        seen = self.stopped(timeline, process)
        timeline.after(5, process.kill)
        timeline.run(HOUR)
        assert seen == [(1e6, 2001)]
        assert not process.has_ended

    def test_two_that_stop_at_once_continue_with_the_later_one(self, timeline, process):
        other = Process(Machine(timeline, "n2"), "agent n2")
        seen = self.stopped(timeline, process, seconds=5), self.stopped(timeline, other)
        timeline.run(HOUR)
        assert {moments[1][0] for moments in seen} <= {6e6, 31e6}
        assert max(moments[1][0] for moments in seen) == 31e6
        other.close()
