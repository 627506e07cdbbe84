# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Keys of objects to work on, with exponential back-off per key, like client-go's work queue.

A key waits once, however often it is added. From `take` or `get` until `done` it is being worked
on: added in the meantime, it is worked on once more afterwards, and never twice at once. The queue
holds keys, not states: the worker reads what is true when it gets to the key.

One task takes keys; any code on the event loop adds them. All times are those of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

from purelb_agent.runtime.wakeup import Wakeup

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys in the order in which they came.

    `first_pause` and `longest_pause` are in seconds: the pause before a retry doubles with each
    failure. A task that waits for other news too passes its own `wakeup`, waits on that, and calls
    `take` in place of `get`.
    """

    def __init__(
        self, *, first_pause: float, longest_pause: float, wakeup: Wakeup | None = None
    ) -> None:
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._wakeup = wakeup or Wakeup()
        # Dictionaries, for their order.
        self._waiting: dict[K, None] = {}
        # Keys being worked on, and whether each was added again.
        self._worked: dict[K, bool] = {}
        # Pause before the next retry of each key that failed.
        self._pauses: dict[K, float] = {}
        self._retries: dict[K, asyncio.TimerHandle] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no key waits or was added again during its work; pending retries do not count."""
        return not self._waiting and not any(self._worked.values())

    def add(self, key: K) -> None:
        """Queue a key behind those that wait already."""
        if key in self._worked:
            self._worked[key] = True
        else:
            self._waiting[key] = None
        self._wakeup.notify()

    def take(self) -> K | None:
        """Return the key that has waited longest, now being worked on; None if none waits."""
        key = next(iter(self._waiting), None)
        if key is not None:
            del self._waiting[key]
            self._worked[key] = False
        return key

    async def get(self) -> K:
        """Like `take`, but wait until there is a key; a cancelled wait takes none."""
        while (key := self.take()) is None:
            await self._wakeup.wait()
        return key

    def done(self, key: K) -> None:
        """Work on a key has ended, well or not: it may be taken again."""
        if self._worked.pop(key):
            self.add(key)

    def retry(self, key: K, *, is_permanent: bool = False) -> None:
        """Add a key after a pause that doubles each time; replaces a pending retry.

        A permanent failure, which passes only after a change by others, takes the longest
        pause at once.
        """
        pause = self._longest_pause if is_permanent else self._pauses.get(key, self._first_pause)
        self._pauses[key] = min(pause * 2, self._longest_pause)
        self.add_later(key, pause)

    def add_later(self, key: K, pause: float) -> None:
        """Add a key after a pause in seconds; replaces a pending one."""
        self._cancel_retry(key)
        self._retries[key] = asyncio.get_running_loop().call_later(pause, self._retry_now, key)

    def forget(self, key: K) -> None:
        """Forget a key's failures: after the next one it waits the first pause again.

        A pending retry is not cancelled; the worker may then find nothing to do.
        """
        self._pauses.pop(key, None)

    def close(self) -> None:
        """Cancel all pending retries."""
        for key in tuple(self._retries):
            self._cancel_retry(key)

    def _retry_now(self, key: K) -> None:
        del self._retries[key]
        self.add(key)

    def _cancel_retry(self, key: K) -> None:
        retry = self._retries.pop(key, None)
        if retry is not None:
            retry.cancel()
