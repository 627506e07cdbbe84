# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Requests under way: writes of Services, and questions to external IPAM systems.

At most one for a Service, so a Service is never written twice at once, and a few in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass

from purelb.core.allocation.outcomes import Outcome
from purelb.core.model import Address, Service
from purelb_agent.runtime.wakeup import Wakeup

# More at once do not make the API server faster; fewer leave it waiting for us.
MOST_AT_ONCE = 8


@dataclass(frozen=True)
class Request:
    """What is sent for a Service, and the outcome that it carries out.

    `work` returns the Service's new version after a write, or the addresses that were asked for. It
    raises ApiError or IpamError.
    """

    service: Service
    outcome: Outcome
    work: Coroutine[None, None, str | tuple[Address, ...]]


@dataclass(frozen=True)
class Later:
    """Nothing is sent for a Service now; it is looked at again after these seconds."""

    seconds: float


@dataclass(frozen=True)
class SentRequest:
    """A request with the task that carries it out."""

    service: Service
    outcome: Outcome
    task: asyncio.Task[str | tuple[Address, ...]]


class RequestsUnderWay:
    """Sends requests; the end of each wakes the task that collects them."""

    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self._sent: list[SentRequest] = []

    @property
    def has_room(self) -> bool:
        """Whether one more may be sent now."""
        return len(self._sent) < MOST_AT_ONCE

    def send(self, request: Request) -> None:
        """Send a request."""
        task = asyncio.create_task(request.work, name=f"write {request.service.key}")
        task.add_done_callback(lambda _task: self._wakeup.notify())
        self._sent.append(SentRequest(request.service, request.outcome, task))

    def take_finished(self) -> list[SentRequest]:
        """Return those that have ended; they are no longer under way."""
        finished = [request for request in self._sent if request.task.done()]
        self._sent = [request for request in self._sent if request not in finished]
        return finished

    async def wait(self) -> None:
        """Wait until all that are under way now have ended."""
        if self._sent:
            await asyncio.wait([request.task for request in self._sent])

    def cancel(self) -> None:
        """Cancel all."""
        for request in self._sent:
            request.task.cancel()
