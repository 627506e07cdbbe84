# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Renews the node's own Lease: the only writer of the Lease and of the hold deadline.

The renewal state machine in the core decides what the result of a renewal means. While renewals are
in doubt, the outage keeper asks the peers and extends the hold deadline by their answers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from purelb.core.election.leases import HoldDeadline, Renewal, RenewalState
from purelb.core.election.peers import FRESHNESS, PATIENCE, Attempts
from purelb.core.model import Address, Lease, Network, Outage
from purelb.core.node.conflicts import FoundDuplicates
from purelb.core.settings import LeaseTiming
from purelb_agent.kube.client import ApiError, Kube
from purelb_agent.kube.store import NodeStore
from purelb_agent.lease.metrics import LeaseMetrics
from purelb_agent.lease.own_lease import Identity, OwnLease
from purelb_agent.runtime import clock, log
from purelb_agent.runtime.wakeup import Wakeup

# A flapping interface causes one write of the Lease, not one per change.
SUBNET_DEBOUNCE = 2.0
# A host that answers for many addresses causes one write for all that are found in this time.
DUPLICATE_DEBOUNCE = 0.5
_POLL = 0.05
# Minimum pause between attempts that others request. With a longer one, a question could reach a
# healthy node when its last renewal is no longer fresh and the next one would end too late.
_MIN_PAUSE = FRESHNESS
# How long after its next attempt a peer's renewal may be seen here.
_MARGIN = 0.5


