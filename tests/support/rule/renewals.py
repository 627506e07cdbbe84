# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""How the agents of a small world see and renew Leases, and ask each other whether they can."""

from __future__ import annotations

import math
from dataclasses import replace

from purelb.core.holding.outage import CanRenew, OutageAnswer, PeerAnswer, Round, next_round
from purelb.core.holding.right import Renewal, Right
from purelb.core.model import Lease
from purelb.core.settings import LeaseTiming
from tests.support.rule.records import LONGER, TIMING, SlowRenewal
from tests.support.rule.world import World

# After how many ticks a slow write acts.
_SLOW = 2
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
                shown = entry.lease.epoch
                right = (
                    right.deleted(now=self.now)
                    if entry.is_deleted
                    else right.shown(shown, now=self.now)
                )
                counting = counting.seen_from(None if entry.is_deleted else entry.lease.subnets)
            elif entry.is_deleted:
                counting = counting.deleted(entry.node, last=entry.lease)
            else:
                counting = counting.observe(entry.lease, now=self.now)
        self.change(
            name, holder=replace(holder, right=right, counting=counting).at(self.now),
            tainted=tainted, read=len(self.log),
        )  # fmt: skip

    def _with_right(self, name: str, right: Right) -> None:
        self.take(name, replace(self.holder(name), right=right).at(self.now))

    def _timing(self, name: str) -> LeaseTiming:
        return LONGER if self.has("longer", name) else TIMING

    def _renew(self, name: str) -> None:
        node, right = self.nodes[name], self.holder(name).right
        if self.now < right.due_at(self.now):
            return
        timing = self._timing(name)
        right, renewal = right.sent(self.subnets[name], now=self.now, timing=timing)
        self._with_right(name, right)
        lease = Lease(
            name, instance=str(node.starts), holder=name, duration=timing.duration,
            renew_time=float(self.now), epoch=renewal.epoch, subnets=renewal.subnets,
            mail=node.mail,
        )  # fmt: skip
        if self.reaches_api(name) and self.has("slow", name):
            slow = SlowRenewal(renewal, lease, self.now + _SLOW)
            self.writes = (*self.writes, (slow.acts_at, lease, self.leases.get(name)))
            self.change(name, slow=(*node.slow, slow))
        elif self.reaches_api(name):
            self.store(lease)
            self._succeed(name, renewal)
        else:
            self._with_right(name, right.failed(renewal, now=self.now))

    def _hear_renewals(self, name: str) -> None:
        """Hear which renewals were written; one is given up when it would give no right."""
        for slow in self.nodes[name].slow:
            if slow.acts_at <= self.now and self.reaches_api(name):
                if self.leases.get(name) is slow.lease:
                    self._succeed(name, slow.renewal)
                    return
            elif self.now < slow.renewal.deadline.announce_until:
                continue
            self.change(name, slow=tuple(s for s in self.nodes[name].slow if s is not slow))
            right = self.holder(name).right.failed(slow.renewal, now=self.now)
            self._with_right(name, right)

    def _succeed(self, name: str, renewal: Renewal) -> None:
        right = self.holder(name).right.succeeded(renewal, now=self.now)
        self.change(name, slow=())
        self._with_right(name, right)
        self._watch(name)

    def _doubt(self, name: str) -> None:
        """Ask the others whether they can renew, while this node cannot."""
        right = self.holder(name).right
        if not right.is_in_doubt:
            return
        asked = next_round(right, self._timing(name), now=self.now)
        members, told = self.holder(name).members(), self.holder(name).who_can.told
        said = {p: self._says_whether_it_can(name, p, asked) for p in {*members, *told} - {name}}
        holder, _found = self.holder(name).hear_outage(members, asked, said, now=self.now)
        self.take(name, holder)

    def _can_renew(self, name: str, since: float = -math.inf) -> CanRenew | None:
        """Whether a node says that it can: its renewal since then shows that, and a read now."""
        node = self.nodes[name]
        if node.right is None or not self.reaches_api(name):
            return None
        can = node.right.can_renew(since)
        return CanRenew(name, self.now - node.right.sent_at) if can else None

    def _says_whether_it_can(self, asker: str, peer: str, asked: Round) -> OutageAnswer:
        if not self.passes(asker, peer):
            return _SILENT
        can = self._can_renew(peer, asked.since)
        holder, answer = self.holder(peer).answer_outage(
            asked.question(asker), age=can and can.age, is_listed=True, now=self.now
        )
        self.take(peer, holder)
        return answer if self.passes(peer, asker) else _SILENT
