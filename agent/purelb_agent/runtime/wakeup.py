# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A task's sleep until it is notified or a deadline passes.

A notification during the task's work ends its next wait at once, so no wake-up is lost, not even by
a cancelled wait. Several notifications before a wait cause one wake-up, so the task must check
everything that may have changed. Only one task waits; any code on the event loop may notify.
"""

from __future__ import annotations

import asyncio

from purelb_agent.runtime import clock


class Wakeup:
    """Wakes one task."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self._is_minor = True
        self.was_minor = False
        """Whether all notifications that ended the last wait were minor."""

    def notify(self, *, is_minor: bool = False) -> None:
        """End the current wait, or else the next one; what is minor the waiting task decides."""
        self._is_minor = is_minor and self._is_minor
        self._news.set()

    async def wait(self, *, until: float | None = None, seconds: float | None = None) -> bool:
        """Wait for a notification, until `until` (of `clock.now`) or for `seconds` at most.

        Returns True and consumes the notification, or False at the deadline. Without either, there
        is no deadline. A pending notification takes precedence over a deadline in the past.
        """
        if until is not None:
            seconds = until - clock.now()
        try:
            async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
                await self._news.wait()
        except TimeoutError:
            # A notification may have come in the same pass of the event loop as the deadline.
            if not self._news.is_set():
                return False
        self._news.clear()
        self.was_minor, self._is_minor = self._is_minor, True
        return True
