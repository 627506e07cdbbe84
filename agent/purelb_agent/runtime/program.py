# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The frame of both programs: arguments, log, signals, errors."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable

from prometheus_client import disable_created_metrics

from purelb.core.errors import SettingError
from purelb_agent import __version__
from purelb_agent.runtime import log
from purelb_agent.runtime.tasks import ReplacedError, TaskEndedError

METRICS_PORT = 7472


def arguments(name: str, description: str, environment: str) -> argparse.ArgumentParser:
    """Return a parser of the options that both programs share."""
    parser = argparse.ArgumentParser(
        prog=name,
        description=description,
        epilog=f"Environment:\n{environment}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{name} {__version__}")
    parser.add_argument(
        "--log-level",
        choices=log.LEVELS,
        default="info",
        help="the least to log (default info); SIGUSR1 switches to debug and back",
    )
    parser.add_argument(
        "--log-format", choices=log.FORMATS, default="logfmt", help="how (default logfmt)"
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        default=METRICS_PORT,
        help=f"port of /metrics, /healthz and /readyz (default {METRICS_PORT})",
    )
    return parser


def stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def follow_level_signal(level: str) -> None:
    """Have SIGUSR1 switch the log between debug and this level."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, log.switch_debug, level)


def run(options: argparse.Namespace, work: Callable[[argparse.Namespace], Awaitable[None]]) -> None:
    """Run a program to its end; an invalid setting ends it with one line on standard error."""
    log.configure(level=options.log_level, style=options.log_format)
    # Everything loaded by now stays: garbage collections need not look at it again.
    gc.freeze()
    # One series per counter, without a second one for its creation time.
    disable_created_metrics()  # type: ignore[no-untyped-call]

    async def main() -> None:
        follow_level_signal(options.log_level)
        await work(options)

    try:
        asyncio.run(main())
    except SettingError as error:
        sys.exit(f"{sys.argv[0].rpartition(os.sep)[2]}: {error}")
    except TaskEndedError as error:
        log.error("stopped", error=str(error))
        sys.exit(1)
    except ReplacedError as error:
        log.warning("stopped", reason=str(error))
        sys.exit(1)
