# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""How the agents of a small world see and renew Leases, and ask each other whether they can."""

from __future__ import annotations

import math

from purelb.core.holding.outage import (
    OutageAssessment,
    PeerAnswer,
    assess_outage,
    extended_deadline,
)
from purelb.core.model import Lease
from tests.support.rule.records import TIMING, Node, PostedLease, SentRenewal
from tests.support.rule.world import World

# How long a node passes on that another could renew.
_PASSED_ON = 3
# After how many ticks a slow write acts, and how many may be under way.
_SLOW, _MOST_UNDER_WAY = 2, 2


class Renewing(World):
    """A world whose nodes renew their Leases."""

    def _watch(self, name: str) -> None:
        """Read what the watches show; a watch that does not show the own renewal is restarted."""
        node = self.nodes[name]
        right = node.right
        assert right is not None
        is_behind = right.number > 0 and not right.is_shown and self.now > right.sent_at + 1
        stands_still = self.has("stalled", name) and not is_behind
        if node.read == len(self.log) or not self.reaches_api(name) or stands_still:
            return
        counting, tainted = node.counting, node.tainted
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
            name, right=right, counting=counting, tainted=tainted, read=len(self.log),
            next_write=self.now if right.is_deleted else node.next_write,
        )  # fmt: skip
        self._update_peers(name)

    def _update_peers(self, name: str) -> None:
        node = self.nodes[name]
        counting = node.counting.at(self.now)
        permissions = node.permissions.among(counting.epochs())
        if counting is not node.counting or permissions is not node.permissions:
            self.change(name, counting=counting, permissions=permissions)

    def _lapse(self, name: str) -> None:
        node = self.nodes[name]
        right = node.right
        assert right is not None
        after = right.at(self.now)
        if after is not right:
            self.change(name, right=after, holds=False, permissions=node.permissions.entered(""))

    def _renew(self, name: str) -> None:
        node = self.nodes[name]
        right = node.right
        assert right is not None
        if self.now < node.next_write or len(node.under_way) >= _MOST_UNDER_WAY:
            return
        subnets = self.subnets[name]
        epoch = right.epoch_to_write(subnets, now=self.now)
        right = right.sent(epoch)
        self.change(name, right=right)
        asked = node.permissions.asked
        lease = PostedLease(
            name, instance=str(node.starts), holder=name, duration=TIMING.duration,
            renew_time=float(self.now), epoch=epoch, subnets=subnets,
            questions=tuple(q for p, q in asked.items() if node.permissions.asks_by_lease(p)),
            answers=node.posted,
        )  # fmt: skip
        self.change(
            name, failing_since=self.now if node.failing_since is None else node.failing_since
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
            self.change(name, right=right.failed(epoch), next_write=self.now + TIMING.retry_period)
            self._lapse(name)

    def _hear_renewals(self, name: str) -> None:
        """Hear which renewals were written; one is given up when it would give no right."""
        for sent in self.nodes[name].under_way:
            if sent.acts_at <= self.now and self.reaches_api(name):
                if self.leases.get(name) is sent.lease:
                    self._succeed(name, sent.lease, sent.at)
                    return
            elif self.now < sent.at + TIMING.renew_deadline:
                continue
            node = self.nodes[name]
            assert node.right is not None
            under_way = tuple(other for other in node.under_way if other is not sent)
            self.change(name, under_way=under_way, right=node.right.failed(sent.lease.epoch))

    def _succeed(self, name: str, lease: Lease, sent_at: int) -> None:
        node = self.nodes[name]
        assert node.right is not None
        after = node.right.succeeded(lease.epoch, lease.subnets, sent_at=sent_at, now=self.now)
        self.change(
            name, right=after, permissions=node.permissions.entered(after.epoch), under_way=(),
            failing_since=None, next_write=after.renew_at if not after.is_failing else self.now + 1,
        )  # fmt: skip
        self._watch(name)

    def _doubt(self, name: str) -> None:
        """Ask the others whether they can renew, while this node cannot."""
        node = self.nodes[name]
        assert node.right is not None
        if not node.is_in_doubt:
            return
        members = {*node.counting.near(), name}
        answers = {peer: self._says_whether_it_can(name, peer) for peer in members - {name}}
        for peer, answer in answers.items():
            if answer is PeerAnswer.CAN:
                self._note_who_can(name, peer)
        node = self.nodes[name]
        assert node.right is not None
        assessment = assess_outage(members, name, answers)
        is_cut_off = assessment is OutageAssessment.ALONE_CUT_OFF
        self.change(name, right=node.right.cut_off(is_cut_off=is_cut_off))
        if assessment is OutageAssessment.HOLD:
            until = extended_deadline(self.now, TIMING)
            self.change(name, right=node.right.extended(until, now=self.now))

    def _note_who_can(self, name: str, peer: str) -> None:
        recent = tuple(h for h in self.nodes[name].heard if self.now - h[1] < _PASSED_ON)
        right = self.nodes[peer].right
        assert right is not None
        self.change(name, heard=(*recent, (peer, self.now, right.sent_at)))

    def _can_renew(self, name: str, since: float = -math.inf) -> bool:
        """Whether a node says that it can: its renewal since then shows that, and a read now."""
        node = self.nodes[name]
        if node.right is None or node.is_in_doubt:
            return False
        return node.right.can_renew(since) and self.reaches_api(name)

    def _says_whether_it_can(self, asker: str, peer: str) -> PeerAnswer:
        if not self.passes(asker, peer):
            return PeerAnswer.SILENT
        node, answer = self.nodes[peer], PeerAnswer.CANNOT
        since = self.nodes[asker].failing_since
        since = self.now if since is None else since
        if self._can_renew(peer, since):
            answer = PeerAnswer.CAN
        elif any(
            who != asker and self.now - at < _PASSED_ON and renewed_at >= since
            for who, at, renewed_at in node.heard
        ):
            answer = PeerAnswer.KNOWS
        else:
            promised = node.counting.promise(asker, until=self.now + TIMING.duration)
            if promised is None:
                answer = PeerAnswer.KNOWS
            else:
                self.change(peer, counting=promised)
        self._hear_from(peer, asker)
        return answer if self.passes(peer, asker) else PeerAnswer.SILENT

    def _hear_from(self, name: str, peer: str) -> Node:
        return self.change(name, counting=self.nodes[name].counting.heard(peer, now=self.now))
