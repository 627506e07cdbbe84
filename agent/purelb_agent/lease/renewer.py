# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the node's own Lease: the only writer of it, and of the right that it gives.

What the answers to its renewals mean is decided by the renewal machine in the core. While it is in
doubt whether the API answers, others ask the peers, and extend the right by what they say.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

from purelb.core.election.leases import HoldDeadline, Renewal, RenewalState
from purelb.core.election.peers import FRESHNESS, PATIENCE, Attempts
from purelb.core.model import Lease, Network, Outage
from purelb.core.settings import LeaseTiming
from purelb_agent.kube.client import ApiError, Kube
from purelb_agent.kube.store import NodeStore
from purelb_agent.lease.metrics import LeaseMetrics
from purelb_agent.lease.own_lease import Identity, OwnLease
from purelb_agent.runtime import clock, log

# An interface that flaps makes one write of the Lease, not one for each flap.
SUBNET_DEBOUNCE = 2.0
_POLL = 0.05
# Attempts that others ask for come no closer than this. With a longer pause a healthy node could be
# asked when its last renewal is no longer fresh and the next would end too late for an answer.
_SHORTEST_PAUSE = FRESHNESS
# How much later than its next attempt a peer's renewal may be seen here.
_MARGIN = 0.5


class Renewer:
    """The own Lease, from its first write to its deletion."""

    def __init__(
        self,
        kube: Kube,
        store: NodeStore,
        identity: Identity,
        *,
        timing: LeaseTiming,
        metrics: LeaseMetrics,
    ) -> None:
        self._lease = OwnLease(kube, identity, seconds=timing.retry_period)
        self._store = store
        self._identity = identity
        self._timing = timing
        self._metrics = metrics
        self._renewal = Renewal(timing)
        self._published = self._renewal.state
        self._subnets: tuple[Network, ...] | None = None
        self._written: tuple[Network, ...] | None = None
        self._subnets_due = math.inf
        self._kick = asyncio.Event()
        # Set while renewals fail or hang and there is still a right to lose.
        self.in_doubt = asyncio.Event()
        self._attempts = Attempts()
        self._attempted = asyncio.Event()
        self._outage: Outage | None = None

    @property
    def node(self) -> str:
        """Name of the own node."""
        return self._identity.node

    def set_subnets(self, subnets: tuple[Network, ...], *, at_once: bool) -> None:
        """Say which subnets the Lease is to carry; a change is written at once or after a rest."""
        if subnets == self._subnets:
            return
        if self._subnets is not None:
            log.info("subnetsChanged", subnets=",".join(map(str, subnets)))
        self._subnets = subnets
        changed = self._written is not None and subnets != self._written
        rest = 0.0 if at_once else SUBNET_DEBOUNCE
        self._subnets_due = clock.now() + rest if changed else math.inf
        self._kick.set()

    async def run(self) -> None:
        """Renew until stopped."""
        await self._wait_until_ready()
        while self._renewal.state is not RenewalState.RELEASED:
            self._renewal = self._renewal.at(clock.now())
            self._publish()
            if clock.now() >= min(self._renewal.next_attempt, self._subnets_due):
                if self._renewal.state is not RenewalState.LOST or await self._rejoin():
                    await self._attempt()
            else:
                await self._rest()
        await asyncio.Event().wait()  # the guard takes a task that ends for a fault

    async def _wait_until_ready(self) -> None:
        """Hold back the first Lease until everything is listed and every other Lease is judged.

        Peers let go of addresses when they see the Lease, so by then this node must be able to
        take them at once, and must agree with them who else is alive.
        """
        while self._subnets is None:  # which the loop finds out after everything is listed
            self._kick.clear()
            await self._kick.wait()
        # It settles by time as well as by news.
        while self._settles_at() is not None:  # noqa: ASYNC110
            await asyncio.sleep(_POLL)

    def _settles_at(self) -> float | None:
        others = self._store.leases.membership.forget(self._identity.node)
        return others.settles_at(clock.now())

    async def _rest(self) -> None:
        now = clock.now()
        wake = [self._renewal.next_attempt, self._subnets_due]
        right = self._renewal.right
        if right is not None:
            wake.append(right.announce_until)
        self._kick.clear()
        try:
            async with asyncio.timeout(max(0.0, min(wake) - now)):
                await self._kick.wait()
        except TimeoutError:
            return

    async def _rejoin(self) -> bool:
        """Find out who is there, before taking part again; whether that is known.

        While this node saw nothing, its peers' Leases ended for it: it would take every address for
        its own. Who could not see either gets the time to renew.
        """
        asked_at = clock.now()
        try:
            listed = await self._lease.list_all()
        except ApiError as problem:
            # No renewal now: the API may come back this moment, and it would succeed.
            self._failed(problem)
            return False
        self._store.leases.replace(listed, asked_at=asked_at)
        patience = self._timing.retry_period + _MARGIN
        self._store.leases.rejoin(since=self._renewal.sent_at, patience=patience)
        # It settles by time as well as by news.
        while self._settles_at() is not None:  # noqa: ASYNC110
            await asyncio.sleep(_POLL)
        return True

    async def _attempt(self) -> None:
        sent_at, lease = clock.now(), self._wanted()
        self._subnets_due = math.inf
        self._attempts = replace(self._attempts, began_at=sent_at)
        # One that hangs is as doubtful as one that failed: there is no time to wait for its end.
        hanging = asyncio.get_running_loop().call_later(PATIENCE, self._doubt)
        try:
            async with asyncio.timeout(self._timing.retry_period):
                body = await self._lease.write(lease)
        except (ApiError, TimeoutError) as problem:
            self._failed(problem)
        else:
            self._succeeded(body, lease.subnets, sent_at)
        finally:
            hanging.cancel()
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
        if self._renewal.right is not None:
            used = (clock.now() - self._renewal.sent_at) / self._timing.renew_deadline
        self._renewal = self._renewal.succeeded(sent_at, clock.now())
        self._metrics.count_renewal(used)
        self.in_doubt.clear()
        # Not only through the watch: the own Lease counts from the moment that it is written.
        self._store.leases.put(body)
        if was_holding:
            self._store.leases.resume_expiry()
        else:
            self._store.leases.unfreeze()
        self._publish()

    def _note_outage(self) -> None:
        """Remember that addresses outlasted their right, in the Lease too, and there at once."""
        end = clock.wall_time()
        self._outage = Outage(end - (clock.now() - self._renewal.sent_at), end)
        self._subnets_due = clock.now()

    def _failed(self, problem: Exception) -> None:
        if self._renewal.state is RenewalState.RELEASED:
            return
        now = clock.now()
        self._attempts = replace(self._attempts, failed_at=now, began_at=None)
        is_first = self._renewal.failures == 0
        self._renewal = self._renewal.failed(now)
        self._metrics.count_failure()
        text = str(problem) or f"no answer within {self._timing.retry_period:g} s"
        if is_first:
            log.warning("leaseRenewalFailed", node=self.node, error=text)
        self._doubt()
        self._publish()

    def _doubt(self) -> None:
        """Who cannot renew cannot know either who else could."""
        if self._renewal.right is not None:
            self.in_doubt.set()
            self._store.leases.freeze()

    def extend(self, extension: HoldDeadline) -> None:
        """Keep the right for longer, as the peers cannot renew either."""
        self._renewal = self._renewal.extended(extension)
        self._publish()

    def renew_soon(self) -> None:
        """Try to renew now, but not again and again."""
        began = self._attempts.began_at or max(
            self._attempts.good_sent_at, self._attempts.failed_at
        )
        self._renewal = self._renewal.sooner(max(clock.now(), began + _SHORTEST_PAUSE))
        self._kick.set()

    def ensure_current(self) -> None:
        """Write the Lease at once if it is gone, or carries other subnets than were written."""
        seen = self._store.leases.membership.sightings.get(self.node)
        is_whole = seen is not None and seen.lease.subnets == self._written
        if self._renewal.state is RenewalState.HELD and not is_whole:
            self.renew_soon()

    async def could_renew(self) -> bool | None:
        """Whether this node could renew its Lease just now, by an attempt it makes or joins."""
        if self._renewal.right is None:
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
        """The last outage that this node held its addresses through."""
        return self._outage

    def _publish(self) -> None:
        state = self._renewal.state
        self._store.grant(self._renewal.right)
        if self._renewal.right is None:
            self.in_doubt.clear()
        if state is not self._published:
            log.info("leaseState", node=self.node, state=state.value)
            self._published = state
        self._metrics.show(
            is_healthy=self._renewal.right is not None,
            is_holding=state is RenewalState.HOLDING,
        )

    def leave(self) -> None:
        """Leave the election: from here on this node has no right to any address."""
        self._renewal = self._renewal.stopped()
        self._kick.set()
        self._publish()

    async def delete(self) -> None:
        """Delete the Lease if it is still this pod's, so that peers take over at once."""
        await self._lease.delete()
