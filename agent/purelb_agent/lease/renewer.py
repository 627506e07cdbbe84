# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Renews the node's own Lease: the only writer of the Lease and of the hold deadline.

The core's Right decides what the result of a renewal means. While renewals are in doubt, the outage
keeper asks the peers and extends the hold deadline by their answers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from purelb.core.holding.outage import FRESHNESS, PATIENCE
from purelb.core.holding.right import Right, RightState
from purelb.core.model import Address, Lease, Network, NodeAddress, Outage
from purelb.core.node.conflicts import FoundDuplicates
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
# Minimum pause after a renewal before another one restores what others changed in the Lease.
_MIN_PAUSE = 0.5
# Renewals that may wait for their answers at a time.
_MOST_UNDER_WAY = 2
# How long after its renewal the watch must have shown the own Lease.
SHOWN_AFTER = 1.5
# A Lease has microseconds.
_ROUNDED = 0.001


@dataclass(frozen=True)
class Said:
    """What a node says in its Lease of itself and of others; see the fields of a Lease."""

    macs: tuple[bytes, ...] = ()
    answering: tuple[str, ...] = ()
    mistaken: tuple[NodeAddress, ...] = ()
    deprecated: tuple[Network, ...] = ()


@dataclass(frozen=True)
class _Attempt:
    """A renewal that was sent."""

    epoch: str
    subnets: tuple[Network, ...]
    sent_at: float
    wall_time: float


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
        metrics: LeaseMetrics,
        key_ids: Callable[[], tuple[str, ...]],
    ) -> None:
        self._timing = store.holder.right.timing
        self._lease = OwnLease(kube, identity, seconds=self._timing.renew_deadline)
        self._store = store
        self._identity = identity
        self._metrics = metrics
        self._key_ids = key_ids
        self._published = RightState.ABSENT
        self._next_attempt = -math.inf
        self._subnets: tuple[Network, ...] | None = None
        self._written: tuple[Network, ...] | None = None
        self._write_due = math.inf
        # Those that have no answer yet, and when another one is sent for all that.
        self._under_way: dict[_Attempt, asyncio.Task[None]] = {}
        self._again_at = math.inf
        self._wakeup = Wakeup()
        # Set while renewals fail, hang, or take so long that the next one may come too late.
        self.in_doubt = asyncio.Event()
        # Since when renewals were sent of which none has succeeded.
        self._failing_since: float | None = None
        self._reading: asyncio.Task[bool] | None = None
        self._outage: Outage | None = None
        # When the last renewal before an outage was sent, until it is noted.
        self._held_since: float | None = None
        self._duplicates = FoundDuplicates()
        self._said = Said()
        self._mail = ""
        # The last renewal that the watch has to show, and from when on it is late.
        self._renewed: tuple[float, float] | None = None

    @property
    def right(self) -> Right:
        """The right of this node at present."""
        return self._right.at(clock.now())

    @property
    def _right(self) -> Right:
        return self._store.holder.right

    @_right.setter
    def _right(self, right: Right) -> None:
        self._store.holder = replace(self._store.holder, right=right)

    def post(self, mail: str) -> None:
        """Write this into the Lease for agents that this node does not reach."""
        if mail != self._mail:
            self._mail = mail
            self._write_due = clock.now()
            self._wakeup.notify()

    def saw(self, own: Lease | None) -> None:
        """Take what the watch or a list shows of the own Lease."""
        if own is not None:
            self._right = self._right.shown(own.epoch)
        elif self._right.is_shown:
            self._right = self._right.deleted()
            self.renew_soon()

    @property
    def node(self) -> str:
        """Name of this node."""
        return self._identity.node

    def look_at_clock(self) -> None:
        """Do what has become due while the machine slept: the event loop's timers stood still."""
        self._wakeup.notify()

    def set_subnets(self, subnets: tuple[Network, ...], *, at_once: bool) -> None:
        """Set the subnets in the Lease; a change is written at once or after SUBNET_DEBOUNCE."""
        if subnets == self._subnets:
            return
        if self._subnets is not None:
            log.info("subnetsChanged", subnets=",".join(map(str, subnets)))
        self._subnets = subnets
        latest = next((sent.subnets for sent in reversed(self._under_way)), self._written)
        changed = latest is not None and subnets != latest
        delay = 0.0 if at_once else SUBNET_DEBOUNCE
        self._write_due = clock.now() + delay if changed else math.inf
        self._wakeup.notify()

    def list_duplicate(self, address: Address) -> None:
        """List an address in the Lease that another host has; written soon."""
        self._duplicates = self._duplicates.with_found(address, now=clock.now())
        self._write_due = min(self._write_due, clock.now() + DUPLICATE_DEBOUNCE)
        self._wakeup.notify()

    def say(self, said: Said) -> None:
        """Say in the Lease what this node knows of itself and others; written soon."""
        if said != self._said:
            self._said = said
            self._write_due = min(self._write_due, clock.now() + DUPLICATE_DEBOUNCE)
            self._wakeup.notify()

    async def run(self) -> None:
        """Renew the Lease until cancelled; after `leave`, do nothing."""
        while self._subnets is None:  # set by the first full cycle of the reconcile loop
            await self._wakeup.wait()
        async with asyncio.TaskGroup() as group:
            while not self._right.is_released:
                self._right = self._right.at(clock.now())
                self.publish()
                if clock.now() >= self._next_write:
                    self._send(group)
                else:
                    await self._rest()
            await asyncio.Event().wait()  # a task that ends would end the process

    @property
    def _is_lost(self) -> bool:
        return self._right.state(clock.now()) is RightState.LOST

    @property
    def _next_write(self) -> float:
        """When to write the Lease: a change of it is no reason to hurry where writes fail."""
        if self._under_way:
            return self._again_at if len(self._under_way) < _MOST_UNDER_WAY else math.inf
        return min(self._next_attempt, math.inf if self._is_lost else self._write_due)

    def _check_watch(self) -> None:
        """Restart the watch if it does not show what was written: it shows nothing else then."""
        if self._renewed is None:
            return
        renewed_at, late_at = self._renewed
        own = self._store.leases.own
        if own is not None and (own.renew_time or 0.0) > renewed_at - _ROUNDED:
            self._renewed = None
        elif clock.now() >= late_at:
            self._renewed = None
            log.warning("watchIsSilent", node=self.node)
            self._store.leases.watch_anew()

    async def _rest(self) -> None:
        self._check_watch()
        wake = [self._next_write]
        if self._renewed is not None:
            wake.append(self._renewed[1])
        deadline = self._right.deadline(clock.now())
        if deadline is not None:
            wake.append(deadline.announce_until)
        await self._wakeup.wait(until=min(wake))

    def _send(self, group: asyncio.TaskGroup) -> None:
        """Send a renewal; one that is under way is not given up, as it may just be slow."""
        now, subnets = clock.now(), self._subnets or ()
        epoch = self._right.epoch_to_write(subnets, now=now)
        self._right = self._right.sent(epoch)
        if self._failing_since is None:
            self._failing_since = now
        if self._under_way:
            self._doubt()
        self._write_due, self._again_at = math.inf, self._right.retry_at(now, hangs=True)
        attempt = _Attempt(epoch, subnets, now, clock.wall_time())
        self._under_way[attempt] = group.create_task(self._write(attempt))

    async def _write(self, attempt: _Attempt) -> None:
        error: ApiError | TimeoutError | None = None
        try:
            async with asyncio.timeout(self._timing.renew_deadline):
                await self._lease.write(self._wanted(attempt))
        except (ApiError, TimeoutError) as raised:
            error = raised
        finally:
            self._under_way.pop(attempt, None)
        self._wakeup.notify()
        if self._right.is_released:
            return
        if error is None:
            self._succeeded(attempt)
        else:
            self._failed(str(error) or "no answer in time", attempt)

    def _wanted(self, attempt: _Attempt) -> Lease:
        return Lease(
            node=self._identity.node,
            subnets=attempt.subnets,
            # Without a key its peers cannot ask this node, so they must not wait for it.
            epoch=attempt.epoch if self._key_ids() else "",
            mail=self._mail,
            instance=self._identity.instance,
            holder=self._identity.node,
            duration=self._timing.duration,
            renew_time=attempt.wall_time,
            outage=self._outage,
            peer_keys=self._key_ids(),
            duplicates=self._duplicates.at(clock.now()),
            macs=self._said.macs,
            answering=self._said.answering,
            mistaken=self._said.mistaken,
            deprecated=self._said.deprecated,
            outside=self._store.outside,
        )

    def _succeeded(self, attempt: _Attempt) -> None:
        now, before = clock.now(), self._right
        # Those that name the version before are refused now.
        for other in self._under_way.values():
            other.cancel()
        self._under_way.clear()
        epoch, sent_at = attempt.epoch, attempt.sent_at
        after = before.succeeded(epoch, attempt.subnets, sent_at=sent_at, now=now)
        if after.is_failing:
            self._failed("the answer came too late", attempt)
            return
        self._right = after
        # One that has not been shown yet stays due: the watch shows them in their order.
        self._renewed = self._renewed or (attempt.wall_time, now + SHOWN_AFTER)
        self._written, self._failing_since = attempt.subnets, None
        self._next_attempt = self._right.renew_at
        self._metrics.count_renewal(self._used(before, now))
        if before.state(now) is RightState.HOLDING and now >= before.ends_at:
            self._held_since = self._held_since or before.sent_at
        if self._right.is_quick:
            self._note_outage()
            self.in_doubt.clear()
        self.publish()

    def _used(self, right: Right, now: float) -> float | None:
        """Return how much of the time until its end a right has used; None without one."""
        used = (now - right.sent_at) / self._timing.renew_deadline
        return None if right.deadline(now) is None else used

    def _note_outage(self) -> None:
        """Record that addresses were kept through an outage; written to the Lease at once."""
        if self._held_since is not None:
            end = clock.wall_time()
            self._outage = Outage(end - (clock.now() - self._held_since), end)
            self._held_since, self._write_due = None, clock.now()

    def _failed(self, error: str, attempt: _Attempt) -> None:
        now, is_first = clock.now(), not self._right.is_failing
        self._right = self._right.failed(attempt.epoch).at(now)
        self._next_attempt = self._right.retry_at(now)
        self._metrics.count_failure()
        if is_first:
            log.warning("leaseRenewalFailed", node=self.node, error=error)
        self._doubt()
        self.publish()

    def _doubt(self) -> None:
        self.in_doubt.set()

    def renew_soon(self) -> None:
        """Try to renew now, but at least _MIN_PAUSE after the last renewal."""
        soon = max(clock.now(), self._right.sent_at + _MIN_PAUSE)
        self._next_attempt = min(self._next_attempt, soon)
        self._wakeup.notify()

    def ensure_current(self) -> None:
        """Renew soon if the subnets in the Lease were changed by others.

        What is seen before the watch has shown the last renewal is an older one, and during a write
        it may be the new one.
        """
        self._check_watch()
        if self._under_way or self._renewed is not None:
            return
        seen = self._store.leases.own
        is_intact = seen is None or seen.subnets == self._written
        if self._right.state(clock.now()) is RightState.HELD and not is_intact:
            self.renew_soon()

    @property
    def failing_since(self) -> float | None:
        """When the first renewal after the last one that succeeded was sent; None: not yet."""
        return self._failing_since

    async def renewed(self, since: float = -math.inf) -> float | None:
        """Return how many seconds ago the renewal was sent that shows that this node can renew.

        None if it shows nothing, or was sent before `since`. It never writes because a peer asks:
        while some writes fail, all nodes would write more. But it reads its Lease, which takes
        PATIENCE at most, unless the renewal was sent in this moment.
        """
        if self.in_doubt.is_set() or not self._right.can_renew(since):
            return None
        if clock.now() > self._right.sent_at + FRESHNESS:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._reaches_api())
            if not await asyncio.shield(self._reading):
                return None
        return clock.now() - self._right.sent_at

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

    def publish(self) -> None:
        """Publish until when this node may hold addresses."""
        now = clock.now()
        state, deadline = self._right.state(now), self._right.deadline(now)
        self._store.set_hold_deadline(deadline, self._right.subnets)
        if state is not self._published:
            log.info("leaseState", node=self.node, state=state.value)
            self._published = state
        self._metrics.show(is_healthy=deadline is not None, is_holding=state is RightState.HOLDING)

    def leave(self) -> None:
        """Leave the election: from now on this node may hold no address."""
        self._right = self._right.resigned()
        self.in_doubt.clear()
        self._wakeup.notify()
        self.publish()

    async def delete(self) -> None:
        """Delete the Lease if this pod still holds it, so that peers take over at once."""
        await self._lease.delete()
