# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Measure PureLB: the cost of a change, a failover, an idle agent, allocation and an audit.

Each part prints a table and writes .cache/bench/PART.json. Without PART, all parts run.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Sequence

from bench import allocation, auditing, bed, compare, failover, idle, planning
from bench.figures import publish
from labkit.errors import LabError, of_missing_file

_EPILOG = """\
failover, idle, allocation and audit need root: they end a lab that is up and start their own.

examples:
  bench/bench                                    everything, about 40 minutes
  bench/bench plan --runs 9
  bench/bench failover --alone --services 25 --runs 1
  bench/bench idle --size 3x50 --seconds 20
"""
_INTERRUPTED = 130  # a shell's exit code for SIGINT


def _plan(options: argparse.Namespace) -> None:
    sizes = [planning.Size(*size) for size in options.size] or planning.SIZES
    publish("plan", planning.measure(sizes, runs=options.runs))


def _failover(options: argparse.Namespace) -> None:
    services = options.services or failover.SERVICES
    figures = failover.measure(services, runs=options.runs)
    if not options.alone:
        figures += compare.measure(runs=options.runs)
    publish("failover", figures)


def _idle(options: argparse.Namespace) -> None:
    sizes = [idle.Size(*size) for size in options.size] or idle.SIZES
    publish("idle", idle.measure(sizes, runs=options.runs, seconds=options.seconds))


def _allocation(options: argparse.Namespace) -> None:
    publish("allocation", allocation.measure(runs=options.runs))


def _audit(options: argparse.Namespace) -> None:
    sizes = [auditing.Size(*size) for size in options.size] or auditing.SIZES
    publish("audit", auditing.measure(sizes, runs=options.runs))


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "plan": _plan,
    "failover": _failover,
    "idle": _idle,
    "allocation": _allocation,
    "audit": _audit,
}


def _number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _size(nodes: range, others: range) -> Callable[[str], tuple[int, int]]:
    """Return a parser of sizes such as 3x50 within limits."""

    def read(text: str) -> tuple[int, int]:
        match = re.fullmatch(r"(\d+)x(\d+)", text)
        size = (int(match[1]), int(match[2])) if match else (-1, -1)
        if size[0] not in nodes or size[1] not in others:
            limits = f"{nodes[0]}x{others[0]} to {nodes[-1]}x{others[-1]}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a size from {limits}")
        return size

    return read


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="bench", description=__doc__, epilog=_EPILOG, formatter_class=raw
    )
    parts = top.add_subparsers(dest="part", metavar="PART")
    plan = parts.add_parser("plan", help="decisions and plan in large clusters; needs no lab")
    _add_runs(plan, 5)
    _add_size(plan, "nodes x addresses", _size(range(2, 10_000), range(2, 20_001)))
    lost = parts.add_parser(
        "failover", help="interruptions of addresses while they move, in the lab"
    )
    _add_runs(lost, 5)
    lost.add_argument(
        "--services",
        type=_number,
        nargs="+",
        default=[],
        metavar="N",
        help=f"numbers of dual-stack Services (default: {' '.join(map(str, failover.SERVICES))})",
    )
    lost.add_argument(
        "--alone", action="store_true", help="do not measure keepalived on the same nodes"
    )
    still = parts.add_parser(
        "idle", help="memory, processor time and requests of idle agents, in the lab"
    )
    _add_runs(still, 3)
    _add_size(still, "nodes x Services", _size(range(bed.NODES, 201), range(2001)))
    still.add_argument(
        "--seconds", type=float, default=60.0, help="duration of a run (default: 60)"
    )
    many = parts.add_parser("allocation", help="allocation for thousands of Services, in the lab")
    _add_runs(many, 3)
    big = parts.add_parser("audit", help="the audit modules in a large cluster, in the lab")
    _add_runs(big, 3)
    _add_size(big, "Leases x Services", _size(range(1, 10_000), range(20_001)))
    return top


def _add_runs(part: argparse.ArgumentParser, count: int) -> None:
    part.add_argument(
        "--runs", type=_number, default=count, help=f"number of runs (default: {count})"
    )


def _add_size(
    part: argparse.ArgumentParser, text: str, read: Callable[[str], tuple[int, int]]
) -> None:
    help_text = f"{text}, such as 100x500; several may be given"
    part.add_argument("--size", type=read, nargs="+", default=[], metavar="NxM", help=help_text)


def main(argv: Sequence[str]) -> int:
    """Run one part or all parts; return an exit code."""
    options = parser().parse_args(argv)
    chosen = [options.part] if options.part else list(PARTS)
    try:
        for part in chosen:
            PARTS[part](options if options.part else parser().parse_args([part]))
    except LabError as error:
        print(f"bench: {error}", file=sys.stderr)
        return error.exit_code
    except FileNotFoundError as error:
        print(f"bench: {of_missing_file(error)}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"bench: {error}: {error.stderr}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
