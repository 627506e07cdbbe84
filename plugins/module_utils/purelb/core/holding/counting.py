# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which Leases count, and until when, as one observer sees them.

Another node's Lease counts from the moment at which this observer saw it renewed, on its own
monotonic clock, so the nodes' clocks need not agree. It does not end by time alone: a watch may
stand still, and a node may hold because no node can renew. An end is believed once the Lease was
read after it and the node, or enough of the others, have been asked. All of this only ever makes a
Lease count longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, Iterable, Iterator, Mapping, Optional, Tuple

from ..election.election import share_subnet
from ..model import Lease, Network
from .counted_lease import ASKED_AGAIN, ASKED_BEFORE, Check, CountedLease, Findings
from .right import is_earlier, same_start

# Seconds by which the clocks of two API servers may differ, and more than a renewal takes.
_SERVERS_DIFFER = 60.0
_NEVER = float("-inf")


def _same_renewal(one: Lease, other: Lease) -> bool:
    # The resource version is ignored: labelling a dead node's Lease must not revive the node.
    return (one.renew_time, one.holder, one.instance, one.epoch) == (
        other.renew_time,
        other.holder,
        other.instance,
        other.epoch,
    )


def _is_old(lease: Lease, newest: float) -> bool:
    """Whether a Lease had ended long before another one was written at `newest`."""
    return lease.written is not None and newest > lease.written + lease.duration + _SERVERS_DIFFER


