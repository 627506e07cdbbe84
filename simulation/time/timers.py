# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a machine's kernel does later, by one of its clocks, at any rate."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.time.machine import Clock
from simulation.time.timeline import Action, Appointment, Timeline


@dataclass(eq=False)
class _Timer:
    due: float
    action: Action
    next: Appointment | None = None


class Timers:
    """The timers of one clock of a machine; they stand while it does."""

    def __init__(self, timeline: Timeline, clock: Clock) -> None:
        self._timeline, self._clock = timeline, clock
        self._count = 0
        self._waiting: dict[int, _Timer] = {}
        clock.follow(self._plan_all)

    def after(self, seconds: float, action: Action) -> None:
        """Let an action happen when the clock shows so much more."""
        self._count += 1
        self._waiting[self._count] = _Timer(self._clock.read() + seconds, action)
        self._plan(self._count)

    def _plan_all(self) -> None:
        for number in self._waiting:
            self._plan(number)

    def _plan(self, number: int) -> None:
        timer = self._waiting[number]
        if timer.next is not None:
            timer.next.cancel()
        moment = self._clock.moment_of(timer.due)
        timer.next = (
            None if moment is None else self._timeline.at(moment, lambda: self._end(number))
        )

    def _end(self, number: int) -> None:
        self._waiting.pop(number).action()
