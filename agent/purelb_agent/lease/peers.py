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

from purelb.core.holding.messages import (
    Json,
    build_message,
    build_response,
    read_message,
    read_response,
)
from purelb.core.holding.outage import (
    OUTAGE,
    CanRenew,
    Heard,
    OutageAnswer,
    OutageQuestion,
    PeerAnswer,
    is_heard,
    outage_answer_body,
    outage_question_body,
    own_answer,
    read_outage_answer,
    read_outage_question,
)
from purelb.core.holding.peer_keys import PeerKeys
from purelb.core.model import Address
from purelb.core.settings import LeaseTiming
from purelb_agent.runtime import clock

# Limits the load in a large cluster. A peer that reads its Lease first takes up to PATIENCE to
# answer, a dead one never does: this many dead peers use up the second that a question has.
_MAX_PARALLEL = 256

# Returns within PATIENCE whether this node can renew, as a renewal shows that it sent since then:
# how many seconds ago that was, or None.
Renewed = Callable[[float], Awaitable[float | None]]
# Sends a message to an agent and returns its reply; OSError if there is none.
Send = Callable[[Address, bytes], Awaitable[bytes]]
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

    `heard`: what each peer last answered, that it can renew; `told`: what was said unasked.
    `keys` returns the present keys: they may be rotated at any time.
    """

    def __init__(
        self,
        node: str,
        keys: Callable[[], PeerKeys],
        *,
        timing: LeaseTiming,
        renewed: Renewed,
        promises: Promises,
        send: Send,
    ) -> None:
        self._node = node
        self._keys = keys
        self._timing = timing
        self._renewed = renewed
        self._promises = promises
        self._send = send
        self._slots = asyncio.Semaphore(_MESSAGES)
        # By kind of message.
        self.answers: dict[str, Answer] = {OUTAGE: self._answer}
        self.heard: dict[str, Heard] = {}
        self.told: dict[str, Heard] = {}

    async def ask(
        self, members: Mapping[str, Sequence[Address]], *, since: float, seconds: float = 1.0
    ) -> dict[str, PeerAnswer]:
        """Ask all members except this node whether they can renew.

        `since`: since when the own renewals fail. A peer that does not answer in time is SILENT.
        """
        asked_at = clock.now()
        question = OutageQuestion(self._node, asked_at - since)
        said = {peer: OutageAnswer(PeerAnswer.SILENT) for peer in members if peer != self._node}
        slots = asyncio.Semaphore(_MAX_PARALLEL)

        async def ask_one(peer: str) -> None:
            async with slots:
                said[peer] = await self._ask_peer(peer, members[peer], question)

        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for peer in said:
                    group.create_task(ask_one(peer))
        except TimeoutError:
            pass  # the remaining peers stay SILENT
        self._remember(said, asked_at)
        return {peer: spoken.answer for peer, spoken in said.items()}

    def _remember(self, said: Mapping[str, OutageAnswer], asked_at: float) -> None:
        now = clock.now()
        for peer, spoken in said.items():
            if spoken.answer is PeerAnswer.CAN:
                self.heard[peer] = Heard(now, asked_at - spoken.age)
            elif spoken.answer is not PeerAnswer.SILENT:
                self.heard.pop(peer, None)
                self.told.pop(peer, None)
        # Drops nodes that have left the cluster.
        self.heard = {p: h for p, h in self.heard.items() if now - h.at < self._timing.duration}

    def hear(self, can: CanRenew) -> None:
        """Note that a peer said unasked that it can renew, by a message sent a moment ago.

        It is not passed on: an agent that was frozen reads it late, and does not know that. Only
        the answer to a question is, so who says so unasked is asked.
        """
        now = clock.now()
        self.told[can.node] = Heard(now, now - _MESSAGE_SECONDS - can.age)
        self.told = {p: h for p, h in self.told.items() if now - h.at < self._timing.duration}

    def was_told(self, *, since: float, now: float) -> bool:
        """Whether a peer said so lately, and nothing else after it, and renewed since then."""
        return is_heard(self.told.values(), since=since, now=now)

    async def _ask_peer(
        self, peer: str, addresses: Sequence[Address], question: OutageQuestion
    ) -> OutageAnswer:
        body = outage_question_body(question)

        async def ask(address: Address) -> OutageAnswer | None:
            found = await self._exchange(peer, address, OUTAGE, body)
            return None if found is None else read_outage_answer(found)

        said = await _first_reply(addresses, ask, again=_AGAIN)
        return said or OutageAnswer(PeerAnswer.SILENT)

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
        seconds: float = _MESSAGE_SECONDS,
        again: float | None = None,
    ) -> Json | None:
        """Send a message to a peer and return its response; None if none comes in time.

        `again`: after so many seconds it is sent a second time, as a single one may get lost.
        """

        async def ask(address: Address) -> Json | None:
            return await self._exchange(peer, address, kind, body)

        async with self._slots:
            try:
                async with asyncio.timeout(seconds):
                    return await _first_reply(addresses, ask, again=again)
            except TimeoutError:
                return None

    async def _answer(self, body: Json) -> Json | None:
        question, now = read_outage_question(body), clock.now()
        if question is None:
            return None
        asker, since = question.asker, now - question.failing_for
        age = await self._renewed(since)
        answer = own_answer(
            can_renew=age is not None,
            heard=(heard for peer, heard in self.heard.items() if peer != asker),
            since=since,
            now=clock.now(),
        )
        # CANNOT promises the asker not to take over its addresses for a full duration.
        if answer is PeerAnswer.CANNOT and not self._promises.promise(
            asker, seconds=self._timing.duration
        ):
            answer = PeerAnswer.KNOWS
        # After that: one whose Lease has ended for this node gets no promise for being heard.
        self._promises.hear_from(asker)
        return outage_answer_body(OutageAnswer(answer, age or 0.0))

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
