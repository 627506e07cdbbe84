# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the other nodes' agents, and answers their questions.

All peers are asked in parallel, each over all of its addresses, within a fixed time. The core
decides what the answers mean. Nothing here renews a Lease or extends a deadline.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from aiohttp import web

from purelb.core.election.messages import (
    Json,
    build_message,
    build_response,
    read_message,
    read_response,
)
from purelb.core.election.peer_keys import PeerKeys
from purelb.core.election.peers import (
    KNOWN_FOR,
    PeerAnswer,
    build_question,
    build_reply,
    check_question,
    own_answer,
    read_reply,
)
from purelb.core.model import Address
from purelb.core.settings import LeaseTiming
from purelb_agent.runtime import clock

# Limits the load in a large cluster. A peer that has to try a renewal first takes up to PATIENCE to
# answer, a dead one never does: this many dead peers use up the second that a question has.
_MAX_PARALLEL = 256

# Returns within PATIENCE whether this node can renew now.
CouldRenew = Callable[[], Awaitable[bool]]
# Sends headers and the body of a message, if any, to an agent and returns its reply; OSError if
# there is none.
Send = Callable[[Address, Mapping[str, str], bytes | None], Awaitable[bytes]]
# Answers messages of one kind; None: not now.
Answer = Callable[[Json], Awaitable[Json | None]]
R = TypeVar("R")
# How long a message to one peer may take, and how many are under way.
_MESSAGE_SECONDS = 0.5
_MESSAGES = 32
# When a question is asked a second time, as a single message may get lost.
_AGAIN = 0.4


class Promises(Protocol):
    """Promises to treat a node's Lease as valid, although no renewal is seen."""

    def promise(self, node: str, *, seconds: float) -> bool:
        """Treat the Lease as valid for this time; False if this node may not promise that."""

    def hear_from(self, node: str) -> None:
        """Take a question of a node for a sign that it lives."""


class Peers:
    """The other nodes' agents.

    `heard` maps each peer that said directly that it can renew to when it did, on the own clock;
    `told` those that said so unasked.
    `keys` returns the present keys: they may be rotated at any time.
    """

    def __init__(
        self,
        node: str,
        keys: Callable[[], PeerKeys],
        *,
        timing: LeaseTiming,
        could_renew: CouldRenew,
        promises: Promises,
        send: Send,
    ) -> None:
        self._node = node
        self._keys = keys
        self._timing = timing
        self._could_renew = could_renew
        self._promises = promises
        self._send = send
        self._slots = asyncio.Semaphore(_MESSAGES)
        # By kind of message.
        self.answers: dict[str, Answer] = {}
        self.heard: dict[str, float] = {}
        self.told: dict[str, float] = {}

    async def ask(
        self, members: Mapping[str, Sequence[Address]], *, seconds: float = 1.0
    ) -> dict[str, PeerAnswer]:
        """Ask all members except this node; a peer that does not answer in time is SILENT."""
        answers = {peer: PeerAnswer.SILENT for peer in members if peer != self._node}
        slots = asyncio.Semaphore(_MAX_PARALLEL)

        async def ask_one(peer: str) -> None:
            async with slots:
                answers[peer] = await self._ask_peer(peer, members[peer])

        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for peer in answers:
                    group.create_task(ask_one(peer))
        except TimeoutError:
            pass  # the remaining peers stay SILENT
        self._remember(answers)
        return answers

    def _remember(self, answers: Mapping[str, PeerAnswer]) -> None:
        now = clock.now()
        for peer, answer in answers.items():
            if answer is PeerAnswer.CAN:
                self.heard[peer] = now
            elif answer is not PeerAnswer.SILENT:
                self.heard.pop(peer, None)
                self.told.pop(peer, None)
        # Drops nodes that have left the cluster.
        self.heard = {p: t for p, t in self.heard.items() if now - t < self._timing.duration}

    def hear(self, peer: str) -> None:
        """Note that a peer said unasked that it can renew."""
        self.heard[peer] = self.told[peer] = clock.now()

    def was_told(self, now: float) -> bool:
        """Whether a peer has said so lately, and nothing else since."""
        self.told = {p: at for p, at in self.told.items() if now - at <= KNOWN_FOR}
        return bool(self.told)

    async def _ask_peer(self, peer: str, addresses: Sequence[Address]) -> PeerAnswer:
        async def ask(address: Address) -> PeerAnswer | None:
            key, nonce = self._keys().signing, secrets.token_hex(16)
            question = build_question(key, asker=self._node, peer=peer, nonce=nonce)
            text = await self._send(address, question, None)
            answer = read_reply(key, peer=peer, nonce=nonce, text=text)
            return None if answer is PeerAnswer.SILENT else answer

        return await _first_reply(addresses, ask, again=_AGAIN) or PeerAnswer.SILENT

    async def tell(
        self,
        peer: str,
        addresses: Sequence[Address],
        kind: str,
        body: Json,
        *,
        seconds: float = _MESSAGE_SECONDS,
        again: float | None = None,
    ) -> Json | None:
        """Send a message to a peer and return its response; None if none comes in time.

        `again`: after so many seconds it is sent a second time, as a single one may get lost.
        """

        async def ask(address: Address) -> Json | None:
            key, nonce = self._keys().signing, secrets.token_hex(16)
            message = build_message(key, peer=peer, kind=kind, nonce=nonce, body=body)
            response = await self._send(address, {}, message)
            found = read_response(key, response, peer=peer, nonce=nonce)
            return found if isinstance(found, dict) else None

        async with self._slots:
            try:
                async with asyncio.timeout(seconds):
                    return await _first_reply(addresses, ask, again=again)
            except TimeoutError:
                return None

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a peer; a request without a valid signature gets status 403."""
        if request.method == "POST":
            return await self._handle_message(await request.read())
        question = check_question(self._keys().accepted, request.headers, peer=self._node)
        if question is None:
            return _refused()
        answer = own_answer(
            could_renew=await self._could_renew(),
            heard=(at for peer, at in self.heard.items() if peer != question.asker),
            now=clock.now(),
        )
        # CANNOT promises the asker not to take over its addresses for a full duration.
        if answer is PeerAnswer.CANNOT and not self._promises.promise(
            question.asker, seconds=self._timing.duration
        ):
            answer = PeerAnswer.KNOWS
        # After that: one whose Lease has ended for this node gets no promise for being heard.
        self._promises.hear_from(question.asker)
        reply = build_reply(question.key, peer=self._node, nonce=question.nonce, answer=answer)
        return web.Response(body=reply, content_type="application/json")

    async def _handle_message(self, sealed: bytes) -> web.Response:
        message = read_message(self._keys().accepted, sealed, peer=self._node)
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
        status=403, text="not a question to this node signed with the cluster's key\n"
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
