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
from purelb_agent.lease.peers import Peers
from purelb_agent.runtime import clock
from purelb_agent.runtime.wakeup import Wakeup

KIND = "resigned"
_TOLD_AGAIN = 0.4


class Resignation:
    """The last epoch that is over, and who has not heard of it."""

    def __init__(self, node: str, store: NodeStore, peers: Peers, *, seconds: float) -> None:
        """`seconds`: how long a Lease lasts; no node is told for longer."""
        self._node = node
        self._store = store
        self._peers = peers
        self._seconds = seconds
        self._epoch = ""
        self._untold: set[str] = set()
        self._until = 0.0
        self._wakeup = Wakeup()
        peers.answers[KIND] = self._hear

    async def _hear(self, body: Json) -> Json | None:
        node, epoch = str(body.get("node")), str(body.get("epoch"))
        table = self._store.leases
        table.hear_promised(read_promised(body))
        table.change(table.counting.resigned(node, epoch))
        return {}

    def resign(self, epoch: str) -> None:
        """Tell all near nodes that this epoch is over: this node holds nothing now."""
        if epoch != self._epoch:
            self._epoch, self._until = epoch, clock.now() + self._seconds
            # Also those that count no more: they may have promised to count this node.
            counting = self._store.leases.counting
            near = (counting.leases[node].lease for node in counting.near())
            self._untold = {p.node for p in near if p.epoch and not p.is_released}
            self._wakeup.notify()

    async def run(self) -> None:
        """Tell them, until cancelled."""
        while True:
            await self._wakeup.wait(seconds=_TOLD_AGAIN if self._untold else None)
            epoch, told = self._epoch, sorted(self._untold)
            answers = await asyncio.gather(*(self._tell(peer, epoch) for peer in told))
            if epoch == self._epoch:
                heard = {p for p, a in zip(told, answers, strict=True) if a is not None}
                self._untold = self._untold - heard if clock.now() < self._until else set()

    async def _tell(self, peer: str, epoch: str) -> Json | None:
        promised = self._store.leases.counting.promised(clock.now())
        body = {"node": self._node, "epoch": epoch, "promised": dict(promised)}
        return await self._peers.tell(peer, self._store.addresses_of(peer), KIND, body)
