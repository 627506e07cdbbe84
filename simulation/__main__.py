# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The command `make simulate`: random schedules, and what they break."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from simulation.explore.instrument import Found, explored
from simulation.explore.judge import INVARIANTS
from simulation.explore.schedule import Schedule, draw


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--kinds", default="", help="kinds of faults to draw from")
    parser.add_argument("--count", type=int, default=0, help="how many faults each; drawn if 0")
    parser.add_argument("--faults", default="", help="which of the drawn faults alone, as 0,2")
    parser.add_argument("--nodes", default="", help="which nodes alone, as n1,n3")
    parser.add_argument("--ignore", default="", help="invariants that may be broken")
    parser.add_argument("--shrink", type=int, default=1, help="how many to shrink, of each cluster")
    return parser.parse_args(arguments)


def _schedule(seed: int, options: argparse.Namespace) -> Schedule:
    schedule = draw(seed, _parts(options.kinds), count=options.count)
    if options.faults:
        schedule = schedule.only([int(number) for number in _parts(options.faults)])
    return schedule.of(_parts(options.nodes)) if options.nodes else schedule


def _parts(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _command(schedule: Schedule, options: argparse.Namespace) -> str:
    """Return the command that runs a schedule again."""
    again = [f"--faults {','.join(map(str, schedule.kept))} --nodes {','.join(schedule.names)}"]
    # A seed draws the same faults from the same kinds alone.
    if options.kinds:
        again.append(f"--kinds {options.kinds}")
    if options.count:
        again.append(f"--count {options.count}")
    if options.ignore:
        again.append(f"--ignore {options.ignore}")
    return f'make simulate FIRST={schedule.seed} SEEDS=1 OPTIONS="{" ".join(again)}"'


def _tell(found: Found, options: argparse.Namespace) -> None:
    again = _command(found.smallest or found.schedule, options)
    print(f"\nseed {found.schedule.seed} broke {', '.join(found.invariants)}: {again}")
    if found.smallest:
        print(found.smallest)
        for invariant in found.invariants:
            texts = [b.text for b in found.breaches if b.invariant == invariant]
            more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
            print(f"=> {invariant}: {texts[0]}{more}")


def main(arguments: list[str]) -> int:
    """Run the seeds; returns 1 if one of them broke an invariant."""
    options = _options(arguments)
    began = time.monotonic()
    schedules = [
        _schedule(seed, options) for seed in range(options.first, options.first + options.seeds)
    ]
    if len(schedules) == 1:
        print(f"seed {schedules[0].seed}\n{schedules[0]}")
    found = explored(
        schedules,
        frozenset(_parts(options.ignore)) & set(INVARIANTS),
        shrinks=options.shrink,
        progress=lambda text: print(text, file=sys.stderr, flush=True),
    )
    for each in found:
        _tell(each, options)
    broken = Counter(invariant for each in found for invariant in each.invariants)
    counts = ", ".join(f"{name} {count}" for name, count in broken.most_common()) or "nothing"
    print(f"\n{len(schedules)} seeds in {time.monotonic() - began:.0f} s broke {counts}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
