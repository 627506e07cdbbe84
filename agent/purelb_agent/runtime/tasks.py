# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Tasks with names that are not allowed to end: one that does ends the process.

A node that went on holding addresses with a dead renewer would be worse than a restart, after which
the new process takes over what it finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from purelb_agent.runtime import log


class TaskEndedError(Exception):
    """An eternal task ended."""


class ReplacedError(Exception):
    """The process is to end, by no fault of its own: another one takes its place."""


class Tasks:
    """The eternal tasks of a program."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    @property
    def names(self) -> set[str]:
        """Of the tasks that run."""
        return set(self._tasks)

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that runs until `stop`."""
        self._tasks[name] = asyncio.create_task(work, name=name)

    async def _watch(self) -> None:
        """Wait until a task ends, which none should, and raise why."""
        done, _pending = await asyncio.wait(
            self._tasks.values(), return_when=asyncio.FIRST_COMPLETED
        )
        task = done.pop()
        problem = task.exception()
        if isinstance(problem, ReplacedError):
            raise problem
        if problem is not None:
            log.crash("taskFailed", problem, task=task.get_name())
        raise TaskEndedError(f"task {task.get_name()} ended") from problem

    async def stop(self, *names: str) -> None:
        """Cancel these tasks, or all, and wait for them."""
        ending = [self._tasks.pop(name) for name in names or tuple(self._tasks)]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def run_until(self, *events: asyncio.Event) -> None:
        """Wait for one of these; a task that ends before raises its fault here."""
        waiting = [asyncio.create_task(event.wait()) for event in events]
        watching = asyncio.create_task(self._watch())
        await asyncio.wait({*waiting, watching}, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()
        if watching.done():
            await watching
        watching.cancel()
