# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of the gate: `run` tests or a `command`, or print the `summary` of all."""

from __future__ import annotations

import argparse
import shlex
import sys

from tests.support.gate import runner

_ONLY_COMPUTES = "the same files give the same result: a green one is not found again"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="gate", description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("summary")
    commands.choices["summary"].set_defaults(act=lambda _args: runner.summary())
    run = commands.add_parser("run")
    run.add_argument("name", help="of the group, in the folder of records")
    run.add_argument("--workers", type=int, default=0, help="processes of pytest-xdist")
    run.add_argument("--with", dest="command", default=sys.executable, help="what runs `-m pytest`")
    run.add_argument("--options", default="", help="of pytest, as one word: --options=--quiet")
    run.add_argument("--only-computes", action="store_true", help=_ONLY_COMPUTES)
    run.add_argument("paths", nargs="+")
    run.set_defaults(act=_run)
    command = commands.add_parser("command", help="run a program as a group of one test")
    command.add_argument("--only-computes", action="store_true", help=_ONLY_COMPUTES)
    command.add_argument("name")
    command.add_argument("argv", nargs=argparse.REMAINDER)
    command.set_defaults(act=_command)
    args = parser.parse_args()
    status: int = args.act(args)
    return status


def _command(args: argparse.Namespace) -> int:
    return runner.run_command(args.name, args.argv, only_computes=args.only_computes)


def _run(args: argparse.Namespace) -> int:
    group = runner.Group(
        name=args.name,
        paths=args.paths,
        workers=args.workers,
        command=shlex.split(args.command),
        options=shlex.split(args.options),
        only_computes=args.only_computes,
    )
    return runner.run(group)


if __name__ == "__main__":
    sys.exit(main())
