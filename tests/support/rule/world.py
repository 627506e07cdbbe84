# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A few nodes that may hold one address, an API server, and what is wrong between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Self

from purelb.core.election.election import rank
from purelb.core.holding.holder import Holder
from purelb.core.model import Lease, Network
from tests.support.rule.records import ITS, VIP, Fault, Node, TwoHoldersError, Written

Subnets = Mapping[str, tuple[Network, ...]]

# A fault that lasts longer is there for good.
_FOR_GOOD = 500
_NOBODY: frozenset[str] = frozenset()


class World:
    """The state of all nodes and of the API server, and the faults at this time.

    `subnets`: those of each node; who is not named has that of the address.
    """

    def __init__(
        self, names: tuple[str, ...], starts_at: tuple[int, ...], subnets: Subnets
    ) -> None:
        self.now = 0
        self.names = names
        self.subnets = {name: subnets.get(name, (ITS,)) for name in names}
        self.nodes = {name: Node(name) for name in names}
        self.down = dict(zip(names, starts_at, strict=True))
        self.leases: dict[str, Lease] = {}
        self.tainted: frozenset[str] = _NOBODY
        self.log: list[Written] = []
        self.writes: tuple[tuple[int, Lease, Lease | None], ...] = ()
        self.faults: tuple[Fault, ...] = ()
        # Whether two nodes came to hold the address as they cannot know of each other: the limit.
        self.two_are_cut_off = False
        # And whether that has ever been.
        self.two_were_cut_off = False

    def copy(self) -> Self:
        """Return a world that continues from here by itself."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.nodes, twin.down = dict(self.nodes), dict(self.down)
        twin.leases, twin.log = dict(self.leases), list(self.log)
        return twin

    def holder(self, name: str) -> Holder:
        """Return the Holder of a node whose agent runs."""
        holder = self.nodes[name].holder
        assert holder is not None
        return holder

    def take(self, name: str, holder: Holder) -> Holder:
        """Take what an event made of a node's Holder."""
        if holder is not self.nodes[name].holder:
            self.change(name, holder=holder)
        return holder

    def change(self, name: str, **changes: object) -> Node:
        """Change what is known of a node."""
        self.nodes[name] = node = replace(self.nodes[name], **changes)  # type: ignore[arg-type]
        if changes.get("holds") and not self.two_are_cut_off:
            self._judge(node)
        return node

    def _judge(self, taker: Node) -> None:
        """Raise if another node holds the address that one puts, but for the one known limit."""
        for other in self.nodes.values():
            if other is taker or not other.holds:
                continue
            if not self._is_out_of_reach(other, taker):
                raise TwoHoldersError(
                    f"{other.name} and {taker.name} hold the address at {self.now}"
                )
            self.two_are_cut_off = self.two_were_cut_off = True

    def _is_out_of_reach(self, holder: Node, taker: Node) -> bool:
        """Whether a node holds by agreement, and the taker reaches no node that knows that.

        It reaches neither the holder nor any of those that promised to count it.
        """
        right = holder.right
        # What has ended by now it withdraws by its own step of this tick, which may be to come.
        if right is None or right.agreed is None or right.deadline(self.now - 1) is None:
            return False
        knowing = [holder.name] + [
            node.name
            for node in self.nodes.values()
            if node.holder is not None
            and self.now < node.holder.counting.promises.get(holder.name, 0)
        ]
        return not any(
            self.passes(taker.name, name) and self.passes(name, taker.name) for name in knowing
        )

    def has(self, kind: str, node: str, other: str = "") -> bool:
        """Whether a fault is in effect."""
        return any(f.kind == kind and f.node == node and f.other == other for f in self.faults)

    def runs(self, name: str) -> bool:
        """Whether a node's agent runs and is not frozen."""
        return self.nodes[name].holder is not None and not self.has("frozen", name)

    def passes(self, sender: str, receiver: str) -> bool:
        """Whether a message arrives."""
        return self.runs(receiver) and not self.has("mute", sender, receiver)

    def reaches_api(self, name: str) -> bool:
        """Whether requests of a node are answered."""
        return not self.has("cut", name)

    def store(self, lease: Lease) -> None:
        """Store a Lease."""
        self.leases[lease.node] = lease
        self.log.append(Written(lease.node, lease=lease))

    def delete(self, name: str) -> None:
        """Delete a Lease."""
        lease = self.leases.pop(name, None)
        if lease is not None:
            self.log.append(Written(name, lease=lease, is_deleted=True))

    def carry_out_writes(self) -> None:
        """Store what was slow; a write names the version that it changes, so it may be refused."""
        arrived = [write for write in self.writes if write[0] <= self.now]
        self.writes = tuple(write for write in self.writes if write[0] > self.now)
        for _at, lease, before in arrived:
            if self.leases.get(lease.node) == before:
                self.store(lease)

    def taint(self, name: str, *, is_tainted: bool) -> None:
        """Taint a Node, or take the taint away."""
        self.tainted = self.tainted | {name} if is_tainted else self.tainted - {name}
        self.log.append(Written(name, taint=is_tainted))

    def wants(self, name: str) -> bool:
        """Whether a node is to hold the address by its own plan."""
        node = self.nodes[name]
        right = node.right
        if right is None or right.deadline(self.now) is None:
            return False
        if ITS not in self.subnets[name]:
            return False
        candidates = {name, *self.covering(name)} - node.tainted
        return bool(candidates) and rank(candidates, VIP)[0] == name

    def covering(self, name: str) -> dict[str, str]:
        """Return the others that count for a node and are in the address's subnet, with epochs."""
        counting = self.holder(name).counting
        subnets = {n: c.lease.subnets for n, c in counting.leases.items()}
        return {n: epoch for n, epoch in counting.epochs().items() if ITS in subnets[n]}

    def winner(self) -> str:
        """Return the node that is to hold the address when all is well."""
        running = [name for name in self.names if self.runs(name) and name not in self.tainted]
        return rank([name for name in running if ITS in self.subnets[name]], VIP)[0]

    def holders(self) -> list[str]:
        """Return the nodes that hold the address."""
        return [node.name for node in self.nodes.values() if node.holds]

    def is_calm(self) -> bool:
        """Whether only renewals continue: all have met, and the winner holds the address."""
        passing = any(fault.until < _FOR_GOOD for fault in self.faults)
        if passing or self.writes or self.tainted:
            return False
        epochs = {n.name: n.right.epoch for n in self.nodes.values() if n.right is not None}
        return all(
            self._is_calm(node, epochs) for node in self.nodes.values()
        ) and self.holders() == [self.winner()]

    def _is_calm(self, node: Node, epochs: dict[str, str]) -> bool:
        holder, others = node.holder, {n: e for n, e in epochs.items() if n != node.name}
        if holder is None or holder.right.under_way or node.late or node.tainted:
            return False
        permissions, lease = holder.permissions, self.leases.get(node.name)
        return (
            holder.right.is_shown
            and not holder.right.is_in_doubt
            and holder.right.epoch == permissions.epoch
            and len(epochs) == len(self.names)
            and holder.counting.epochs() == others
            and {peer: pair.epoch for peer, pair in permissions.pairs.items()} == others
            and not permissions.asked
            and lease is not None
            and lease.mail == node.mail
        )

    def key(self) -> tuple[object, ...]:
        """Return what decides how this world continues."""
        return (self.now, self.faults, self.writes, self.two_are_cut_off, *self._keys())

    def _keys(self) -> Iterator[object]:
        for node in self.nodes.values():
            yield (
                node.starts, len(self.log) - node.read, node.tainted, node.holds,
                node.kernel_until, node.late, node.slow, node.mail, self.down[node.name],
            )  # fmt: skip
            if node.holder is not None:
                yield from _key_of(node.holder)
        yield tuple(self.leases.values())

    def end_faults(self) -> None:
        """End what lasts until now."""
        for fault in self.faults:
            if fault.until <= self.now and fault.kind == "tainted":
                self.taint(fault.node, is_tainted=False)
        self.faults = tuple(fault for fault in self.faults if self.now < fault.until)
        if len(self.holders()) <= 1:
            self.two_are_cut_off = False


def _key_of(holder: Holder) -> Iterator[object]:
    """Yield what decides how a Holder continues; that of pauses that are over does not matter."""
    permissions, talks = holder.permissions, holder.talks
    for c in holder.counting.leases.values():
        yield (
            c.lease.node, c.lease.epoch, c.lease.renew_time, c.lease.holder, c.until, c.over,
            c.is_deleted, c.is_ended, c.found,
        )  # fmt: skip
    yield (
        holder.right, tuple(holder.counting.promises.items()), permissions.epoch,
        tuple(permissions.pairs.items()), tuple(permissions.asked), holder.held,
        tuple(permissions.silent.items()), holder.over, tuple(holder.who_can.heard.items()),
        tuple(holder.who_can.told.items()), talks.waiting, tuple(talks.mailed.items()),
        tuple(talks.not_before.items()), tuple(talks.repeated.items()), tuple(talks.posted),
    )  # fmt: skip
