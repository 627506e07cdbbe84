# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""How the agents of a small world see and renew Leases, and ask each other whether they can."""

from __future__ import annotations

import math
from dataclasses import replace

from purelb.core.holding.outage import CanRenew, OutageAnswer, OutageQuestion, PeerAnswer
from purelb.core.holding.right import Right
from purelb.core.model import Lease
from tests.support.rule.records import TIMING, SentRenewal
from tests.support.rule.world import World

# After how many ticks a slow write acts, and how many may be under way.
_SLOW, _MOST_UNDER_WAY = 2, 2
_SILENT = OutageAnswer(PeerAnswer.SILENT)


class Renewing(World):
    """A world whose nodes renew their Leases."""

    def _watch(self, name: str) -> None:
        """Read what the watches show; a watch that does not show the own renewal is restarted."""
        node, holder = self.nodes[name], self.holder(name)
        right, counting, tainted = holder.right, holder.counting, node.tainted
        is_behind = right.number > 0 and not right.is_shown and self.now > right.sent_at + 1
        stands_still = self.has("stalled", name) and not is_behind
        if node.read == len(self.log) or not self.reaches_api(name) or stands_still:
            self.take(name, holder.at(self.now))
            return
        for entry in self.log[node.read :]:
            if entry.taint is not None:
                tainted = tainted | {entry.node} if entry.taint else tainted - {entry.node}
            elif entry.lease is None:
                continue
            elif entry.node == name:
                right = right.deleted() if entry.is_deleted else right.shown(entry.lease.epoch)
                counting = counting.seen_from(None if entry.is_deleted else entry.lease.subnets)
            elif entry.is_deleted:
                counting = counting.deleted(entry.node, last=entry.lease)
            else:
                counting = counting.observe(entry.lease, now=self.now)
        self.change(
            name, holder=replace(holder, right=right, counting=counting).at(self.now),
            tainted=tainted, read=len(self.log),
            next_write=self.now if right.is_deleted else node.next_write,
        )  # fmt: skip

    def _with_right(self, name: str, right: Right, **changes: object) -> None:
        holder = replace(self.holder(name), right=right).at(self.now)
        self.change(name, holder=holder, **changes)

    def _renew(self, name: str) -> None:
        node, right = self.nodes[name], self.holder(name).right
        if self.now < node.next_write or len(node.under_way) >= _MOST_UNDER_WAY:
            return
        subnets = self.subnets[name]
        epoch = right.epoch_to_write(subnets, now=self.now)
        right = right.sent(epoch)
        since = self.now if node.failing_since is None else node.failing_since
        self._with_right(name, right, failing_since=since)
        lease = Lease(
            name, instance=str(node.starts), holder=name, duration=TIMING.duration,
            renew_time=float(self.now), epoch=epoch, subnets=subnets, mail=node.mail,
        )  # fmt: skip
        if self.reaches_api(name) and self.has("slow", name):
            sent = SentRenewal(lease, self.now, self.now + _SLOW)
            self.writes = (*self.writes, (sent.acts_at, lease, self.leases.get(name)))
            under_way = (*node.under_way, sent)
            self.change(name, under_way=under_way, next_write=self.now + TIMING.retry_period)
        elif self.reaches_api(name):
            self.store(lease)
            self._succeed(name, lease, self.now)
        else:
            failed, again_at = right.failed(epoch), self.now + TIMING.retry_period
            self._with_right(name, failed, next_write=again_at)

    def _hear_renewals(self, name: str) -> None:
        """Hear which renewals were written; one is given up when it would give no right."""
        for sent in self.nodes[name].under_way:
            if sent.acts_at <= self.now and self.reaches_api(name):
                if self.leases.get(name) is sent.lease:
                    self._succeed(name, sent.lease, sent.at)
                    return
            elif self.now < sent.at + TIMING.renew_deadline:
                continue
            under_way = tuple(u for u in self.nodes[name].under_way if u is not sent)
            right = self.holder(name).right.failed(sent.lease.epoch)
            self._with_right(name, right, under_way=under_way)

    def _succeed(self, name: str, lease: Lease, sent_at: int) -> None:
        right = self.holder(name).right
        after = right.succeeded(lease.epoch, lease.subnets, sent_at=sent_at, now=self.now)
        next_write = self.now + 1 if after.is_failing else after.renew_at
        self._with_right(name, after, under_way=(), failing_since=None, next_write=next_write)
        self._watch(name)

    def _doubt(self, name: str) -> None:
        """Ask the others whether they can renew, while this node cannot."""
        if not self.nodes[name].is_in_doubt:
            return
        since = self.nodes[name].failing_since
        since = self.now if since is None else since
        members, told = self.holder(name).members(), self.holder(name).who_can.told
        said = {p: self._says_whether_it_can(name, p, since) for p in {*members, *told} - {name}}
        holder, _found = self.holder(name).hear_outage(
            members, said, since=since, asked_at=self.now, now=self.now
        )
        self.take(name, holder)

    def _can_renew(self, name: str, since: float = -math.inf) -> CanRenew | None:
        """Whether a node says that it can: its renewal since then shows that, and a read now."""
        node = self.nodes[name]
        if node.right is None or node.is_in_doubt or not self.reaches_api(name):
            return None
        can = node.right.can_renew(since)
        return CanRenew(name, self.now - node.right.sent_at) if can else None

    def _says_whether_it_can(self, asker: str, peer: str, since: int) -> OutageAnswer:
        if not self.passes(asker, peer):
            return _SILENT
        can = self._can_renew(peer, since)
        holder, answer = self.holder(peer).answer_outage(
            OutageQuestion(asker, self.now - since), age=can and can.age, is_listed=True,
            now=self.now,
        )  # fmt: skip
        self.take(peer, holder)
        return answer if self.passes(peer, asker) else _SILENT
