# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A client of the Kubernetes API that writes only while its process leads.

Leadership is checked before the connection of a write is made and again on the open connection,
right before the data goes to the kernel. The kernel drops a write after ON_THE_WIRE seconds without
acknowledgement, and the API server after AT_THE_SERVER more: elector has the sum.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from purelb.core.leadership.leader import AT_THE_SERVER, ON_THE_WIRE
from purelb_agent.kube.client import Access, ApiError, Kube
from purelb_agent.runtime import clock

_SERVER_FAILED = 500
_POLL = 0.01
# Longest wait for answers to pending writes at shutdown, in seconds.
_PATIENCE = 2.0


class Fence(Protocol):
    """Says whether this process leads."""

    def seconds_left(self) -> float:
        """Return for how many seconds it may write; 0 if it does not lead."""


class LeaderKube(Kube):
    """A connection pool on which only the leader can write; reads are not checked."""

    def __init__(self, access: Access, fence: Fence) -> None:
        super().__init__(access, unanswered=ON_THE_WIRE)
        self._fence = fence
        self._is_closed = False
        self._under_way = 0
        self._in_doubt_until = float("-inf")

    def _seconds_left(self) -> float:
        left = 0.0 if self._is_closed else self._fence.seconds_left()
        if left <= 0:
            raise ApiError(0, "not sent: this process does not lead, or is about to end")
        return left

    def _payload(self, data: bytes) -> AsyncGenerator[bytes, None]:
        """Return the body as a generator, which runs when the connection is open."""

        async def checked() -> AsyncGenerator[bytes, None]:
            self._seconds_left()
            yield data

        return checked()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        seconds: float = 10.0,
    ) -> dict[str, Any]:
        """Send one request; a write is given up when leadership ends."""
        if method == "GET":
            return await super().request(method, path, body, params=params, seconds=seconds)
        seconds = min(seconds, self._seconds_left())
        bounded = {**(params or {}), "timeout": f"{AT_THE_SERVER:g}s"}
        self._under_way += 1
        is_answered = False
        try:
            answer = await super().request(method, path, body, params=bounded, seconds=seconds)
            is_answered = True
        except ApiError as error:
            # After a timeout of the server or a proxy the write may have been carried out or not.
            is_answered = 0 < error.status < _SERVER_FAILED
            raise
        finally:
            self._under_way -= 1
            if not is_answered:
                self._in_doubt_until = clock.now() + ON_THE_WIRE + AT_THE_SERVER
        return answer

    async def settle(self) -> None:
        """Refuse further writes; wait until pending ones are answered or can no longer arrive."""
        self._is_closed = True
        deadline = clock.now() + _PATIENCE
        # Each write has a timeout of its own.
        while self._under_way and clock.now() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL)
        if self._under_way:
            self._in_doubt_until = clock.now() + ON_THE_WIRE + AT_THE_SERVER
        await asyncio.sleep(max(0.0, self._in_doubt_until - clock.now()))
