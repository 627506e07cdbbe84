# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The command `make simulate`: random schedules, and what they break."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import fmean

from simulation.explore.faults import KINDS
from simulation.explore.instrument import Costs, Found, explored
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
    options = parser.parse_args(arguments)
    if unknown := set(_parts(options.kinds)) - KINDS.keys():
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    return options


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


def _unheld(costs: Costs) -> Iterator[str]:
    """Yield for how long an address was on no node: by kind if each seed has one fault."""
    is_single = all(len(schedule.faults) == 1 for schedule, _outcome in costs)
    by_kind: dict[str, list[float]] = defaultdict(list)
    for schedule, outcome in costs:
        by_kind[schedule.faults[0].kind if is_single else ""].append(outcome.unheld)
    for kind, unheld in sorted(by_kind.items()):
        yield (
            f"{kind or 'an address'} on no node: {fmean(unheld):.2f} s on average, "
            f"{max(unheld):.2f} s in the worst seed"
        )


def _excused(costs: Costs) -> Iterator[str]:
    """Yield how often each excuse of the judge was used, and for how long."""
    used: dict[str, list[float]] = defaultdict(list)
    for _schedule, outcome in costs:
        for excuse, seconds in outcome.excused.items():
            used[excuse].append(seconds)
    for excuse, times in sorted(used.items()):
        share = len(times) / len(costs)
        yield f"excused by {excuse}: {share:.1%} of the seeds, {fmean(times):.1f} s each"


def main(arguments: list[str]) -> int:
    """Run the seeds; returns 1 if one of them broke an invariant."""
    options = _options(arguments)
    began = time.monotonic()
    schedules = [
        _schedule(seed, options) for seed in range(options.first, options.first + options.seeds)
    ]
    if len(schedules) == 1:
        print(f"seed {schedules[0].seed}\n{schedules[0]}")
    result = explored(
        schedules,
        frozenset(_parts(options.ignore)) & set(INVARIANTS),
        shrinks=options.shrink,
        progress=lambda text: print(text, file=sys.stderr, flush=True),
    )
    for each in result.found:
        _tell(each, options)
    print("\n".join(("", *_unheld(result.costs), *_excused(result.costs))))
    broken = Counter(invariant for each in result.found for invariant in each.invariants)
    counts = ", ".join(f"{name} {count}" for name, count in broken.most_common()) or "nothing"
    print(f"\n{len(schedules)} seeds in {time.monotonic() - began:.0f} s broke {counts}")
    return 1 if result.found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
