# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a fault is, and what a kind of faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from purelb.core.settings import LeaseTiming
from simulation.explore.troubles import Troubles
from simulation.time.timeline import Action


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a schedule.

    `at`, `seconds`: when it begins, after the schedule's begin, and how long it lasts; 0 if nothing
    ends it. `nodes`: whom it hits. `value`: what it has else, by its kind.
    """

    kind: str
    at: float
    seconds: float
    nodes: tuple[str, ...]
    value: float = 0.0


# What Kind.hits may be instead of a count.
NEW, ALL_BUT_ONE, HALF = -1, -2, -3
Begin = Callable[[Troubles, Fault], Action]


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    `story` describes it, with the nodes and the value. `hits`: how many nodes are drawn; of 0 it
    hits all, and there are ALL_BUT_ONE, HALF, and NEW, which names one that joins. `values` and
    `seconds`: of which one is drawn, for about how long it lasts; without any, nothing ends it.

    `away`: for how many seconds it may leave an address on no node, in all: as the only fault, and
    among others. `is_slow`: whether writes take `value` seconds. `halts`: whether an agent
    that has put an address may be kept from announcing it. `is_later`: whether it takes the place
    of a kind that was drawn without it, so that all other schedules stay as they were.
    """

    story: str
    begin: Begin
    hits: int = 1
    values: tuple[float, ...] = (0.0,)
    seconds: tuple[float, ...] = (0.3, 1.5, 4.0, 8.0, 15.0, 30.0)
    away: tuple[float, float] = (0.3, 0.3)
    is_slow: bool = False
    halts: bool = False
    is_later: bool = False

    @property
    def least(self) -> int:
        """How many nodes a cluster has to have."""
        return {ALL_BUT_ONE: 2, HALF: 2, NEW: 1}.get(self.hits, max(self.hits, 1))

    @property
    def disturbs(self) -> bool:
        """Whether an agent that it hits may hold nothing in an outage."""
        return max(self.away) > LeaseTiming().duration
