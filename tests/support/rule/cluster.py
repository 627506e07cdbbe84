# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The agents of a small world: in each tick every one that runs takes one step.

It reads what its watches show, renews, asks and answers, and adds or withdraws the address. The
Holder of each node decides; this module carries messages, and loses them where a fault says so.
Kernels are as late as they may be: an address outlives its agent until the node's right has ended,
and not an instant less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from purelb.core.holding.counted_lease import Check
from purelb.core.holding.counting import Counting
from purelb.core.holding.holder import Holder
from purelb.core.holding.permissions import PermissionAnswer, PermissionQuestion, Permissions
from purelb.core.holding.right import Right
from purelb.core.holding.talks import NEWS_SECONDS
from purelb.core.model import Address
from tests.support.rule.records import IT, TIMING, VIP, Node
from tests.support.rule.renewals import Renewing

# Steps of one node in one tick: meet, ask those who do not hold, ask the holder.
_ROUNDS = 4
_NOTHING: frozenset[Address] = frozenset()


class Cluster(Renewing):
    """A world whose nodes act."""

    def tick(self) -> None:
        """Let every node take one step."""
        self.carry_out_writes()
        for name in self.names:
            node = self.nodes[name]
            if node.holds and self.now >= node.kernel_until:
                self.change(name, holds=False)
            if node.holder is None and self.down[name] <= self.now and self.reaches_api(name):
                self.start(name)
        for name in self.names:
            if self.runs(name):
                self.step(name)
        self.now += 1
        self.end_faults()

    def start(self, name: str) -> None:
        """Start a node's agent, which lists everything."""
        node, counting = self.nodes[name], Counting()
        for lease in self.leases.values():
            if lease.node != name:
                counting = counting.observe(lease, now=self.now)
        starts = node.starts + 1
        holder = Holder(Right(TIMING, f"{name}{starts}"), Permissions(name), counting)
        self.nodes[name] = Node(
            name, starts, holder, read=len(self.log), tainted=self.tainted, holds=node.holds,
            kernel_until=node.kernel_until,
        )  # fmt: skip

    def stop(self, name: str, *, until: int) -> None:
        """End a node's agent without a word; its kernel stays."""
        self.change(name, holder=None)
        self.down[name] = until

    def leave(self, name: str, *, until: int) -> None:
        """End a node's agent as it ends on SIGTERM."""
        runs = self.nodes[name].holder is not None
        self.change(name, holds=False, holder=None)
        self.down[name] = until
        lease = self.leases.get(name)
        if runs and lease is not None and self.reaches_api(name):
            self.store(replace(lease, holder=""))
            self.delete(name)

    def step(self, name: str) -> None:
        """Let one agent do what is due."""
        for question, answer in self.nodes[name].late:
            self.take(name, self.holder(name).hear(question, answer, now=self.now))
        self.change(name, late=())
        self._watch(name)
        self._hear_renewals(name)
        self._renew(name)
        self._doubt(name)
        self._find_ends(name)
        self.take(name, self.holder(name).with_mail(now=self.now))
        self._plan(name)
        self._say_over(name)
        self._renew(name)

    def _say_over(self, name: str) -> None:
        """Tell the others that the last right of this node is over, until they have heard it."""
        epoch, untold, _until = self.holder(name).over
        heard = set()
        for peer in sorted(untold):
            if peer in self.nodes and self.passes(name, peer):
                promised = self.holder(name).counting.promised(self.now)
                other = self.holder(peer).hear_over(name, epoch, promised, now=self.now)
                self.take(peer, other)
                heard |= {peer} if self.passes(peer, name) else set()
        if untold:
            self.take(name, self.holder(name).told(epoch, heard, now=self.now))

    def _find_ends(self, name: str) -> None:
        for _round in range(_ROUNDS):
            checks = self.holder(name).counting.checks(self.now)
            for peer, check in checks.items():
                self._check(name, peer, check)
            if not checks:
                break

    def _check(self, name: str, peer: str, check: Check) -> None:
        if check is Check.READ:
            if self.reaches_api(name):
                lease = self.leases.get(peer)
                read = self.holder(name).read(
                    peer, lease, can_ask=True, asked_at=self.now, now=self.now
                )
                self.take(name, read)
            return
        if check is Check.ASK_NODE:
            self._ask_for_its_right(name, peer)
        else:
            self._ask_for_promises(name, peer)
        found = self.holder(name).found(peer, check, asked_at=self.now, now=self.now)
        self.take(name, found)

    def _ask_for_its_right(self, name: str, peer: str) -> None:
        if not self.passes(name, peer):
            return
        epoch = self.holder(name).counting.leases[peer].lease.epoch
        said = self.take(peer, self.holder(peer).at(self.now)).say_right(epoch, now=self.now)
        if said is not None and self.passes(peer, name):
            self.take(name, self.holder(name).hear_right(peer, epoch, said, now=self.now))

    def _ask_for_promises(self, name: str, peer: str) -> None:
        """Ask the others, and the node again."""
        counting = self.holder(name).counting
        lease = counting.leases[peer].lease
        for other in counting.near_to(lease):
            if not self.passes(name, other):
                continue
            self.take(other, self.holder(other).hear_can(self._can_renew(name), now=self.now))
            said = self.holder(other).say_promise(peer, now=self.now)
            if self.passes(other, name):
                holder = self.holder(name)
                self.take(name, holder.hear_right(peer, lease.epoch, said, now=self.now))
        self._ask_for_its_right(name, peer)

    def _plan(self, name: str) -> None:
        """Answer, decide, change the interfaces, send the answers and ask."""
        for _round in range(_ROUNDS):
            self._cycle(name, self.now)
            right = self.holder(name).right
            if right.deadline(self.now) is None or not self._ask(name):
                break

    def _cycle(self, name: str, now: float) -> None:
        """Let a node do what it does whenever something has changed."""
        wanted = IT if self.wants(name) else _NOTHING
        node = self.nodes[name]
        holder = self.take(name, self.holder(name).answer(held=node.held, wanted=wanted, now=now))
        peers, node = self.covering(name), self.nodes[name]
        deadline = holder.right.deadline(self.now)
        lacking = holder.permissions.lacking(VIP, peers)
        keeps = node.holds and not holder.permissions.is_denied(VIP, peers)
        puts = wanted == IT and holder.right.may_add(self.now) and not lacking
        if deadline is None:
            self.change(name, holds=False)
        else:
            self.change(name, holds=keeps or puts, kernel_until=deadline.hold_until)
        holder, replies = holder.reply(held=self.nodes[name].held, now=now)
        self.change(name, replies=tuple(replies))
        self._post(name, holder)

    def _ask(self, name: str) -> bool:
        """Ask whom this node has not met or whose permission it lacks; whether any answered."""
        wants = self.wants(name) and not self.nodes[name].holds
        missing = {VIP: tuple(self.covering(name))} if wants else {}
        holder, questions = self.holder(name).ask(missing, nonce=self._nonces(name), now=self.now)
        self._post(name, holder)
        answers = [self._answer(question) for question in questions]
        return any(answer is not None and answer.refusal is None for answer in answers)

    def _post(self, name: str, holder: Holder) -> None:
        """Take a Holder; what its Lease is to say to those that it does not reach is written."""
        mail = holder.mail()
        if mail != self.nodes[name].mail:
            holder = replace(holder, right=holder.right.changing(self.now))
            self.change(name, mail=mail)
        self.take(name, holder)

    def _nonces(self, name: str) -> Callable[[], str]:
        def nonce() -> str:
            node = self.nodes[name]
            self.change(name, nonce=node.nonce + 1)
            return f"{name}{node.starts}.{node.nonce}"

        return nonce

    def _answer(self, question: PermissionQuestion) -> PermissionAnswer | None:
        """Let a peer answer, and hear it; None if the answer does not arrive now."""
        asker, peer = question.asker, question.peer
        answer = None
        if self.passes(asker, peer):
            self._watch(peer)
            self.take(peer, self.holder(peer).asked(question, now=self.now))
            # What its watch has not shown by now it does not show in time.
            for now in (self.now, self.now + NEWS_SECONDS):
                self._cycle(peer, now)
                answers = [a for asked, a in self.nodes[peer].replies if asked.question is question]
                if answers:
                    answer = answers[0]
                    break
        if answer is not None and self.passes(peer, asker):
            if self.has("late", peer, asker):
                late = (*self.nodes[asker].late, (question, answer))
                self.change(asker, late=late)
                return None
        else:
            answer = None
        self.take(asker, self.holder(asker).hear(question, answer, now=self.now))
        return answer
