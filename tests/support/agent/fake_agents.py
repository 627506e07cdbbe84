# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The agents of other nodes, without a network: what `Peers.tell` sends and what they answer.

How to use it:

    agents = FakeAgents("n2", "n3")
    agents.answer("n2", "right", {"seconds": 4.0})
    agents.answer("n2", "right", HANGS, times=1)       # then the answer before it
    agents.answer("n3", "permission", lambda body: {...})
    node.store.nodes.replace(agents.nodes, asked_at=clock.now())
    peers = agents.peers(node)

Who has no prepared answer refuses the connection. `agents.told` has every message with its time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from ipaddress import ip_address
from typing import NamedTuple

from purelb.core import names
from purelb.core.holding.messages import build_response, read_message
from purelb.core.holding.peer_keys import PeerKeys
from purelb_agent.peers.peers import Peers
from purelb_agent.runtime import clock
from tests.support.agent.kubernetes_objects import lease_object, node_object

KEY = b"sixteen bytes or more"
# Instead of an answer: the message gets none.
HANGS = "hangs"


class Told(NamedTuple):
    """A message to a peer."""

    at: float
    peer: str
    kind: str
    body: object


class FakeAgents:
    """The agents of these nodes, each at one address: of IPv4 and IPv6 in turn."""

    def __init__(self, *nodes):
        self.told = []
        self._began = clock.now()
        self._answers = defaultdict(list)
        texts = ("10.0.0.{}", "fd00::{}")
        self._by_address = {
            ip_address(texts[number % 2].format(number)): node
            for number, node in enumerate(nodes, start=2)
        }

    @property
    def nodes(self):
        """The Node objects."""
        return [node_object(node, str(address)) for address, node in self._by_address.items()]

    def answer(self, peer, kind, answer, *, times=float("inf")):
        """Prepare the answer to all messages of a kind, or to the next `times`."""
        self._answers[peer, kind].append([answer, times])

    def peers(self, node):
        """Return the Peers of a LeasedNode that reach these agents."""
        node.store.nodes.replace(self.nodes, asked_at=clock.now())
        return Peers(node.renewer.node, lambda: PeerKeys(KEY), send=self.send)

    async def send(self, address, message):
        """As `PeerHttp.send`."""
        peer = self._by_address[address]
        read = read_message([KEY], message, peer=peer)
        self.told.append(Told(round(clock.now() - self._began, 2), peer, read.kind, read.body))
        await asyncio.sleep(0)
        answer = self._take(peer, read)
        if answer is None:
            raise OSError("connection refused")
        if answer == HANGS:
            await asyncio.Event().wait()
        return build_response(read, peer=peer, body=answer)

    def _take(self, peer, read):
        prepared = self._answers[peer, read.kind]
        if not prepared:
            return None
        newest = prepared[-1]
        newest[1] -= 1
        if newest[1] <= 0:
            prepared.pop()
        return newest[0](read.body) if callable(newest[0]) else newest[0]

    def asked(self, peer, kind):
        """When a peer was sent a message of this kind."""
        return [told.at for told in self.told if (told.peer, told.kind) == (peer, kind)]


def peer_lease(node, *, epoch=None, mail="", **more):
    """The Lease of a peer, renewed now, in its first epoch; `epoch=""`: its agent writes none."""
    body = lease_object(node, **more)
    annotations = body["metadata"]["annotations"]
    marks = {
        names.EPOCH_ANNOTATION: f"{node}.1" if epoch is None else epoch,
        names.MAIL_ANNOTATION: mail,
    }
    annotations.update({name: text for name, text in marks.items() if text})
    return body
