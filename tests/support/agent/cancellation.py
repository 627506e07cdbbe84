# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Cancel a coroutine at its 1st, 2nd, ... suspension, to check an invariant after each.

How to use it:

    async def test_a_cancelled_renewal_leaves_no_request_behind(api):
        async for interruption in cancel_at_each_await(lambda: renew(api)):
            assert api.under_way == 0, interruption

The factory is called again for each run and also resets what the coroutine changes. The last item
is the run that reached its end without being cancelled.
"""

from __future__ import annotations

import asyncio
import itertools
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

_LIMIT = 1_000


@dataclass(frozen=True)
class Interruption:
    """One run: cancelled at suspension `number` (from 1), which was at `place` (file:line)."""

    number: int
    place: str
    was_cancelled: bool
    result: Any = None
    """What the coroutine returned, if it reached its end or kept the cancellation to itself."""


def _place(work: Any) -> str:
    """Where a coroutine waits: file and line of the innermost frame that is written in Python."""
    place = "?"
    while (frame := getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)) is not None:
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)
    return place


class _Run:
    """Drives a coroutine inside of a task and cancels the task at one suspension."""

    def __init__(self, work: Coroutine[Any, Any, Any], number: int) -> None:
        self._work = work
        self._number = number
        self.place = ""

    @types.coroutine
    def _steps(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        step, value = self._work.send, None
        for number in itertools.count(1):
            try:
                awaited = step(value)
            except StopIteration as end:
                return end.value
            if number == self._number:
                self.place = _place(self._work)
                # From the loop, as any other task cancels it, once the task really waits.
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                step, value = self._work.send, (yield awaited)
            except BaseException as error:  # noqa: BLE001 - handed on to the coroutine
                step, value = self._work.throw, error
        return None

    async def run(self) -> Any:
        return await self._steps()


async def cancel_at_each_await(
    factory: Callable[[], Coroutine[Any, Any, Any]],
) -> AsyncIterator[Interruption]:
    """Yield one `Interruption` after each run; other exceptions of the coroutine are raised."""
    for number in range(1, _LIMIT):
        run = _Run(factory(), number)
        task = asyncio.create_task(run.run())
        await asyncio.wait({task})
        if task.cancelled():
            yield Interruption(number, run.place, was_cancelled=True)
            continue
        result = task.result()
        yield Interruption(number, run.place, was_cancelled=False, result=result)
        if not run.place:
            return
    raise AssertionError(f"the coroutine was suspended {_LIMIT} times")
