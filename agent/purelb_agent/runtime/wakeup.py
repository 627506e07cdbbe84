# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Wait until news or deadline: how a task sleeps while it has nothing to do.

News that comes while the task works is kept and ends its next wait at once: no wake-up is lost, not
even by a cancelled wait. Any number of notifications before a wait are one wake-up, so the task
must look at everything that may have changed. One task waits; any code on the event loop notifies.
"""

from __future__ import annotations

import asyncio

from purelb_agent.runtime import clock


class Wakeup:
    """Wakes one task."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def notify(self) -> None:
        """End the current wait, or else the next one."""
        self._news.set()

    async def wait(self, *, until: float | None = None, seconds: float | None = None) -> bool:
        """Wait for news, at most until a moment of `clock.now`, or for so many seconds.

        Returns True and takes the news, or False at the deadline. Without a deadline it waits for
        news alone; a deadline in the past is reached at once, but news goes first.
        """
        if until is not None:
            seconds = until - clock.now()
        try:
            async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
                await self._news.wait()
        except TimeoutError:
            # Unless news came in the very moment of the deadline.
            if not self._news.is_set():
                return False
        self._news.clear()
        return True
