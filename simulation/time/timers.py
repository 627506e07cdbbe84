# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a machine's kernel does later, by its monotonic clock, at any rate."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.time.machine import Machine
from simulation.time.timeline import Action, Appointment


@dataclass(eq=False)
class _Timer:
    due: float
    action: Action
    next: Appointment | None = None


class Timers:
    """The timers of one machine; they stand while its monotonic clock does."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._count = 0
        self._waiting: dict[int, _Timer] = {}
        machine.monotonic.follow(self._plan_all)

    def after(self, seconds: float, action: Action) -> None:
        """Let an action happen when the clock shows so much more."""
        self._count += 1
        self._waiting[self._count] = _Timer(self._machine.monotonic.read() + seconds, action)
        self._plan(self._count)

    def _plan_all(self) -> None:
        for number in self._waiting:
            self._plan(number)

    def _plan(self, number: int) -> None:
        timer = self._waiting[number]
        if timer.next is not None:
            timer.next.cancel()
        moment = self._machine.monotonic.moment_of(timer.due)
        timer.next = (
            None if moment is None else self._machine.timeline.at(moment, lambda: self._end(number))
        )

    def _end(self, number: int) -> None:
        self._waiting.pop(number).action()
