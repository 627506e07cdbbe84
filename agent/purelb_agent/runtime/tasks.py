# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named tasks that must not end: one that ends, ends the process.

A node that holds addresses while its renewer is dead is worse than a restart, after which the new
process takes over the addresses it finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from purelb_agent.runtime import log


class TaskEndedError(Exception):
    """A task ended that must not."""


class ReplacedError(Exception):
    """The process must end without a fault of its own: another one takes its place."""


class Tasks:
    """The tasks of a program."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    @property
    def names(self) -> set[str]:
        """Names of the running tasks."""
        return set(self._tasks)

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that runs until `stop`."""
        self._tasks[name] = asyncio.create_task(work, name=name)

    async def _watch(self) -> None:
        """Wait until a task ends, and raise its exception or TaskEndedError."""
        done, _pending = await asyncio.wait(
            self._tasks.values(), return_when=asyncio.FIRST_COMPLETED
        )
        task = done.pop()
        error = task.exception()
        if isinstance(error, ReplacedError):
            raise error
        if error is not None:
            log.crash("taskFailed", error, task=task.get_name())
        raise TaskEndedError(f"task {task.get_name()} ended") from error

    async def stop(self, *names: str) -> None:
        """Cancel these tasks, or all, and wait for them."""
        ending = [self._tasks.pop(name) for name in names or tuple(self._tasks)]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def run_until(self, *events: asyncio.Event) -> None:
        """Wait for one of these events; if a task ends first, raise its error."""
        waiting = [asyncio.create_task(event.wait()) for event in events]
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait({*waiting, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                await watching
        finally:
            for task in (*waiting, watching):
                task.cancel()
