# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a test leaves behind: tasks, exceptions that no one read, open sockets.

The fixture `no_leaks` (see plugin.py) fails every test under tests/unit/agent that leaves one.
Cancel a task and await it, read a task's result, close a transport and a socket.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.agent.virtual_time import TrackingLoop, VirtualTimeLoop

# Iterations of the loop that closing a transport may take.
_ROUNDS = 5
# Real seconds that a server in the test may take to notice that its clients are gone.
PATIENCE = 0.5
_POLL = 0.005


def open_sockets() -> set[str]:
    """The sockets of this process, by inode: 'socket:[4711]'."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            # The one through which the folder was read.
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


class LeakCheck:
    """Compares a loop at the end of a test with the same loop at its begin."""

    def __init__(self, loop: TrackingLoop) -> None:
        self._loop = loop
        self._files = set(loop.watched.get_map())
        self._sockets = open_sockets()
        self._earlier = asyncio.all_tasks(loop)
        self._reports: list[str] = []
        loop.set_exception_handler(self._report)

    def _report(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._reports.append(f"{context['message']}" + (f": {error!r}" if error else ""))

    async def leaks(self) -> list[str]:
        """What is left, one line each, once what is being closed had time to close."""
        for _round in range(_ROUNDS):
            await asyncio.sleep(0)
        # Not in virtual time, where a sleep would let leaked tasks come to their end.
        if not isinstance(self._loop, VirtualTimeLoop):
            for _turn in range(int(PATIENCE / _POLL)):
                if not (self._open() or self._pending()):
                    break
                await asyncio.sleep(_POLL)
        return [*self._pending(), *self._unread(), *self._open(), *self._reports]

    def _pending(self) -> list[str]:
        left = asyncio.all_tasks(self._loop) - self._earlier - {asyncio.current_task()}
        return sorted(f"task {task.get_name()} still runs: {task.get_coro()!r}" for task in left)

    def _unread(self) -> list[str]:
        left = []
        for task in self._loop.created:
            # Set as long as no one has asked the task for its exception.
            if task.done() and task._log_traceback:  # noqa: SLF001 - what asyncio itself looks at
                error = task.exception()
                left.append(f"no one read the exception of task {task.get_name()}: {error!r}")
        return left

    def _open(self) -> list[str]:
        files = set(self._loop.watched.get_map()) - self._files
        left = [f"the loop still watches file {number}" for number in sorted(files)]
        return left + [f"{name} is still open" for name in sorted(open_sockets() - self._sockets)]
