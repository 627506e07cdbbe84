# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Renews the node's own Lease: the only writer of the Lease and of the hold deadline.

The core's Right decides when to renew and what the result means. While renewals are in doubt, the
outage keeper asks the peers and extends the hold deadline by their answers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from purelb.core.election.members import ServiceProxy
from purelb.core.fence.gaps import EXACT
from purelb.core.holding.outage import FRESHNESS, PATIENCE
from purelb.core.holding.right import Renewal, Right, RightState
from purelb.core.model import Address, Lease, Network, NodeAddress, Outage
from purelb.core.node.conflicts import FoundDuplicates
from purelb.core.settings import LeaseTiming
from purelb_agent.fence.control import Control
from purelb_agent.holding.metrics import LeaseMetrics
from purelb_agent.holding.own_lease import Identity, OwnLease
from purelb_agent.kube.client import ApiError, Kube
from purelb_agent.kube.store import NodeStore
from purelb_agent.runtime import clock, log
from purelb_agent.runtime.wakeup import Wakeup

# A flapping interface causes one write of the Lease, not one per change.
SUBNET_DEBOUNCE = 2.0
# A host that answers for many addresses causes one write for all that are found in this time.
DUPLICATE_DEBOUNCE = 0.5
# How long after its renewal the watch must have shown the own Lease.
SHOWN_AFTER = 1.5
# As others write it, an epoch may be of any length.
_LONGEST_EPOCH = 64
# A Lease has microseconds.
_ROUNDED = 0.001


@dataclass(frozen=True)
class Said:
    """What a node says in its Lease of itself and of others; see the fields of a Lease."""

    macs: tuple[bytes, ...] = ()
    answering: tuple[str, ...] = ()
    mistaken: tuple[NodeAddress, ...] = ()
    deprecated: tuple[Network, ...] = ()
    service_proxy: ServiceProxy = ServiceProxy.UNKNOWN
    fence: str = ""