@dataclass(frozen=True)
class Counting:
    """The Leases of all other nodes as one observer counts them; each change returns a new record.

    `promises`: until when this observer promised to count a node, because it cannot renew itself.
    `newest`: the last write of a Lease that it has seen, by the API server's clock.
    `subnets`: those of this observer, None if they are not known. Only nodes that share one with it
    can have an address that it can have: who is *near*; while they are not known, all are.
    """

    leases: Mapping[str, CountedLease] = field(default_factory=dict)
    promises: Mapping[str, float] = field(default_factory=dict)
    subnets: Optional[Tuple[Network, ...]] = None
    newest: float = _NEVER

    def is_near(self, lease: Lease) -> bool:
        """Whether the node of a Lease can have an address that this observer can have."""
        return self.subnets is None or share_subnet(self.subnets, lease.subnets)

    def near(self) -> Tuple[str, ...]:
        """Return the nodes with a Lease that are near, dead or not, sorted."""
        return tuple(sorted(n for n, c in self.leases.items() if self.is_near(c.lease)))

    def near_to(self, lease: Lease) -> Tuple[str, ...]:
        """Return who may have promised a node something: who has an epoch and is near to it."""
        others = ((n, c.lease) for n, c in self.leases.items() if c.lease.epoch)
        return tuple(
            node
            for node, other in others
            if node != lease.node and share_subnet(other.subnets, lease.subnets)
        )

    def seen_from(self, subnets: Optional[Tuple[Network, ...]]) -> Counting:
        """Return the same as seen from a node with these subnets.

        The end of a Lease was believed without asking any node where its node was not near; if it
        is from now on, it counts until they have been asked.
        """
        if subnets == self.subnets:
            return self
        seen = replace(self, subnets=subnets)
        leases = {
            node: replace(counted, is_ended=False, found=Findings())
            if counted.is_ended and seen.is_near(counted.lease) and not self.is_near(counted.lease)
            else counted
            for node, counted in self.leases.items()
        }
        return replace(seen, leases=leases)

    def _with(self, node: str, counted: CountedLease) -> Counting:
        return replace(self, leases={**self.leases, node: counted})

    def observe(self, lease: Lease, *, now: float) -> Counting:
        """Record a Lease as seen at `now`; another renewal counts for its duration from then on.

        A shorter duration than before does not end sooner what the one before it allows. A past
        epoch comes from a store that was put back, and says nothing.
        """
        return self._observed(lease, now).written(lease.written, now=now)

    def written(self, at: Optional[float], *, now: float) -> Counting:
        """Record that a Lease was written at a time by the API server's clock; None: not known.

        A Lease that was never seen renewed, and was written more than its duration before another
        one, and a minute more, counts no longer: its end is found out now, or believed if its node
        knows no epochs and is not asked. Nodes' clocks say nothing of that.
        """
        if at is None or at <= self.newest:
            return self
        leases = {
            node: replace(
                counted,
                until=max(now, self.promises.get(node, now)),
                is_ended=not counted.lease.epoch,
            )
            for node, counted in self.leases.items()
            if counted.is_first and counted.until > now and _is_old(counted.lease, at)
        }
        return replace(self, newest=at, leases={**self.leases, **leases})

    def _observed(self, lease: Lease, now: float) -> Counting:
        known = self.leases.get(lease.node)
        until = now + lease.duration
        if known is None:
            is_old = _is_old(lease, self.newest)
            until = now if is_old else until
            until = max(until, self.promises.get(lease.node, until))
            is_ended = is_old and not lease.epoch
            first = CountedLease(lease, until, now, is_first=True, is_ended=is_ended)
            return self._with(lease.node, first)
        if _same_renewal(known.lease, lease):
            return self._with(lease.node, replace(known, lease=lease, is_deleted=False))
        if known.counts and known.is_past(lease.epoch):
            return self
        until = max(until, known.until)
        return self._with(lease.node, CountedLease(lease, until, now, over=known.over))

    def deleted(self, node: str, *, last: Optional[Lease] = None) -> Counting:
        """Record that a Lease is gone, which was `last` before; its node may be alive.

        Who leaves says so in its Lease first. A Lease that others deleted still counts; one
        without an epoch does not, as agents that know none say nothing else when they leave.
        """
        known = self.leases.get(node)
        if known is None:
            return self
        known = replace(known, lease=last or known.lease, is_deleted=True)
        if known.counts and known.lease.epoch:
            return self._with(node, known)
        return replace(self, leases={n: c for n, c in self.leases.items() if n != node})

    def said_over(self, node: str, epoch: str) -> Counting:
        """Record that a node said it has no right any more in this epoch, and needs no promise.

        Neither in those before. One of another start does not take back what is known of this one.
        """
        known = self.leases.get(node)
        if known is None or epoch == known.over:
            return self
        if same_start(epoch, known.over):
            is_news = is_earlier(known.over, epoch)
        else:
            is_news = not known.is_over
        if not is_news:
            return self
        counting = self._with(node, known := replace(known, over=epoch))
        if not known.is_over:
            return counting
        promises = {n: until for n, until in self.promises.items() if n != node}
        return replace(counting, promises=promises)

    def ended(self, node: str, epoch: str, *, now: float) -> Counting:
        """Record that another observer believes the end of this epoch; a later renewal counts.

        It may not have reached those that promised that node to count it, as this observer did.
        """
        known = self.leases.get(node)
        if known is None or not known.counts or known.lease.epoch != epoch:
            return self
        if now < self.promises.get(node, now):
            return self
        return self._with(node, replace(known, is_ended=True))

    def promised(self, now: float) -> Tuple[Tuple[str, float], ...]:
        """Return whom this observer promised to count, each with the seconds that are left."""
        promises = sorted(self.promises.items())
        return tuple((node, until - now) for node, until in promises if now < until)

    def with_promised(self, promised: Iterable[Tuple[str, float]], *, now: float) -> Counting:
        """Record whom another observer promised to count, as it said before `now`.

        It may not have been reached when this observer came to believe the end of such a Lease, so
        that is to be found out again.
        """
        counting = self
        for node, left in promised:
            known = self.leases.get(node)
            if known is not None and (known.is_ended or now + left > known.until):
                until = max(known.until, now + left)
                again = replace(known, until=until, is_ended=False, found=Findings())
                counting = counting._with(node, again)
        return counting

    def has_right(self, node: str, *, seconds: float, now: float) -> Counting:
        """Record that a node, or one that promised it to count it, said for how long it may hold.

        They said so before `now`, so what they mean ends earlier than what is recorded. If its end
        is believed already, the node counts again: it was out of reach then.
        """
        known = self.heard(node, now=now).leases.get(node)
        if known is None:
            return self
        return self._with(node, replace(known, until=max(known.until, now + seconds)))

    def heard(self, node: str, *, now: float) -> Counting:
        """Record that a node lives, so the end of its Lease, if believed, is found out again.

        It was not reached then, and may hold as others, not reached either, promised to count it.
        """
        known = self.leases.get(node)
        if known is None or not known.is_ended:
            return self
        until = max(known.until, now)
        return self._with(node, replace(known, until=until, is_ended=False, found=Findings()))

    def found(self, node: str, check: Check, *, asked_at: float) -> Counting:
        """Record the outcome of a check that leaves the end of a Lease possible."""
        known = self.leases.get(node)
        if known is None:
            return self
        named = {Check.ASK_NODE: "silent_at", Check.READ: "read_at", Check.ASK_OTHERS: "others_at"}
        changed = replace(known.found, **{named[check]: asked_at})
        return self._with(node, replace(known, found=changed))

    def promise(self, node: str, *, until: float, listed: bool = True) -> Optional[Counting]:
        """Promise a node to count it until then; None if it does not count any more.

        `listed`: whether this observer has listed the Leases. Before that it counts everybody.
        """
        known = self.leases.get(node)
        if listed if known is None else not known.counts:
            return None
        until = max(until, self.promises.get(node, until))
        promises, leases = {**self.promises, node: until}, self.leases
        if known is not None:
            leases = {**leases, node: replace(known, until=max(known.until, until))}
        return replace(self, leases=leases, promises=promises)

    def _next_check(self, counted: CountedLease, now: float) -> Optional[Check]:
        if now < counted.until - ASKED_BEFORE:
            return None
        return counted.next_check(now, is_near=self.is_near(counted.lease))

    def _ends(self, counted: CountedLease, now: float) -> bool:
        return counted.counts and now >= counted.until and not self._next_check(counted, now)

    def at(self, now: float) -> Counting:
        """Return the Leases at this time; what has ended and is deleted is forgotten."""
        leases = {
            node: replace(counted, is_ended=True) if self._ends(counted, now) else counted
            for node, counted in self.leases.items()
        }
        leases = {n: c for n, c in leases.items() if c.counts or not c.is_deleted}
        promises = {n: until for n, until in self.promises.items() if now < until}
        if leases == self.leases and promises == self.promises:
            return self
        return replace(self, leases=leases, promises=promises)

    def without_deleted(self, now: float) -> Counting:
        """Forget the Leases that are gone and were not renewed in time; for who checks no ends."""
        leases = {n: c for n, c in self.leases.items() if now < c.until or not c.is_deleted}
        return self if len(leases) == len(self.leases) else replace(self, leases=leases)

    def checks(self, now: float) -> Dict[str, Check]:
        """Return what is to be found out now about the ends of Leases, by node."""
        found = ((n, self._next_check(c, now)) for n, c in self.leases.items())
        return {node: check for node, check in found if check is not None}

    def ends(self) -> Dict[str, str]:
        """Return the epochs that count no more for this observer, by near node."""
        gone = {n: c.lease for n, c in self.leases.items() if c.lease.epoch and not c.counts}
        return {n: lease.epoch for n, lease in gone.items() if self.is_near(lease)}

    def next_at(self, now: float) -> Optional[float]:
        """Return when the next Lease is to be checked if nothing else is seen."""
        moments = (
            moment
            for counted in self.leases.values()
            for moment in (
                (counted.until - ASKED_BEFORE, counted.until)
                if counted.counts
                else (counted.found.silent_at + ASKED_AGAIN,) * counted.is_stranger
            )
        )
        return min((moment for moment in moments if moment > now), default=None)

    def is_live(self, node: str) -> bool:
        """Whether a node takes part in elections."""
        counted = self.leases.get(node)
        return counted is not None and counted.counts

    def counted(self) -> Tuple[Lease, ...]:
        """Return the Leases that count, of the nodes that take part in elections."""
        return tuple(counted.lease for counted in self.leases.values() if counted.counts)

    def renewed(self, now: float) -> Iterator[Lease]:
        """Yield the Leases that were renewed in time, by name; for who does not check ends."""
        for _node, counted in sorted(self.leases.items()):
            if counted.counts and now < counted.until:
                yield counted.lease

    def epochs(self) -> Dict[str, str]:
        """Return the epochs of the nodes that count and have one."""
        return {n: c.lease.epoch for n, c in self.leases.items() if c.counts and c.lease.epoch}
