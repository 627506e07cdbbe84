# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Informs the other nodes when the right of this one is over, so that they need not wait for it.

It is told when the addresses are withdrawn, with the epoch that is over, until every node has
answered: a message that comes late, or twice, says nothing about another epoch.
"""

from __future__ import annotations

import asyncio

from purelb.core.holding.messages import Json, read_promised
from purelb_agent.kube.store import NodeStore
from purelb_agent.peers.peers import Peers
from purelb_agent.runtime import clock
from purelb_agent.runtime.wakeup import Wakeup

KIND = "over"
_TOLD_AGAIN = 0.4


class OverReporter:
    """Reports it to those whom the Holder names, and hears others."""

    def __init__(self, store: NodeStore, peers: Peers) -> None:
        self._store = store
        self._peers = peers
        self._wakeup = Wakeup()
        peers.answers[KIND] = self._hear

    async def _hear(self, body: Json) -> Json | None:
        node, epoch = str(body.get("node")), str(body.get("epoch"))
        holder, promised = self._store.holder, read_promised(body)
        self._store.take(holder.hear_over(node, epoch, promised, now=clock.now()))
        return {}

    def begin(self) -> None:
        """Tell it now: another epoch is over."""
        self._wakeup.notify()

    async def run(self) -> None:
        """Tell them, until cancelled."""
        while True:
            is_told = not self._store.holder.over.untold
            await self._wakeup.wait(seconds=None if is_told else _TOLD_AGAIN)
            epoch, untold, _until = self._store.holder.over
            told = sorted(untold)
            answers = await asyncio.gather(*(self._tell(peer, epoch) for peer in told))
            heard = {p for p, a in zip(told, answers, strict=True) if a is not None}
            self._store.take(self._store.holder.told(epoch, heard, now=clock.now()))

    async def _tell(self, peer: str, epoch: str) -> Json | None:
        holder = self._store.holder
        promised = dict(holder.counting.promised(clock.now()))
        body = {"node": holder.node, "epoch": epoch, "promised": promised}
        return await self._peers.tell(peer, self._store.addresses_of(peer), KIND, body)