class Renewer:
    """The own Lease, from its first write to its deletion.

    `key_ids` returns the ids of the keys for questions between peers: with them in the Lease, a
    rotation knows which keys each agent has read. `control` opens the fence while there is a right.
    """

    def __init__(
        self,
        kube: Kube,
        store: NodeStore,
        identity: Identity,
        *,
        metrics: LeaseMetrics,
        key_ids: Callable[[], tuple[str, ...]],
        control: Control,
    ) -> None:
        self._lease = OwnLease(kube, identity)
        self._store = store
        self._identity = identity
        self._metrics = metrics
        self._key_ids = key_ids
        self._control = control
        self._published = RightState.ABSENT
        self._subnets: tuple[Network, ...] | None = None
        # What the last renewal said that was sent, and those that have no answer yet.
        self._last: Lease | None = None
        self._requests: dict[Renewal, asyncio.Task[None]] = {}
        self._wakeup = Wakeup()
        # Set while the right is in doubt.
        self.in_doubt = asyncio.Event()
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
        if right.is_in_doubt:
            self.in_doubt.set()
        else:
            self.in_doubt.clear()

    def _change(self, after: float = 0.0) -> None:
        self._right = self._right.changing(clock.now() + after)
        self._wakeup.notify()

    def post(self, mail: str) -> None:
        """Write this into the Lease for agents that this node does not reach."""
        if mail != self._mail:
            self._mail = mail
            self._change()

    def saw(self, own: Lease | None) -> None:
        """Take what the watch or a list shows of the own Lease."""
        if own is not None:
            before = self._right
            self._right = before.shown(own.epoch, now=clock.now())
            if self._right.token != before.token:
                log.warning("leaseForged", node=self.node, epoch=own.epoch[:_LONGEST_EPOCH])
                self._wakeup.notify()
        elif self._right.is_shown:
            self._right = self._right.deleted(now=clock.now())
            self._wakeup.notify()

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
        self._change(0.0 if at_once else SUBNET_DEBOUNCE)

    def list_duplicate(self, address: Address) -> None:
        """List an address in the Lease that another host has; written soon."""
        self._duplicates = self._duplicates.with_found(address, now=clock.now())
        self._change(DUPLICATE_DEBOUNCE)

    def say(self, said: Said) -> None:
        """Say in the Lease what this node knows of itself and others; written soon."""
        if said != self._said:
            self._said = said
            self._change(DUPLICATE_DEBOUNCE)

    async def run(self) -> None:
        """Renew the Lease until cancelled; after `leave`, do nothing."""
        while self._subnets is None:  # set by the first full cycle of the reconcile loop
            await self._wakeup.wait()
        async with asyncio.TaskGroup() as group:
            while not self._right.is_released:
                self._right = self._right.at(clock.now())
                self.publish()
                if clock.now() >= self._right.due_at(clock.now()):
                    self._send(group)
                else:
                    await self._rest()
            await asyncio.Event().wait()  # a task that ends would end the process

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
        wake = [self._right.due_at(clock.now())]
        if self._renewed is not None:
            wake.append(self._renewed[1])
        deadline = self._right.deadline(clock.now())
        if deadline is not None:
            wake.append(deadline.announce_until)
        await self._wakeup.wait(until=min(wake))

    def _send(self, group: asyncio.TaskGroup) -> None:
        """Send a renewal, unless all that is due is a change that is none any more."""
        now, timing = clock.now(), self.next_timing()
        lease = self._wanted(timing)
        if now < self._right.next_at and lease == self._last:
            self._right = self._right.unchanged()
            return
        self._right, renewal = self._right.sent(lease.subnets, now=now, timing=timing)
        self._last = lease
        # Without a key its peers cannot ask this node, so they must not wait for it.
        epoch = renewal.epoch if lease.peer_keys else ""
        lease = replace(lease, epoch=epoch, renew_time=clock.wall_time())
        self._requests[renewal] = group.create_task(self._write(lease, renewal))

    async def _write(self, lease: Lease, renewal: Renewal) -> None:
        error: ApiError | TimeoutError | None = None
        try:
            seconds = renewal.timing.renew_deadline
            async with asyncio.timeout(seconds):
                shown = self._store.leases.own
                await self._lease.write(lease, shown=shown, seconds=seconds)
        except (ApiError, TimeoutError) as raised:
            error = raised
        finally:
            del self._requests[renewal]
        self._wakeup.notify()
        if self._right.is_released:
            return
        if error is None:
            self._succeeded(lease, renewal)
        else:
            self._failed(
                str(error) or "no answer in time", self._right.failed(renewal, now=clock.now())
            )

    def next_timing(self) -> LeaseTiming:
        """Return how a renewal that is sent now is to be timed."""
        counting = self._store.holder.counting
        return self._store.timing.timing(
            nodes=1 + sum(counted.counts for counted in counting.leases.values()),
            is_exact=self._said.fence == EXACT,
            took=self._right.slowness(clock.now()),
        )

    def _wanted(self, timing: LeaseTiming) -> Lease:
        """Return what the Lease is to say now, but for its epoch and its time."""
        return Lease(
            node=self._identity.node,
            subnets=self._subnets or (),
            mail=self._mail,
            instance=self._identity.instance,
            holder=self._identity.node,
            duration=timing.duration,
            outage=self._outage,
            peer_keys=self._key_ids(),
            duplicates=self._duplicates.at(clock.now()),
            macs=self._said.macs,
            answering=self._said.answering,
            mistaken=self._said.mistaken,
            deprecated=self._said.deprecated,
            rules=self._store.rules,
            service_proxy=self._said.service_proxy.value,
            fence=self._said.fence,
            outside=self._store.outside,
        )

    def _succeeded(self, lease: Lease, renewal: Renewal) -> None:
        now, before = clock.now(), self._right
        # Those that name the version before are refused now.
        for other in self._requests.values():
            other.cancel()
        after = before.succeeded(renewal, now=now)
        if after.is_failing:
            self._failed("the answer came too late", after)
            return
        self._right = after
        # One that has not been shown yet stays due: the watch shows them in their order.
        self._renewed = self._renewed or (lease.renew_time or 0.0, now + SHOWN_AFTER)
        self._metrics.count_renewal(self._used(before, now))
        if before.state(now) is RightState.AGREED and now >= before.ends_at:
            self._held_since = self._held_since or before.sent_at
        if not self._right.is_in_doubt:
            self._note_outage()
        if self.next_timing().duration < renewal.timing.duration:
            # Writes are fast again: a long Lease keeps addresses from others for longer.
            self.renew_soon()
        self.publish()

    def _used(self, right: Right, now: float) -> float | None:
        """Return how much of the time until its end a right has used; None without one."""
        used = (now - right.sent_at) / right.timing.renew_deadline
        return None if right.deadline(now) is None else used

    def _note_outage(self) -> None:
        """Record that addresses were kept through an outage; written to the Lease at once."""
        if self._held_since is not None:
            end = clock.wall_time()
            self._outage = Outage(end - (clock.now() - self._held_since), end)
            self._held_since = None
            self._change()

    def _failed(self, error: str, right: Right) -> None:
        is_first = not self._right.is_failing
        self._right = right.at(clock.now())
        self._metrics.count_failure()
        if is_first:
            log.warning("leaseRenewalFailed", node=self.node, error=error)
        self.publish()

    def renew_soon(self) -> None:
        """Try to renew now, or soon after the last renewal."""
        self._right = self._right.renewing(clock.now())
        self._wakeup.notify()

    def ensure_current(self) -> None:
        """Renew soon if the subnets in the Lease were changed by others.

        What is seen before the watch has shown the last renewal is an older one, and during a write
        it may be the new one.
        """
        self._check_watch()
        if self._right.under_way or self._renewed is not None:
            return
        seen = self._store.leases.own
        is_intact = seen is None or seen.subnets == self._right.subnets
        if self._right.state(clock.now()) is RightState.RENEWED and not is_intact:
            self.renew_soon()

    async def renewed(self, since: float = -math.inf) -> float | None:
        """Return how many seconds ago the renewal was sent that shows that this node can renew.

        None if it shows nothing, or was sent before `since`. It never writes because a peer asks:
        while some writes fail, all nodes would write more. But it reads its Lease, which takes
        PATIENCE at most, unless the renewal was sent in this moment.
        """
        if not self._right.can_renew(since):
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
        # First of all, as nothing can stop it: who has lost its right falls silent.
        self._control.open_until(None if deadline is None else deadline.silent_at)
        self._store.set_hold_deadline(deadline, self._right.subnets)
        if state is not self._published:
            log.info("leaseState", node=self.node, state=state.value)
            self._published = state
        self._metrics.show(is_healthy=deadline is not None, is_holding=state is RightState.AGREED)

    def leave(self) -> None:
        """Leave the election: from now on this node may hold no address."""
        self._right = self._right.released()
        self._wakeup.notify()
        self.publish()

    async def delete(self) -> None:
        """Delete the Lease if this pod still holds it, so that peers take over at once."""
        await self._lease.delete()
