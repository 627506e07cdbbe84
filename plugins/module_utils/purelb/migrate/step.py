# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What a step of a migration is: a row of the table in `phases`."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Optional, Tuple

from .context import MigrationContext


class Outcome(NamedTuple):
    """What a step returns in addition to the common result; `is_complete` unless work remains."""

    values: Mapping[str, Any] = {}
    is_complete: bool = True


Run = Callable[[MigrationContext], Outcome]


def nothing(_context: MigrationContext) -> Outcome:
    """Does nothing: for a step whose whole effect is the next phase, or that is complete."""
    return Outcome()


class Step(NamedTuple):
    """One step: where it may run, what it does, and which phase follows.

    In the phases of `runs_in` the step calls `run` and then records `next_phase` (None: the phase
    stays); with `is_recorded_first` it records it before `run`. In the phases of `done_in` it
    calls `when_done`, which writes nothing. In all others it is refused, with the text of
    `refusals` if there is one. A step that does not write runs as in check mode.
    """

    name: str
    runs_in: Tuple[str, ...]
    run: Run
    next_phase: Optional[str]
    writes: bool
    done_in: Tuple[str, ...] = ()
    when_done: Run = nothing
    is_recorded_first: bool = False
    refusals: Mapping[str, str] = {}
