# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The table of the nodes' Leases, and when this process saw each of them renewed."""

from __future__ import annotations

from collections.abc import Callable

from purelb.core.api import codec
from purelb.core.election.leases import Membership
from purelb.core.model import Lease
from purelb_agent.kube.client import Json
from purelb_agent.runtime import clock


def _content(lease: Lease) -> tuple[object, ...]:
    return lease.subnets, lease.duplicates


class LeaseTable:
    """The Leases of all nodes, as one Membership.

    `on_change` is called when an election or an allocation may have another result.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.membership = Membership()
        self.listed = False
        self._on_change = on_change

    def replace(self, items: list[Json], *, asked_at: float) -> None:
        """Replace all Leases by those of a complete list, requested at `asked_at`."""
        leases = [lease for lease in map(codec.lease_of, items) if lease is not None]
        self.membership = self.membership.listed(
            leases, asked_at=asked_at, now=clock.now(), wall_time=clock.wall_time()
        )
        self.listed = True
        self._on_change()

    def put(self, item: Json) -> None:
        """Add or replace a Lease; reports a change only if the Lease may change an election."""
        lease = codec.lease_of(item)
        if lease is None:
            return
        known = self.membership.observed.get(lease.node)
        if known is not None and codec.is_older(lease.version, known.lease.version):
            return
        was_live = known is not None and clock.now() < known.expires_at
        self.membership = self.membership.observe(
            lease, now=clock.now(), wall_time=clock.wall_time()
        )
        if not was_live or known is None or _content(known.lease) != _content(lease):
            self._on_change()

    def drop(self, item: Json) -> None:
        """Remove a deleted Lease."""
        lease = codec.lease_of(item)
        if lease is None:
            return
        known = self.membership.observed.get(lease.node)
        # The renewer stores its own Lease as soon as it is written, so a newer one may be known.
        if known is not None and not codec.is_older(lease.version, known.lease.version):
            self.membership = self.membership.forget(lease.node)
            self._on_change()

    def promise(self, node: str, *, seconds: float) -> bool:
        """Treat a node's Lease as valid for this time, even if no renewal is seen.

        Returns False for a Lease that has already expired here; it stays expired.
        """
        # Read once: the Lease may expire between two readings of the clock.
        now = clock.now()
        if not self.membership.is_live(node, now):
            return False
        self.membership = self.membership.promise(node, until=now + seconds, now=now)
        return True

    def freeze(self) -> None:
        """Let no Lease expire: a renewal may have happened without being seen here."""
        self.membership = self.membership.freeze(clock.now())

    def unfreeze(self) -> None:
        """Let Leases expire again as if they had not been frozen."""
        if self.membership.frozen_at is not None:
            self.membership = self.membership.unfreeze()
            self._on_change()

    def resume_expiry(self) -> None:
        """Let Leases expire again, each after at least a full duration."""
        self.membership = self.membership.resume_expiry(clock.now())
        self._on_change()

    def rejoin(self, *, since: float, patience: float) -> None:
        """Mark the Leases that expired since then as doubtful; see Membership.rejoin."""
        self.membership = self.membership.rejoin(since=since, now=clock.now(), patience=patience)
        self._on_change()
