# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The table of the nodes' Leases, and until when each of them counts for this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from purelb.core.allocation.duplicates import listed_duplicates
from purelb.core.api import codec
from purelb.core.holding.counting import Counting
from purelb.core.model import Address, Lease, NodeAddress
from purelb_agent.kube.client import Json
from purelb_agent.runtime import clock
from purelb_agent.runtime.wakeup import Wakeup


def _content(lease: Lease) -> tuple[object, ...]:
    return (
        lease.subnets,
        lease.deprecated,
        lease.duplicates,
        lease.mistaken,
        lease.macs,
        lease.node_uid,
        lease.rules,
        lease.service_proxy,
        lease.epoch,
        lease.mail,
        lease.outside,
    )


def _of_own(lease: Lease) -> tuple[object, ...]:
    """Return what the own Lease may change, also by others; its agent knows the rest."""
    return lease.epoch, lease.subnets, lease.duplicates, lease.service_proxy, lease.outside


class Counted(Protocol):
    """Has the Leases of the other nodes, as this process counts them."""

    counting: Counting


@dataclass
class OnlyCounted:
    """Has nothing else: for a process that is no node."""

    counting: Counting = field(default_factory=Counting)


class LeaseTable:
    """The Leases of all nodes: that of `node`, and those of the others as `counted` has them.

    `on_change` is called when an election or an allocation may have another result. `own`: the
    Lease of `node` as a watch or a list has shown it. `seen` wakes who checks the ends of Leases.
    `watch_anew` begins with another list; who builds the watcher sets it.
    """

    def __init__(
        self, on_change: Callable[[], None], *, node: str = "", counted: Counted | None = None
    ) -> None:
        self.own: Lease | None = None
        self._counted = counted or OnlyCounted()
        self.listed = False
        self.seen = Wakeup()
        self.watch_anew: Callable[[], None] = lambda: None
        self._node = node
        self._on_change = on_change

    @property
    def counting(self) -> Counting:
        """The Leases of the other nodes."""
        return self._counted.counting

    @counting.setter
    def counting(self, counting: Counting) -> None:
        self._counted.counting = counting

    def replace(self, items: list[Json], *, asked_at: float) -> None:  # noqa: ARG002
        """Replace all Leases by those of a complete list."""
        leases = {lease.node: lease for lease in map(codec.lease_of, items) if lease is not None}
        self._see_own(leases.pop(self._node, None))
        for node in self.counting.leases.keys() - leases.keys():
            self.counting = self.counting.deleted(node)
        for lease in leases.values():
            self.counting = self.counting.observe(lease, now=clock.now())
        self.listed = True
        self.seen.notify()
        self._on_change()

    def put(self, item: Json) -> None:
        """Add or replace a Lease; reports a change only if the Lease may change an election."""
        lease = codec.lease_of(item)
        if lease is None:
            return
        if lease.node == self._node:
            is_news = self.own is None or _of_own(self.own) != _of_own(lease)
            self._see_own(lease)
        else:
            now, known = clock.now(), self.counting.leases.get(lease.node)
            self.counting = self.counting.observe(lease, now=now)
            counts = self.counting.leases[lease.node].counts
            # Who checks no ends took a Lease that was not renewed in time for ended.
            is_news = known is None or known.counts != counts or known.until <= now
            if is_news:
                self.seen.notify()
            is_news = is_news or known is None or _content(known.lease) != _content(lease)
        if is_news:
            self._on_change()

    def _see_own(self, lease: Lease | None) -> None:
        self.own = lease
        counting = self.counting.seen_from(lease.subnets if lease else None)
        if lease is not None:
            counting = counting.written(lease.written, now=clock.now())
        self.counting = counting
        self.seen.notify()

    def drop(self, item: Json) -> None:
        """Remove a deleted Lease."""
        lease = codec.lease_of(item)
        if lease is None:
            return
        if lease.node == self._node:
            self._see_own(None)
            self._on_change()
        else:
            self.change(self.counting.deleted(lease.node, last=lease))

    def change(self, counting: Counting) -> None:
        """Take what was found out about Leases by other ways."""
        counting = counting.at(clock.now())
        if counting is self.counting:
            return
        before = {n for n, c in self.counting.leases.items() if c.counts}
        self.counting = counting
        self.seen.notify()
        if before != {n for n, c in counting.leases.items() if c.counts}:
            self._on_change()

    def macs(self) -> dict[bytes, str]:
        """Return the other nodes by their MAC addresses; also those that are not live."""
        leases = self.counting.leases.items()
        return {mac: node for node, counted in leases for mac in counted.lease.macs}

    def mistaken(self) -> dict[str, tuple[NodeAddress, ...]]:
        """Return what the Leases of live nodes say of addresses in the status of Nodes."""
        counted = self.counting.leases.items()
        return {node: each.lease.mistaken for node, each in counted if each.counts}

    def duplicates(self) -> frozenset[Address]:
        """Return what Leases list as the addresses of other hosts, the own and ended ones, too."""
        others = (counted.lease for counted in self.counting.leases.values())
        return frozenset(listed_duplicates(lease for lease in (self.own, *others) if lease))

    def outside(self) -> frozenset[str]:
        """Return what Leases say of addresses in no pool, the own one from before a start, too."""
        others = (counted.lease for counted in self.counting.leases.values())
        return frozenset(lease.outside for lease in (self.own, *others) if lease)
