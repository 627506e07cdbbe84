# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the health port of the node's service proxy; the store gets what the answers mean."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

import aiohttp

from purelb.core.model import Address
from purelb.core.node.service_proxy import ANSWERS_WITHIN, Answer, ProxyHealth
from purelb_agent.kube.store import NodeStore
from purelb_agent.runtime import clock, log

_V6 = 6
_OK, _UNAVAILABLE = 200, 503


class ProxyHttp:
    """HTTP to a port of this node; used as an async context manager.

    kube-proxy listens on all addresses by default. Where it was told one, that is the host's own
    or the Node's, so these are tried in turn.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the HTTP session."""
        # The connection stays open between two questions. One that the other end has closed is
        # noticed, and the question repeated by another one.
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWERS_WITHIN))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def ask(self, addresses: Sequence[Address]) -> Answer:
        """Return what the service proxy says; `addresses`: those of the Node, next to localhost."""
        for host in ("127.0.0.1", "[::1]", *map(_host, addresses)):
            answer = await self._ask(f"http://{host}:{self._port}/healthz")
            if answer is not Answer.NONE:
                return answer
        return Answer.NONE

    async def _ask(self, url: str) -> Answer:
        if self._session is None:
            raise RuntimeError("ProxyHttp is not open")
        try:
            async with self._session.get(url, allow_redirects=False) as reply:
                # What answers otherwise is another program.
                return {_OK: Answer.GOOD, _UNAVAILABLE: Answer.BAD}.get(reply.status, Answer.NONE)
        except (aiohttp.ClientError, TimeoutError):
            return Answer.NONE


def _host(address: Address) -> str:
    return f"[{address}]" if address.version == _V6 else str(address)


class ProxyWatch:
    """Asks again and again; the store has what it means."""

    def __init__(self, http: ProxyHttp, store: NodeStore, node: str) -> None:
        self._http = http
        self._store = store
        self._node = node
        self._health = ProxyHealth()

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            asked_at = clock.now()
            answer = await self._http.ask(self._store.addresses_of(self._node))
            before, self._health = self._health, self._health.answered(answer)
            if self._health.state is not before.state:
                log.info("serviceProxy", node=self._node, state=self._health.state.value)
                self._store.set_service_proxy(self._health.state)
            await asyncio.sleep(asked_at + self._health.asked_every - clock.now())