class Renewer:
    """The own Lease, from its first write to its deletion.

    `key_ids` returns the ids of the keys for questions between peers: with them in the Lease, a
    rotation knows which keys each agent has read.
    """

    def __init__(
        self,
        kube: Kube,
        store: NodeStore,
        identity: Identity,
        *,
        timing: LeaseTiming,
        metrics: LeaseMetrics,
        key_ids: Callable[[], tuple[str, ...]],
    ) -> None:
        self._lease = OwnLease(kube, identity, seconds=timing.retry_period)
        self._store = store
        self._identity = identity
        self._timing = timing
        self._metrics = metrics
        self._key_ids = key_ids
        self._renewal = Renewal(timing)
        self._published = self._renewal.state
        self._subnets: tuple[Network, ...] | None = None
        self._written: tuple[Network, ...] | None = None
        self._write_due = math.inf
        self._wakeup = Wakeup()
        # Set while renewals fail or hang and this node still may hold addresses.
        self.in_doubt = asyncio.Event()
        self._attempts = Attempts()
        self._attempted = asyncio.Event()
        self._outage: Outage | None = None
        self._duplicates = FoundDuplicates()

    @property
    def node(self) -> str:
        """Name of this node."""
        return self._identity.node

    def set_subnets(self, subnets: tuple[Network, ...], *, at_once: bool) -> None:
        """Set the subnets in the Lease; a change is written at once or after SUBNET_DEBOUNCE."""
        if subnets == self._subnets:
            return
        if self._subnets is not None:
            log.info("subnetsChanged", subnets=",".join(map(str, subnets)))
        self._subnets = subnets
        changed = self._written is not None and subnets != self._written
        delay = 0.0 if at_once else SUBNET_DEBOUNCE
        self._write_due = clock.now() + delay if changed else math.inf
        self._wakeup.notify()

    def list_duplicate(self, address: Address) -> None:
        """List an address in the Lease that another host has; written soon."""
        self._duplicates = self._duplicates.with_found(address, now=clock.now())
        self._write_due = min(self._write_due, clock.now() + DUPLICATE_DEBOUNCE)
        self._wakeup.notify()

    async def run(self) -> None:
        """Renew the Lease until cancelled; after `leave`, do nothing."""
        await self._wait_until_ready()
        while self._renewal.state is not RenewalState.RELEASED:
            self._renewal = self._renewal.at(clock.now())
            self._publish()
            if clock.now() >= self._next_write:
                if self._renewal.state is not RenewalState.LOST or await self._rejoin():
                    await self._attempt()
            else:
                await self._rest()
        await asyncio.Event().wait()  # a task that ends would end the process

    @property
    def _next_write(self) -> float:
        """When to write the Lease: a change of it is no reason to hurry where writes fail."""
        is_lost = self._renewal.state is RenewalState.LOST
        return min(self._renewal.next_attempt, math.inf if is_lost else self._write_due)

    async def _wait_until_ready(self) -> None:
        """Wait until all tables are listed and every other Lease is known to be live or expired.

        Peers release addresses when they see the first Lease of this node. By then it must be able
        to take them at once, and must agree with its peers which nodes are live.
        """
        while self._subnets is None:  # set by the first full cycle of the reconcile loop
            await self._wakeup.wait()
        # Polls, as the Leases settle by time as well as by news.
        while self._settles_at() is not None:  # noqa: ASYNC110
            await asyncio.sleep(_POLL)

    def _settles_at(self) -> float | None:
        others = self._store.leases.membership.forget(self._identity.node)
        return others.settles_at(clock.now())

    async def _rest(self) -> None:
        wake = [self._next_write]
        deadline = self._renewal.hold_deadline
        if deadline is not None:
            wake.append(deadline.announce_until)
        await self._wakeup.wait(until=min(wake))

    async def _rejoin(self) -> bool:
        """Learn which nodes are live before this node takes part again; False if that failed.

        While this node could not reach the API, its peers' Leases expired for it, so it would take
        every address. Peers that could not reach the API either get the time to renew.
        """
        asked_at = clock.now()
        try:
            listed = await self._lease.list_all()
        except ApiError as error:
            # Without a renewal: the API may recover just now, and the renewal would succeed.
            self._failed(error)
            return False
        self._store.leases.replace(listed, asked_at=asked_at)
        patience = self._timing.retry_period + _MARGIN
        self._store.leases.rejoin(since=self._renewal.sent_at, patience=patience)
        # Polls, as the Leases settle by time as well as by news.
        while self._settles_at() is not None:  # noqa: ASYNC110
            await asyncio.sleep(_POLL)
        return True

    async def _attempt(self) -> None:
        sent_at, lease = clock.now(), self._wanted()
        self._write_due = math.inf
        self._attempts = replace(self._attempts, began_at=sent_at)
        # An attempt that hangs counts as doubtful too: there is no time to wait for its timeout.
        hang_timer = asyncio.get_running_loop().call_later(PATIENCE, self._doubt)
        try:
            async with asyncio.timeout(self._timing.retry_period):
                body = await self._lease.write(lease)
        except (ApiError, TimeoutError) as error:
            self._failed(error)
        else:
            self._succeeded(body, lease.subnets, sent_at)
        finally:
            hang_timer.cancel()
            self._attempted.set()
            self._attempted = asyncio.Event()

    def _wanted(self) -> Lease:
        return Lease(
            node=self._identity.node,
            subnets=self._subnets or (),
            instance=self._identity.instance,
            holder=self._identity.node,
            duration=self._timing.duration,
            renew_time=clock.wall_time(),
            outage=self._outage,
            peer_keys=self._key_ids(),
            duplicates=self._duplicates.at(clock.now()),
        )

    def _succeeded(
        self, body: dict[str, Any], written: tuple[Network, ...], sent_at: float
    ) -> None:
        if self._renewal.state is RenewalState.RELEASED:
            return
        self._attempts = replace(self._attempts, good_sent_at=sent_at, began_at=None)
        self._written = written
        was_holding = self._renewal.state is RenewalState.HOLDING
        if was_holding and clock.now() >= self._renewal.sent_at + self._timing.renew_deadline:
            self._note_outage()
        used = None
        if self._renewal.hold_deadline is not None:
            used = (clock.now() - self._renewal.sent_at) / self._timing.renew_deadline
        self._renewal = self._renewal.succeeded(sent_at, clock.now())
        self._metrics.count_renewal(used)
        self.in_doubt.clear()
        # At once, not only through the watch: the own Lease is valid as soon as it is written.
        self._store.leases.put(body)
        if was_holding:
            self._store.leases.resume_expiry()
        else:
            self._store.leases.unfreeze()
        self._publish()

    def _note_outage(self) -> None:
        """Record that addresses were kept through an outage; written to the Lease at once."""
        end = clock.wall_time()
        self._outage = Outage(end - (clock.now() - self._renewal.sent_at), end)
        self._write_due = clock.now()

    def _failed(self, error: Exception) -> None:
        if self._renewal.state is RenewalState.RELEASED:
            return
        now = clock.now()
        self._attempts = replace(self._attempts, failed_at=now, began_at=None)
        is_first = self._renewal.failures == 0
        self._renewal = self._renewal.failed(now)
        self._metrics.count_failure()
        text = str(error) or f"no answer within {self._timing.retry_period:g} s"
        if is_first:
            log.warning("leaseRenewalFailed", node=self.node, error=text)
        self._doubt()
        self._publish()

    def _doubt(self) -> None:
        """Put renewals in doubt: a node that cannot renew cannot see its peers renew either."""
        if self._renewal.hold_deadline is not None:
            self.in_doubt.set()
            self._store.leases.freeze()

    def extend(self, extension: HoldDeadline) -> None:
        """Extend the hold deadline, as the peers cannot renew either."""
        self._renewal = self._renewal.extended(extension)
        self._publish()

    def renew_soon(self) -> None:
        """Try to renew now, but at least _MIN_PAUSE after the previous attempt."""
        began = self._attempts.began_at or max(
            self._attempts.good_sent_at, self._attempts.failed_at
        )
        self._renewal = self._renewal.sooner(max(clock.now(), began + _MIN_PAUSE))
        self._wakeup.notify()

    def ensure_current(self) -> None:
        """Renew soon if the Lease was deleted or its subnets were changed by others."""
        seen = self._store.leases.membership.observed.get(self.node)
        is_intact = seen is not None and seen.lease.subnets == self._written
        if self._renewal.state is RenewalState.HELD and not is_intact:
            self.renew_soon()

    async def could_renew(self) -> bool | None:
        """Whether this node can renew its Lease now, by an attempt that it makes or joins."""
        if self._renewal.hold_deadline is None:
            return await self._reaches_api()
        asked_at = clock.now()
        while True:
            known = self._attempts.could_renew(asked_at=asked_at, now=clock.now())
            if known is not None:
                return known
            if self._attempts.began_at is None:
                self.renew_soon()
            await self._attempted.wait()

    async def _reaches_api(self) -> bool:
        try:
            await self._lease.read(PATIENCE)
        except ApiError:
            return False
        return True

    @property
    def outage(self) -> Outage | None:
        """The last outage that this node kept its addresses through; None if there was none."""
        return self._outage

    def _publish(self) -> None:
        state = self._renewal.state
        self._store.set_hold_deadline(self._renewal.hold_deadline)
        if self._renewal.hold_deadline is None:
            self.in_doubt.clear()
        if state is not self._published:
            log.info("leaseState", node=self.node, state=state.value)
            self._published = state
        self._metrics.show(
            is_healthy=self._renewal.hold_deadline is not None,
            is_holding=state is RenewalState.HOLDING,
        )

    def leave(self) -> None:
        """Leave the election: from now on this node may hold no address."""
        self._renewal = self._renewal.stopped()
        self._wakeup.notify()
        self._publish()

    async def delete(self) -> None:
        """Delete the Lease if this pod still holds it, so that peers take over at once."""
        await self._lease.delete()
