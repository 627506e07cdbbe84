# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""How one mutant is tried: tests of four stages, from fast to slow, until one of them fails."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.support.mutants.mutant import Mutant
from tests.support.mutants.programs import Programs


class Kind(StrEnum):
    """What finds a mutant, as the last line counts it."""

    UNIT_TESTS = "unit tests"
    SCHEDULES = "schedules"
    SEEDS = "seeds"


@dataclass(frozen=True)
class Stage:
    """A program that fails if it finds a bug in a file.

    `command` returns it, given the path of the file. It is given `seconds`. `until`: what it says
    when it has found something, if it runs on after that.
    """

    kind: Kind
    command: Callable[[str], list[str]]
    seconds: float
    until: str = ""


_PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
_SELECT = ("-m", "not thorough and not real_netbox")
# Where the tests of a file are: those of a folder of the code are in the folder of that name.
_MIRRORS = {
    "plugins/module_utils/purelb/core": "tests/unit/core",
    "agent/purelb_agent": "tests/unit/agent",
}
_UNIT = ("tests/unit/core", "tests/unit/agent", "tests/unit/rule")
# How a line of the simulation's progress ends, and what it exits with.
_BROKE = r", [1-9][0-9]* broke something$"
MOST_SEEDS = 2000


def folder_of_tests(path: str) -> str:
    """Return where the tests of a file are."""
    for folder, tests in _MIRRORS.items():
        if path.startswith(f"{folder}/"):
            subject = path.removeprefix(f"{folder}/").partition("/")
            return f"{tests}/{subject[0]}" if subject[1] else tests
    raise ValueError(f"no folder of tests is known for {path}")


def _tests(*paths: str, limit: int = 60) -> list[str]:
    return [*_PYTEST, *_SELECT, f"--timeout={limit}", *paths]


def _seeds(count: int) -> list[str]:
    return [sys.executable, "-m", "simulation", "--first=1", f"--seeds={count}", "--shrink=0"]


def stages(seeds: int) -> tuple[Stage, ...]:
    """Return the stages, with as many seeds of the simulation."""
    simulation = "tests/unit/simulation"
    return (
        Stage(Kind.UNIT_TESTS, lambda path: _tests(folder_of_tests(path)), 600.0),
        Stage(Kind.UNIT_TESTS, lambda _path: _tests(*_UNIT), 1800.0),
        Stage(Kind.SCHEDULES, lambda _path: _tests(simulation, limit=600), 7200.0),
        Stage(Kind.SEEDS, lambda _path: _seeds(seeds), 7200.0, until=_BROKE),
    )


@dataclass(frozen=True)
class Found:
    """What found a mutant, and after how many seconds of work on it."""

    kind: Kind
    by: str
    seconds: float


class CannotTryError(Exception):
    """A program of a stage could not do its work."""


# Exit statuses of pytest and the simulation: something failed, was ended, or could not be imported.
_FINDS = (1, 2, 3)


def tried(
    mutant: Mutant, folder: Path, programs: Programs, stages: Sequence[Stage]
) -> Found | None:
    """Make a mutant in a copy of the code and return what finds it; None if nothing does."""
    mutant.make(folder)
    began = time.monotonic()
    for stage in stages:
        command = stage.command(mutant.path)
        outcome = programs.run(command, folder, seconds=stage.seconds, until=stage.until)
        if outcome.is_late:
            by = f"{name_of(command)}, which did not end in {stage.seconds:.0f} s"
        elif outcome.has_said or outcome.status in _FINDS:
            by = name_of(command)
        elif outcome.status == 0:
            continue
        else:
            raise CannotTryError(f"{name_of(command)}: status {outcome.status}\n{outcome.output}")
        return Found(stage.kind, by, time.monotonic() - began)
    return None


def name_of(command: Sequence[str]) -> str:
    """Return what the progress calls a program: its paths, or its module and options."""
    paths = [word for word in command[1:] if "/" in word]
    return " ".join(paths) or " ".join(command[2:])
