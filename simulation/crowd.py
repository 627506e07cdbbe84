# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Agents of many other nodes, which all ask one agent at one moment whether it can renew."""

from __future__ import annotations

import asyncio

from purelb.core.holding.messages import build_message
from purelb.core.holding.outage import OUTAGE, OutageQuestion, outage_question_body
from purelb_agent.peers.http import PATH
from purelb_agent.runtime.program import METRICS_PORT
from simulation.cluster import Cluster
from simulation.member import KEYS, Node
from simulation.node.http import ModelPeers
from simulation.time.machine import Machine
from simulation.time.process import Process

# Seconds; so long that an agent which is asked may have renewed since, and reads its Lease.
_FAILING_FOR = 6.0


class Crowd:
    """So many others; `answered` is how many answers they have got."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        self.count = count
        self.answered = 0
        self._process = Process(Machine(cluster.timeline, "crowd"), "crowd")
        self._peers = ModelPeers(cluster.network, self._process, PATH, METRICS_PORT)
        cluster.processes.append(self._process)

    def ask(self, node: Node) -> None:
        """Ask one node, all at this moment."""
        self._process.start(self._ask_all(node))

    async def _ask_all(self, node: Node) -> None:
        await asyncio.wait(
            [asyncio.create_task(self._ask(node, number)) for number in range(self.count)]
        )

    async def _ask(self, node: Node, number: int) -> None:
        body = outage_question_body(
            OutageQuestion(f"node-{number}", failing_for=_FAILING_FOR, duration=10.0)
        )
        question = build_message(
            KEYS.signing, peer=node.name, kind=OUTAGE, nonce=str(number), body=body
        )
        await self._peers.send(node.addresses[0], question)
        self.answered += 1
