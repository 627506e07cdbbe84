# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the other nodes' agents whether they can renew their Leases, and answers their questions.

All peers are asked in parallel, each over all of its addresses, within a fixed time. The core
decides what the answers mean. Nothing here renews a Lease or extends a deadline.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from aiohttp import web

from purelb.core.election.peer_keys import PeerKeys
from purelb.core.election.peers import (
    PATIENCE,
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

# Returns whether this node can renew now: True, False, or None if unknown. It makes an attempt or
# joins one in progress, so any number of questions causes at most two attempts per second. It is
# cancelled at the timeout, which must not cancel the attempt.
CouldRenew = Callable[[], Awaitable[bool | None]]
# Sends a question's headers to an agent and returns its reply; OSError if there is none.
Get = Callable[[Address, Mapping[str, str]], Awaitable[bytes]]


class Promises(Protocol):
    """Promises to treat a node's Lease as valid, although no renewal is seen."""

    def promise(self, node: str, *, seconds: float) -> bool:
        """Treat the Lease as valid for this time; False if this node may not promise that."""


class Peers:
    """The other nodes' agents.

    `heard` maps each peer that said directly that it can renew to when it did, on the own clock.
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
        get: Get,
    ) -> None:
        self._node = node
        self._keys = keys
        self._timing = timing
        self._could_renew = could_renew
        self._promises = promises
        self._get = get
        self.heard: dict[str, float] = {}

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
        # Drops nodes that have left the cluster.
        self.heard = {p: t for p, t in self.heard.items() if now - t < self._timing.duration}

    async def _ask_peer(self, peer: str, addresses: Sequence[Address]) -> PeerAnswer:
        """Ask a peer over all of its addresses; return its first valid reply."""
        requests = [asyncio.create_task(self._ask_address(peer, address)) for address in addresses]
        try:
            for reply in asyncio.as_completed(requests):
                answer = await reply
                if answer is not PeerAnswer.SILENT:
                    return answer
        finally:
            for task in requests:
                task.cancel()
            await asyncio.gather(*requests, return_exceptions=True)
        return PeerAnswer.SILENT

    async def _ask_address(self, peer: str, address: Address) -> PeerAnswer:
        key, nonce = self._keys().signing, secrets.token_hex(16)
        question = build_question(key, asker=self._node, peer=peer, nonce=nonce)
        try:
            text = await self._get(address, question)
        except OSError:
            return PeerAnswer.SILENT
        return read_reply(key, peer=peer, nonce=nonce, text=text)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a peer's question; a request without a valid signature gets status 403."""
        question = check_question(self._keys().accepted, request.headers, peer=self._node)
        if question is None:
            return web.Response(
                status=403, text="not a question to this node signed with the cluster's key\n"
            )
        answer = own_answer(
            could_renew=await self._could_renew_in_time(),
            heard=(at for peer, at in self.heard.items() if peer != question.asker),
            now=clock.now(),
        )
        # CANNOT promises the asker not to take over its addresses for a full duration.
        if answer is PeerAnswer.CANNOT and not self._promises.promise(
            question.asker, seconds=self._timing.duration
        ):
            answer = PeerAnswer.KNOWS
        reply = build_reply(question.key, peer=self._node, nonce=question.nonce, answer=answer)
        return web.Response(body=reply, content_type="application/json")

    async def _could_renew_in_time(self) -> bool | None:
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._could_renew()
        except TimeoutError:
            return None
