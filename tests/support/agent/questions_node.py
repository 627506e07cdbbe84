# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The node `n1` with its permissions, and a loop that does what it decides at once.

How to use it:

    async with QuestionsNode().working() as node:
        node.agents.answer("n2", KIND, node.n2)    # `n2` answers by the rule
        node.plan(address)                         # `n1` is to have what it wins
        await settle()
        assert node.held == {address}

Addresses in `node.stuck` stay on the interfaces despite all decisions.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from purelb.core.holding.messages import answer_body, question_body, read_answer, read_question
from purelb.core.holding.permissions import Permissions
from purelb.core.node.decisions import decide_vips
from purelb_agent.holding.questions import KIND, Questions
from purelb_agent.runtime import clock
from tests.support.agent.fake_agents import FakeAgents, peer_lease
from tests.support.agent.leased_node import LeasedNode
from tests.support.core.snapshots import service, snapshot


async def settle():
    """Let everything happen that takes no time."""
    await asyncio.sleep(0.01)


class QuestionsPeer:
    """What another node answers by the rule, with what it holds and wants; `questions` it got."""

    def __init__(self, name):
        self.permissions = Permissions(name, f"{name}.1")
        self.holds = frozenset()
        self.wanted = frozenset()
        self.questions = []

    def __call__(self, body):
        return answer_body(self.answer(read_question(body)))

    def answer(self, question):
        self.questions.append(question)
        self.permissions, answer = self.permissions.answer(
            question,
            epochs={question.asker: question.epoch},
            holds=self.holds,
            wanted=self.wanted,
        )
        denied = {a for a in self.holds if self.permissions.is_denied(a, [question.asker])}
        self.holds -= denied
        return answer

    def ask(self, epoch, *, nonce="nonce", wants=(), moves=()):
        """Return a question to `n1` in its epoch."""
        self.permissions, question = self.permissions.ask(
            "n1",
            epoch,
            nonce=nonce,
            holds=self.holds,
            wants=frozenset(wants),
            moves=frozenset(moves),
        )
        return question


class QuestionsNode(LeasedNode):
    """The node `n1`, which counts `n2`."""

    def __init__(self):
        super().__init__()
        self.agents = FakeAgents("n2", "n3")
        self.peers = self.agents.peers(self)
        self.n2 = QuestionsPeer("n2")
        self.looked_at = []
        self.questions = Questions(
            self.store,
            self.renewer,
            self.peers,
            look_anew=lambda: self.looked_at.append(round(clock.now() - self.began, 2)),
            metrics=self.metrics,
        )
        self.held = self.stuck = frozenset()
        self.cycles = 0
        self.store.leases.put(peer_lease("n2", duration=100))
        self.plan()

    def plan(self, *addresses, members=("n1", "n2")):
        """Elect again among these members, for a Service with these addresses."""
        made = snapshot(service(addresses=addresses), members=members)
        self.elected = decide_vips(made)
        self.store.changed.notify()

    def cycle(self):
        """Decide, change the interfaces, and send."""
        self.cycles += 1
        now = clock.now()
        self.questions.read_mail(now)
        self.decisions = self.questions.decide(self.elected, self.held, now=now)
        here = self.decisions.here if self.store.hold_deadline else ()
        self.held = frozenset(decision.vip.address for decision in here) | self.stuck
        self.questions.send(self.held, now=now)

    async def _loop(self):
        while True:
            self.cycle()
            await self.store.changed.wait(until=self.questions.next_at(clock.now()))

    @asynccontextmanager
    async def working(self):
        """Run the renewer and the loop."""
        async with self.running():
            loop = asyncio.create_task(self._loop())
            try:
                await settle()
                yield self
                assert not loop.done()
            finally:
                loop.cancel()
                await asyncio.gather(loop, return_exceptions=True)
                self.questions.cancel()
                await settle()

    def ask(self, question):
        """Ask this node; return the task that has the body of its answer."""
        return asyncio.create_task(self.peers.answers[KIND](question_body(question)))

    async def answer(self, question):
        """Ask this node and return its answer; None if it gives none."""
        return read_answer(await self.ask(question))

    @property
    def epoch(self):
        return self.renewer.right.epoch

    @property
    def asked(self):
        """The questions to `n2` that went directly."""
        return [read_question(told.body) for told in self.agents.told if told.peer == "n2"]
