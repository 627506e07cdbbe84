# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The agents of a small world: in each tick every one that runs takes one step.

It reads what its watches show, renews, asks and answers, and adds or withdraws the address. All
that decides is the core; this module carries messages, and loses them where a fault says so.
Kernels are as late as they may be: an address outlives its agent until the node's right has ended,
and not an instant less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from purelb.core.holding.counting import Check, Counting
from purelb.core.holding.permissions import (
    PermissionAnswer,
    PermissionQuestion,
    Permissions,
    Promised,
    QuestionRefusal,
)
from purelb.core.holding.right import Right
from tests.support.rule.records import IT, TIMING, VIP, Node, PostedLease
from tests.support.rule.renewals import Renewing

# Steps of one node in one tick: meet, ask those who do not hold, ask the holder.
_ROUNDS = 4


class Cluster(Renewing):
    """A world whose nodes act."""

    def tick(self) -> None:
        """Let every node take one step."""
        self.carry_out_writes()
        for name in self.names:
            node = self.nodes[name]
            if node.holds and self.now >= node.kernel_until:
                self.change(name, holds=False)
            if node.right is None and self.down[name] <= self.now and self.reaches_api(name):
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
        self.nodes[name] = replace(
            Node(name, starts, Right(TIMING, f"{name}{starts}"), counting, Permissions(name)),
            read=len(self.log), tainted=self.tainted, next_write=self.now,
            holds=node.holds, kernel_until=node.kernel_until,
        )  # fmt: skip

    def stop(self, name: str, *, until: int) -> None:
        """End a node's agent without a word; its kernel stays."""
        self.change(name, right=None)
        self.down[name] = until

    def leave(self, name: str, *, until: int) -> None:
        """End a node's agent as it ends on SIGTERM."""
        right = self.nodes[name].right
        self.change(name, holds=False, right=None)
        self.down[name] = until
        lease = self.leases.get(name)
        if right is not None and lease is not None and self.reaches_api(name):
            self.store(replace(lease, holder=""))
            self.delete(name)

    def step(self, name: str) -> None:
        """Let one agent do what is due."""
        self._hear_late(name)
        self._watch(name)
        self._lapse(name)
        self._hear_renewals(name)
        self._renew(name)
        self._doubt(name)
        self._resign(name)
        self._find_ends(name)
        self._read_mail(name)
        self._hold(name)
        self._renew(name)

    def _hear_late(self, name: str) -> None:
        node = self.nodes[name]
        if node.late:
            permissions = node.permissions
            for peer, answer in node.late:
                if self._waits_for(name, peer, answer):
                    self._hear_promised(name, answer.promised)
                permissions = permissions.heard(peer, answer)
            self.change(name, permissions=permissions, late=())
            self._let_go(name)

    def _resign(self, name: str) -> None:
        """Tell the others that the last right of this node is over, until they have heard it."""
        node = self.nodes[name]
        epoch, untold = node.resigned
        if node.right is not None and not node.holds and node.right.over not in ("", epoch):
            epoch, untold = node.right.over, frozenset(node.counting.near())
            self.change(name, resigned=(epoch, untold))
        told = set()
        for peer in sorted(untold):
            if peer in self.nodes and self.passes(name, peer):
                other = self.nodes[peer]
                promised = self.nodes[name].counting.promised(self.now)
                counting = other.counting.with_promised(promised, now=self.now)
                self.change(peer, counting=counting.resigned(name, epoch))
                self._update_peers(peer)
                told |= {peer} if self.passes(peer, name) else set()
        if told:
            self.change(name, resigned=(epoch, untold - told))

    def _find_ends(self, name: str) -> None:
        for _round in range(_ROUNDS):
            checks = self.nodes[name].counting.checks(self.now)
            for peer, check in checks.items():
                self._check(name, peer, check)
            self._update_peers(name)
            if not checks:
                break

    def _check(self, name: str, peer: str, check: Check) -> None:
        if check is Check.READ:
            if not self.reaches_api(name):
                return
            lease = self.leases.get(peer)
            if lease is not None:
                counting = self.nodes[name].counting.observe(lease, now=self.now)
                self.change(name, counting=counting)
        elif check is Check.ASK_NODE:
            self._ask_for_its_right(name, peer)
        else:
            self._ask_for_promises(name, peer)
        counting = self.nodes[name].counting.found(peer, check, asked_at=self.now)
        self.change(name, counting=counting)

    def _ask_for_its_right(self, name: str, peer: str) -> None:
        reached = self.passes(name, peer) and self.passes(peer, name)
        if not reached or not self.nodes[peer].acted:
            return
        self._lapse(peer)
        right, counting = self.nodes[peer].right, self.nodes[name].counting
        assert right is not None
        deadline, epoch = right.deadline(self.now), counting.leases[peer].lease.epoch
        promised = self.nodes[peer].counting.promised(self.now)
        counting = counting.with_promised(promised, now=self.now)
        if deadline is not None:
            seconds = deadline.hold_until - self.now
            counting = counting.has_right(peer, seconds=seconds, now=self.now)
        elif right.is_over(epoch, self.now):
            counting = counting.resigned(peer, epoch)
        self.change(name, counting=counting)

    def _ask_for_promises(self, name: str, peer: str) -> None:
        """Ask the others, and the node again."""
        counting = self.nodes[name].counting
        for other in counting.near_to(counting.leases[peer].lease):
            if not self.passes(name, other):
                continue
            if self._can_renew(name):
                self._note_who_can(other, name)
            promises = self.nodes[other].counting.promises
            if peer in promises and self.passes(other, name):
                seconds = promises[peer] - self.now
                counting = self.nodes[name].counting
                counting = counting.has_right(peer, seconds=seconds, now=self.now)
                self.change(name, counting=counting)
        self._ask_for_its_right(name, peer)

    def _read_mail(self, name: str) -> None:
        """Hear the answers and answer the questions that stand in the Leases of others."""
        for peer, counted in self.nodes[name].counting.leases.items():
            lease, node = counted.lease, self.nodes[name]
            if not isinstance(lease, PostedLease) or not counted.counts:
                continue
            for _asker, answer in (a for a in lease.answers if a[0] == name):
                if self._waits_for(name, peer, answer):
                    self._hear_promised(name, answer.promised)
                heard = node.permissions.heard(peer, answer, by_lease=True)
                node = self.change(name, permissions=heard)
            answered = dict(node.posted)
            for question in (q for q in lease.questions if q.peer == name):
                known = answered.get(peer)
                if known and known.nonce == question.nonce:
                    continue
                if node.permissions.is_first_to_ask(peer):
                    continue
                answer = self._think(question)
                posted = (*(p for p in node.posted if p[0] != peer), (peer, answer))
                self.change(name, posted=posted, next_write=self.now)
        self._let_go(name)

    def _waits_for(self, name: str, peer: str, answer: PermissionAnswer) -> bool:
        asked = self.nodes[name].permissions.asked.get(peer)
        return asked is not None and asked.nonce == answer.nonce

    def _let_go(self, name: str) -> None:
        node = self.nodes[name]
        if node.holds and node.permissions.is_denied(VIP, self.covering(name)):
            self.change(name, holds=False)

    def _hold(self, name: str) -> None:
        self._let_go(name)
        for _round in range(_ROUNDS):
            if not self._ask(name):
                break
        node = self.nodes[name]
        right = node.right
        assert right is not None
        deadline = right.deadline(self.now)
        if deadline is None:
            return
        lacking = node.permissions.lacking(VIP, self.covering(name))
        puts = self.wants(name) and right.may_add(self.now) and not lacking
        holds = node.holds or puts
        if (holds, deadline.hold_until, True) != (node.holds, node.kernel_until, node.acted):
            self.change(name, holds=holds, kernel_until=deadline.hold_until, acted=True)

    def _ask(self, name: str) -> bool:
        """Ask whom this node has not met or whose permission it lacks; whether any was."""
        node = self.nodes[name]
        if node.right is None or not node.right.number:
            return False
        epochs = node.counting.epochs()
        near = {
            n: e for n, e in epochs.items() if node.counting.is_near(node.counting.leases[n].lease)
        }
        missing = {VIP: tuple(self.covering(name))} if self.wants(name) and not node.holds else {}
        asked = False
        for peer, (wants, moves) in node.permissions.to_ask(missing, near).items():
            node = self.nodes[name]
            permissions, question = node.permissions.ask(
                peer, epochs[peer], nonce=f"{name}{node.starts}.{node.nonce}",
                holds=node.held, wants=wants, moves=moves,
                promised=node.counting.promised(self.now),
            )  # fmt: skip
            self.change(name, permissions=permissions, nonce=node.nonce + 1)
            if permissions.asks_by_lease(peer):
                self.change(name, next_write=self.now)
                continue
            answer = self._answer(question)
            if answer is not None:
                self._hear(name, peer, question, answer)
                asked = asked or answer.refusal is None
        return asked

    def _hear_promised(self, name: str, promised: Promised) -> None:
        counting = self.nodes[name].counting.with_promised(promised, now=self.now)
        self.change(name, counting=counting)

    def _hear_over(self, name: str, over: Mapping[str, str]) -> None:
        """Take what another node believes to be over, which it says with its answer."""
        counting = self.nodes[name].counting
        for node, epoch in over.items():
            counting = counting.ended(node, epoch, now=self.now)
        self.change(name, counting=counting)

    def _hear(
        self, name: str, peer: str, question: PermissionQuestion, answer: PermissionAnswer
    ) -> None:
        self._hear_over(name, self.nodes[peer].counting.over())
        self._hear_promised(name, answer.promised)
        node = self.nodes[name]
        self.change(name, permissions=node.permissions.heard(peer, answer))
        if answer.refusal is QuestionRefusal.EPOCH_OVER:
            counting = self.nodes[name].counting.resigned(peer, question.peer_epoch)
            self.change(name, counting=counting)
        self._update_peers(name)
        self._let_go(name)

    def _answer(self, question: PermissionQuestion) -> PermissionAnswer | None:
        """Let a peer answer; None if the answer does not arrive now."""
        asker, peer = question.asker, question.peer
        if not self.passes(asker, peer):
            self._give_up(question)
            return None
        self._watch(peer)
        self._lapse(peer)
        answer = self._think(question)
        if not self.passes(peer, asker):
            self._give_up(question)
            return None
        if self.has("late", peer, asker):
            self.change(asker, late=(*self.nodes[asker].late, (peer, answer)))
            return None
        return answer

    def _think(self, question: PermissionQuestion) -> PermissionAnswer:
        """PermissionAnswer a question, and withdraw what the asker has from now on."""
        self._hear_from(question.peer, question.asker)
        self._hear_promised(question.peer, question.promised)
        self._update_peers(question.peer)
        node = self.nodes[question.peer]
        right = node.right
        if node.acted and right is not None and right.is_over(question.peer_epoch, self.now):
            return PermissionAnswer(
                question.nonce, refusal=QuestionRefusal.EPOCH_OVER,
                promised=node.counting.promised(self.now),
            )  # fmt: skip
        permissions, answer = node.permissions.answer(
            question, epochs=node.counting.epochs(), holds=node.held,
            wanted=IT if self.wants(node.name) else frozenset(),
        )  # fmt: skip
        self.change(node.name, permissions=permissions)
        self._let_go(node.name)
        return replace(answer, promised=node.counting.promised(self.now))

    def _give_up(self, question: PermissionQuestion) -> None:
        node = self.nodes[question.asker]
        permissions = node.permissions.gave_up(question.peer, question.nonce)
        self.change(question.asker, permissions=permissions)
