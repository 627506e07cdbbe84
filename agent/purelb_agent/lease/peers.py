# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the other nodes whether they can renew their Leases, and answers them.

All peers are asked at once, each over all of its addresses, and within a fixed time. What the
answers mean is decided in the core; this file neither renews nor holds anything.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web

from purelb.core.election.peers import (
    PATIENCE,
    PeerAnswer,
    build_question,
    build_reply,
    check_question,
    read_reply,
    what_to_answer,
)
from purelb.core.errors import SettingError
from purelb.core.model import Address
from purelb.core.names import PEER_SECRET
from purelb.core.settings import LeaseTiming
from purelb_agent.runtime import clock

PATH = "/peer"
_V6 = 6
_SHORTEST_KEY = 16
_LONGEST_REPLY = 1024
# So that a big cluster's questions are no storm. A peer that has to try first takes up to PATIENCE,
# and one that is dead all the time there is: this many of them at once use up a second of asking.
_IN_FLIGHT = 256

# Whether this node could renew just now: True, False, or None while that is not known. It makes an
# attempt or joins the one under way, so that any number of questions makes two attempts a second at
# most. It is cancelled when the time is up, which must not cancel the attempt.
CouldRenew = Callable[[], Awaitable[bool | None]]


def read_key(path: Path) -> bytes | None:
    """Read the key that all nodes share; None if there is none, and peers are not asked."""
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise SettingError(
            f"{path} cannot be read ({problem.strerror or problem}): mount the Secret "
            f"{PEER_SECRET} there, as the role purelb_install does"
        ) from problem
    if 0 < len(key) < _SHORTEST_KEY:
        raise SettingError(
            f"the key in {path} has {len(key)} bytes, too few to keep strangers out: give the "
            f"Secret {PEER_SECRET} a random one of {_SHORTEST_KEY} bytes or more, and restart the "
            "agents"
        )
    return key or None


class Peers:
    """The other nodes' agents; used as an async context manager.

    `heard`: which peers said directly that they can renew, and when on this node's own clock.
    """

    def __init__(
        self,
        node: str,
        key: bytes,
        *,
        timing: LeaseTiming,
        could_renew: CouldRenew,
        promise: Callable[[str], bool],
        port: int,
    ) -> None:
        """`lets_count` makes the Lease of a node count here for a full duration; whether it may.

        It may not once it has ended here: its addresses may be this node's by now.
        """
        self._node = node
        self._key = key
        self._timing = timing
        self._could_renew = could_renew
        self._lets_count = promise
        self._port = port
        self._session: aiohttp.ClientSession | None = None
        self.heard: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        """Get ready to ask."""
        # A connection kept from before the outage may be the very thing that is broken.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def ask(
        self, members: Mapping[str, Sequence[Address]], *, seconds: float = 1.0
    ) -> dict[str, PeerAnswer]:
        """Ask all members but this node; who does not answer in time is SILENT."""
        answers = {peer: PeerAnswer.SILENT for peer in members if peer != self._node}
        slots = asyncio.Semaphore(_IN_FLIGHT)

        async def ask_one(peer: str) -> None:
            async with slots:
                answers[peer] = await self._ask_peer(peer, members[peer])

        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for peer in answers:
                    group.create_task(ask_one(peer))
        except TimeoutError:
            pass  # the rest is silent
        self._remember(answers)
        return answers

    def _remember(self, answers: Mapping[str, PeerAnswer]) -> None:
        now = clock.now()
        for peer, answer in answers.items():
            if answer is PeerAnswer.CAN:
                self.heard[peer] = now
            elif answer is not PeerAnswer.SILENT:
                self.heard.pop(peer, None)
        # Nodes come and go.
        self.heard = {p: t for p, t in self.heard.items() if now - t < self._timing.duration}

    async def _ask_peer(self, peer: str, addresses: Sequence[Address]) -> PeerAnswer:
        """Ask a peer over all of its addresses; its first good reply counts."""
        asking = [asyncio.create_task(self._ask_address(peer, address)) for address in addresses]
        try:
            for reply in asyncio.as_completed(asking):
                answer = await reply
                if answer is not PeerAnswer.SILENT:
                    return answer
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return PeerAnswer.SILENT

    async def _ask_address(self, peer: str, address: Address) -> PeerAnswer:
        if self._session is None:
            raise RuntimeError("Peers is not open")
        nonce = secrets.token_hex(16)
        host = f"[{address}]" if address.version == _V6 else str(address)
        try:
            async with self._session.get(
                f"http://{host}:{self._port}{PATH}",
                headers=build_question(self._key, asker=self._node, peer=peer, nonce=nonce),
                allow_redirects=False,
            ) as reply:
                if not 0 < (reply.content_length or 0) <= _LONGEST_REPLY:
                    return PeerAnswer.SILENT
                text = await reply.read()
        except (aiohttp.ClientError, OSError):
            return PeerAnswer.SILENT
        return read_reply(self._key, peer=peer, nonce=nonce, text=text)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a peer's question; nobody without the key learns anything."""
        question = check_question(self._key, request.headers, peer=self._node)
        if question is None:
            return web.Response(
                status=403, text="this is no question to this node signed with its cluster's key\n"
            )
        answer = what_to_answer(
            could_renew=await self._could_renew_in_time(),
            heard=(at for peer, at in self.heard.items() if peer != question.asker),
            now=clock.now(),
        )
        if answer is PeerAnswer.CANNOT and not self._lets_count(question.asker):
            answer = PeerAnswer.KNOWS
        reply = build_reply(self._key, peer=self._node, nonce=question.nonce, answer=answer)
        return web.Response(body=reply, content_type="application/json")

    async def _could_renew_in_time(self) -> bool | None:
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._could_renew()
        except TimeoutError:
            return None
