# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Who had each address when: the kernels' view and the hosts', complete, from a moment on.

A node that is paused or suspended is no holder meanwhile: it answers no host. Of an address that no
other node has, that is time without a holder. Two nodes with one address are a fault only where a
host talks with both: two sides of a segment that no host hears together need no exception that way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from purelb.core.model import Address
from simulation.cluster import Cluster
from simulation.member import Node
from simulation.node.addresses import Place
from simulation.node.hosts import Host
from simulation.time.timeline import MICROSECONDS

Holders = frozenset[str]
T = TypeVar("T")


class History:
    """The holders of each address at each moment since the history began."""

    def __init__(self, cluster: Cluster) -> None:
        self.began = cluster.timeline.now
        # Called with an address, and who had it before and has it now.
        self.changed: Callable[[Address, Holders, Holders], None] = lambda *_: None
        self._cluster = cluster
        self._changes: dict[Address, list[tuple[int, Holders]]] = {}
        # The nodes that answer the host which hears most of them.
        self._heard: dict[Address, list[tuple[int, Holders]]] = {}
        # Whether a host looks for it at a node that does not answer, although another one does.
        self._misled: dict[Address, list[tuple[int, bool]]] = {}
        for segment in cluster.segments:
            segment.paths.changed.append(self._listen)
            for host in segment.hosts:
                self.follow_host(host)
        for node in cluster.nodes.values():
            self.follow(node)
        for address in cluster.addresses():
            self.note(address)

    def follow(self, node: Node) -> None:
        """Follow the kernel of a node, also of one that joins later."""
        node.kernel.changed = partial(self._changed, node)
        # It stands while the machine answers no host.
        node.machine.monotonic.follow(self._note_all)

    def follow_host(self, host: Host) -> None:
        """Follow what a host knows, also of one that comes later."""
        host.changed.append(self._learned)

    def _changed(self, _node: Node, place: Place) -> None:
        self.note(place[1])

    def _note_all(self) -> None:
        for address in self._changes:
            self.note(address)

    def note(self, address: Address) -> None:
        """Follow an address from now on, if no node has had it yet."""
        now = self._cluster.timeline.now
        holders = frozenset(self._cluster.holders(address))
        changes = self._changes.setdefault(address, [])
        self.changed(address, changes[-1][1] if changes else frozenset(), holders)
        changes.append((now, holders))
        self._heard.setdefault(address, []).append((now, self._most_heard(address)))
        self._learned(address)

    def _listen(self) -> None:
        """Note what hosts hear from now on, as not the holders but the segment has changed."""
        now = self._cluster.timeline.now
        for address, heard in self._heard.items():
            heard.append((now, self._most_heard(address)))
            self._learned(address)

    def _learned(self, address: Address) -> None:
        is_misled = any(
            segment.misleads(host, address)
            for segment in self._cluster.segments
            for host in segment.hosts
        )
        self._misled.setdefault(address, []).append((self._cluster.timeline.now, is_misled))

    def _most_heard(self, address: Address) -> Holders:
        heard = (
            frozenset(segment.heard_by(host, address))
            for segment in self._cluster.segments
            for host in segment.hosts
        )
        return max(heard, key=len, default=frozenset())

    def spans(self, address: Address, since: float = 0.0) -> list[tuple[float, Holders]]:
        """Return how many seconds each set of holders lasted, in order, from `since` on.

        `since`: in seconds after the history began.
        """
        return self._lasted(self._changes.get(address, []), since)

    def heard(self, address: Address) -> list[tuple[float, Holders]]:
        """Return the same of the nodes that answer the host which hears most of them."""
        return self._lasted(self._heard.get(address, []), 0.0)

    def misled(self, address: Address) -> list[tuple[float, bool]]:
        """Return for how long a host did and did not look for an address at a wrong node.

        That is one that does not answer for it, although another one does.
        """
        return self._lasted(self._misled.get(address, []), 0.0)

    def _lasted(self, changes: list[tuple[int, T]], since: float) -> list[tuple[float, T]]:
        first = self.began + int(since * MICROSECONDS)
        if not changes:
            return []
        ends = [moment for moment, _seen in changes[1:]] + [self._cluster.timeline.now]
        return [
            ((end - max(moment, first)) / MICROSECONDS, seen)
            for (moment, seen), end in zip(changes, ends, strict=True)
            if end > max(moment, first)
        ]

    def twice(self, since: float = 0.0) -> float:
        """Return for how many seconds an address was on several nodes: the worst address."""
        return max((self._sum(a, since, many=True) for a in self._changes), default=0.0)

    def heard_twice(self, since: float = 0.0) -> float:
        """Return for how many seconds a host heard several nodes with an address: the worst one.

        Only those count that answer for it, and that hear the host as well.
        """
        lasted = (self._lasted(heard, since) for heard in self._heard.values())
        return max(
            (sum(seconds for seconds, h in spans if len(h) > 1) for spans in lasted), default=0.0
        )

    def unheld(self, since: float = 0.0) -> float:
        """Return for how many seconds an address of a Service was on no node: the worst address."""
        given = self._cluster.addresses()
        return max((self._sum(a, since, many=False) for a in given), default=0.0)

    def _sum(self, address: Address, since: float, *, many: bool) -> float:
        spans = self.spans(address, since)
        return sum(seconds for seconds, h in spans if (len(h) > 1 if many else not h))
