# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Sends messages to the other nodes' agents, and passes on theirs to who answers them.

A peer is asked over all of its addresses in parallel, within a fixed time. What messages mean is
not known here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from aiohttp import web

from purelb.core.holding.messages import (
    Json,
    build_message,
    build_response,
    read_message,
    read_response,
)
from purelb.core.holding.outage import MESSAGE_SECONDS
from purelb.core.holding.peer_keys import PeerKeys
from purelb.core.model import Address

# Limits the load in a large cluster. A peer that reads its Lease first takes up to PATIENCE to
# answer, a dead one never does: this many dead peers use up the second that a question has.
_MAX_PARALLEL = 256

# Sends a message to an agent and returns its reply; OSError if there is none.
Send = Callable[[Address, bytes], Awaitable[bytes]]
# Answers messages of one kind; None: not now.
Answer = Callable[[Json], Awaitable[Json | None]]
R = TypeVar("R")
# How many messages to one peer each are under way.
_MESSAGES = 32
# When a question is asked a second time, as a single message may get lost.
_AGAIN = 0.4


class Peers:
    """The other nodes' agents.

    `keys` returns the present keys: they may be rotated at any time. `answers`: who answers
    messages, by their kind.
    """

    def __init__(self, node: str, keys: Callable[[], PeerKeys], *, send: Send) -> None:
        self._node = node
        self._keys = keys
        self._send = send
        self._slots = asyncio.Semaphore(_MESSAGES)
        self.answers: dict[str, Answer] = {}

    async def ask(
        self,
        peers: Mapping[str, Sequence[Address]],
        kind: str,
        body: Json,
        *,
        seconds: float = 1.0,
    ) -> dict[str, Json]:
        """Send a message to these peers, each at its addresses; return what answers in time."""
        said: dict[str, Json] = {}
        slots = asyncio.Semaphore(_MAX_PARALLEL)

        async def ask_one(peer: str) -> None:
            async with slots:
                found = await self._first_response(peer, peers[peer], kind, body, again=_AGAIN)
                if found is not None:
                    said[peer] = found

        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for peer in peers:
                    group.create_task(ask_one(peer))
        except TimeoutError:
            pass  # the remaining peers stay silent
        return said

    async def _first_response(
        self, peer: str, addresses: Sequence[Address], kind: str, body: Json, *, again: float | None
    ) -> Json | None:
        async def ask(address: Address) -> Json | None:
            return await self._exchange(peer, address, kind, body)

        return await _first_reply(addresses, ask, again=again)

    async def _exchange(self, peer: str, address: Address, kind: str, body: Json) -> Json | None:
        """Send a message and return its response; None if it has none, OSError without a reply."""
        key, nonce = self._keys().signing, secrets.token_hex(16)
        message = build_message(key, peer=peer, kind=kind, nonce=nonce, body=body)
        found = read_response(key, await self._send(address, message), peer=peer, nonce=nonce)
        return found if isinstance(found, dict) else None

    async def tell(
        self,
        peer: str,
        addresses: Sequence[Address],
        kind: str,
        body: Json,
        *,
        seconds: float = MESSAGE_SECONDS,
        again: float | None = None,
    ) -> Json | None:
        """Send a message to a peer and return its response; None if none comes in time.

        `again`: after so many seconds it is sent a second time, as a single one may get lost.
        """
        async with self._slots:
            try:
                async with asyncio.timeout(seconds):
                    return await self._first_response(peer, addresses, kind, body, again=again)
            except TimeoutError:
                return None

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a peer; a request without a valid signature gets status 403."""
        message = read_message(self._keys().accepted, await request.read(), peer=self._node)
        if message is None:
            return _refused()
        answer = self.answers.get(message.kind)
        body = None if answer is None else await answer(message.body)
        if body is None:
            return web.Response(status=503, text="this node cannot answer now\n")
        response = build_response(message, peer=self._node, body=body)
        return web.Response(body=response, content_type="application/json")


def _refused() -> web.Response:
    return web.Response(
        status=403, text="not a message to this node signed with the cluster's key\n"
    )


async def _first_reply(
    addresses: Sequence[Address],
    ask: Callable[[Address], Awaitable[R | None]],
    *,
    again: float | None,
) -> R | None:
    """Ask over all addresses of a peer; return its first valid reply, None if there is none.

    `again`: a question without an answer after so many seconds is sent a second time.
    """
    requests = [asyncio.create_task(_ask_twice(partial(ask, a), again)) for a in addresses]
    try:
        for request in asyncio.as_completed(requests):
            reply = await request
            if reply is not None:
                return reply
    finally:
        await _cancel(requests)
    return None


async def _ask_twice(ask: Callable[[], Awaitable[R | None]], again: float | None) -> R | None:
    """Return the first outcome of one question, or of two of them; None for a refusal."""
    requests = [asyncio.ensure_future(ask())]
    try:
        if again is not None and not (await asyncio.wait(requests, timeout=again))[0]:
            requests.append(asyncio.ensure_future(ask()))
        done, _waiting = await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    except OSError:
        return None
    finally:
        await _cancel(requests)


async def _cancel(requests: Iterable[asyncio.Future[R | None]]) -> None:
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)
