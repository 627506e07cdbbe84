# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Finds out whether the Leases of other nodes have ended.

The core says what is to be found out next. A Lease is read by a request of its own, its node is
asked whether it has a right, and the others whether they promised to count it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from purelb.core.api import codec
from purelb.core.holding.counted_lease import Check
from purelb.core.holding.messages import Json, read_right_answer, right_answer_body
from purelb.core.holding.outage import CanRenew, can_renew_body, read_can_renew
from purelb.core.model import Lease
from purelb.core.names import lease_name
from purelb_agent.holding.renewer import Renewer
from purelb_agent.kube.client import NOT_FOUND, ApiError, Kube
from purelb_agent.kube.store import NodeStore
from purelb_agent.peers.peers import Peers
from purelb_agent.runtime import clock

RIGHT, PROMISED = "right", "promised"
# How long to wait for an answer; and for one of a node that had no answer a moment ago, as nodes of
# one segment answer within milliseconds, and its addresses are on no node meanwhile.
_ANSWER_SECONDS, _SECOND_SECONDS = 0.44, 0.12
_READ_SECONDS, _READ_AGAIN = 2.0, 0.5


class Ends:
    """The ends of Leases; without peers, no node is asked."""

    def __init__(
        self, kube: Kube, namespace: str, store: NodeStore, renewer: Renewer, peers: Peers | None
    ) -> None:
        self._kube = kube
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._store = store
        self._renewer = renewer
        self._peers = peers
        self._checking: dict[str, asyncio.Task[None]] = {}
        if peers is not None:
            peers.answers.update({RIGHT: self._say_right, PROMISED: self._say_promise})

    async def run(self) -> None:
        """Check the end of each Lease when it is due, until cancelled."""
        table = self._store.leases
        try:
            while True:
                now = clock.now()
                table.change(table.counting)
                for node, check in table.counting.checks(now).items():
                    if node not in self._checking:
                        self._start(node, check)
                await table.seen.wait(until=table.counting.next_at(now))
        finally:
            for task in self._checking.values():
                task.cancel()

    def _start(self, node: str, check: Check) -> None:
        lease = self._store.leases.counting.leases[node].lease
        ways = {Check.ASK_NODE: self._ask_node, Check.READ: self._read}
        task = asyncio.create_task(ways.get(check, self._ask_others)(lease))
        self._checking[node] = task

        def ended(_task: asyncio.Task[None]) -> None:
            del self._checking[node]
            self._store.leases.seen.notify()

        task.add_done_callback(ended)

    async def _ask_node(self, lease: Lease) -> None:
        asked_at = clock.now()
        can = can_renew_body(await self._can_renew())
        await self._ask_for_its_right(lease, {"epoch": lease.epoch, **can}, _ANSWER_SECONDS)
        # Also where it says no more than what counts already: it would be asked again and again.
        self._found(lease.node, Check.ASK_NODE, asked_at)

    async def _can_renew(self) -> CanRenew | None:
        age = await self._renewer.renewed()
        return None if age is None else CanRenew(self._renewer.node, age)

    async def _ask_for_its_right(self, lease: Lease, body: Json, seconds: float) -> None:
        self._hear_right(lease, await self._ask(lease.node, RIGHT, body, seconds))

    def _hear_right(self, lease: Lease, answer: Json | None) -> None:
        if answer is not None:
            holder, said = self._store.holder, read_right_answer(answer)
            self._store.take(holder.hear_right(lease.node, lease.epoch, said, now=clock.now()))

    def _found(self, node: str, check: Check, asked_at: float) -> None:
        holder = self._store.holder
        self._store.take(holder.found(node, check, asked_at=asked_at, now=clock.now()))

    async def _read(self, lease: Lease) -> None:
        asked_at, path = clock.now(), f"{self._leases}/{lease_name(lease.node)}"
        try:
            read = codec.lease_of(await self._kube.request("GET", path, seconds=_READ_SECONDS))
        except ApiError as error:
            if error.status != NOT_FOUND:
                self._store.take(replace(self._store.holder, unread_at=clock.now()))
                await asyncio.sleep(_READ_AGAIN)
                return
            read = None
        before = self._store.holder
        known = before.counting.leases.get(lease.node)
        # The watch may have brought a later one meanwhile.
        if read is not None and known and codec.is_older(read.version, known.lease.version):
            read = None
        can_ask, now = self._peers is not None and lease.epoch != "", clock.now()
        holder = before.read(lease.node, read, can_ask=can_ask, asked_at=asked_at, now=now)
        if holder is before:
            await asyncio.sleep(_READ_AGAIN)
        else:
            self._store.take(holder)

    async def _ask_others(self, lease: Lease) -> None:
        asked_at, node = clock.now(), lease.node
        # Also those that count no more: who withdrew may have promised it before.
        others = self._store.leases.counting.near_to(lease)
        can = can_renew_body(await self._can_renew())
        # The node as well: it may be within reach by now.
        *answers, _right = await asyncio.gather(
            *(
                self._ask(other, PROMISED, {"node": node, **can}, _ANSWER_SECONDS)
                for other in others
            ),
            self._ask_for_its_right(lease, {"epoch": lease.epoch, **can}, _SECOND_SECONDS),
        )
        for answer in answers:
            self._hear_right(lease, answer)
        self._found(node, Check.ASK_OTHERS, asked_at)

    async def _ask(self, peer: str, kind: str, body: Json, seconds: float) -> Json | None:
        if self._peers is None:
            return None
        addresses = self._store.addresses_of(peer)
        return await self._peers.tell(
            peer, addresses, kind, body, seconds=seconds, again=seconds / 2
        )

    async def _say_right(self, body: Json) -> Json | None:
        self._hear_can(body)
        answer = self._store.holder.say_right(str(body.get("epoch")), now=clock.now())
        return None if answer is None else right_answer_body(answer)

    async def _say_promise(self, body: Json) -> Json | None:
        self._hear_can(body)
        said = self._store.holder.say_promise(str(body.get("node")), now=clock.now())
        return {"seconds": said.seconds}

    def _hear_can(self, body: Json) -> None:
        """Note that the asker can renew, so that this node does not hold by agreement for long."""
        self._store.take(self._store.holder.hear_can(read_can_renew(body), now=clock.now()))
