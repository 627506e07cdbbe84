# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The command `make mutants`: small bugs, one at a time, and which tests find each."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence

from tests.support import ROOT
from tests.support.mutants import job, trial
from tests.support.mutants.mutant import Mutant
from tests.support.mutants.tables import MUTANTS

# How many seeds show that the simulation breaks nothing without a mutant.
_SEEDS_BEFORE = 20
_LAST = ("folder", "unit", "schedules", "seeds")


def chosen(words: Sequence[str], mutants: Sequence[Mutant] = MUTANTS) -> Mapping[int, Mutant]:
    """Return the mutants, by number, that the words name: a number, or a part of bug or path."""
    numbered = dict(enumerate(mutants, start=1))
    if not words:
        return numbered
    return {
        number: mutant
        for number, mutant in numbered.items()
        if any(
            word == str(number) or (not word.isdigit() and word in f"{mutant.path} {mutant.bug}")
            for word in words
        )
    }


def main(arguments: Sequence[str]) -> int:
    """Try mutants; returns 1 if one is not found that has to be."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="numbers, or parts of bugs or paths; all if none")
    parser.add_argument("--seeds", type=int, default=trial.MOST_SEEDS, help="at most")
    parser.add_argument("--last", choices=_LAST, default=_LAST[-1], help="the last stage to try")
    parser.add_argument("--list", action="store_true", help="list the mutants, and try none")
    options = parser.parse_args(arguments)
    mutants = chosen(options.names)
    if options.list:
        for number, mutant in mutants.items():
            print(f"{number}: {mutant.path}: {mutant.bug}")
        return 0
    last = _LAST.index(options.last) + 1
    # The first stage is a part of the second.
    before = trial.stages(_SEEDS_BEFORE)[1 : max(2, last)]
    stages = trial.stages(options.seeds)[:last]
    # Ended as by Ctrl-C, so that nothing is left of it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return job.run(job.Job(ROOT, mutants, len(MUTANTS), stages, before, _say))
    except KeyboardInterrupt:
        return 130


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
