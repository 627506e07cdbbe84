# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Faults may overlap.

What is wrong with one thing is a list, and the thing is set again whenever that list changes, so a
fault that ends does not mend what another one still breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from simulation.time.timeline import Action

T = TypeVar("T")


class Overlaps:
    """What is wrong, by what it is wrong with."""

    def __init__(self) -> None:
        self._wrong: dict[tuple[str, ...], list[Any]] = {}

    def begin(
        self, thing: tuple[str, ...], value: T, show: Callable[[Sequence[T]], None]
    ) -> Action:
        """Add what is wrong with a thing; returns how to end it. `show` is told all that is."""
        wrong: list[T] = self._wrong.setdefault(thing, [])
        wrong.append(value)
        show(wrong)

        def end() -> None:
            wrong.remove(value)
            show(wrong)

        return end

    def most(self, thing: tuple[str, ...], value: float, show: Callable[[float], None]) -> Action:
        """Add what is wrong with a thing, of which the largest value counts, and 0 if none does."""
        return self.begin(thing, value, lambda wrong: show(max(wrong, default=0.0)))
