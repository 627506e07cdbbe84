# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The loop that makes the node's interfaces what the plan says.

It wakes on every change of what the API server says, of the own right, and of the interfaces, and
at the next moment at which something ends by itself. Each time it reads the interfaces, plans, acts
on the kernel and the wire, and only then hands on what the API server is to be told. It owns all
that it remembers between two cycles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.configuration import (
    Choice,
    NodeConfig,
    SelectorState,
    choose,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.interfaces import (
    lease_subnets,
    selected_links,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.model import (
    InterfaceAddress,
    Link,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.plan import (
    Plan,
    Put,
    Remove,
    World,
    electorate_of,
    plan,
)

from . import clock, log
from .announcer import Announcer, Place
from .metrics import NodeMetrics
from .netlink import Kernel, NetlinkError, News
from .renewer import Renewer
from .reporter import Reporter
from .store import NodeStore
from .verdicts import VerdictLog

# The watchdog: actual is compared with plan at least this often, whatever was noticed.
RESYNC = 30.0
# A refused change is tried again after this, not at once and for ever.
_AFTER_ERROR = 1.0


class Reconciler:
    """The owner of the node's VIPs."""

    def __init__(
        self,
        kernel: Kernel,
        store: NodeStore,
        renewer: Renewer,
        reporter: Reporter,
        *,
        metrics: NodeMetrics,
        ask_again: Callable[[], None],
    ) -> None:
        """`ask_again` lists the Leases anew; it is asked when one seems to have ended."""
        self.is_ready = False
        self._kernel = kernel
        self._renewer = renewer
        self._reporter = reporter
        self._metrics = metrics
        self._store = store
        self._ask_again = ask_again
        self._node = renewer.node
        self._verdicts = VerdictLog(renewer.node, metrics)
        self._announcer = Announcer(metrics)
        # How this node came by its configuration, and what it says.
        self._choice = Choice(SelectorState.DEFAULT, NodeConfig())
        self._links: tuple[Link, ...] = ()
        self._links_read_at = float("-inf")
        # What this process put on an interface and what is still there; and what it was to hold
        # after the last cycle, whether it is still there or not.
        self._put: frozenset[Place] = frozenset()
        self._held: frozenset[Place] = frozenset()
        self._seen: dict[Place, InterfaceAddress] = {}

    async def run(self) -> None:
        """Reconcile until cancelled."""
        self._kernel.follow(self._on_news)
        while True:
            self._store.changed.clear()
            wake_at = self._cycle()
            try:
                async with asyncio.timeout(max(0.0, wake_at - clock.now())):
                    await self._store.changed.wait()
            except TimeoutError:
                continue

    def _on_news(self, news: News) -> None:
        """Wake the loop, but not for the echo of a lifetime that was just set anew."""
        if news.address is not None and not news.is_gone:
            seen = self._seen.get((news.address.link, news.address.address))
            if seen is not None and _state(seen) == _state(news.address):
                return
        self._links_read_at = float("-inf")
        self._store.changed.set()

    def _cycle(self) -> float:
        """One look and one act; returns when to look again at the latest."""
        now = clock.now()
        if not self._store.listed:
            return now + RESYNC
        self._metrics.config_loaded.set(1)
        if now - self._links_read_at >= RESYNC:
            self._links, self._links_read_at = self._kernel.links(), now
        is_new_choice = self._choose()
        world = self._world(now)
        subnets = lease_subnets(world.segments)
        self._metrics.local_subnet_count.set(len(subnets))
        self._renewer.set_subnets(subnets, at_once=is_new_choice)
        if self._store.leases.membership.has_unconfirmed_end(now):
            self._ask_again()
        if world.right is None and not self.is_ready:
            # Before its first Lease a node cannot know what is its own: what an earlier agent left
            # is kept or removed by the first plan, and ends by its lifetime if none comes.
            return now + RESYNC
        made = plan(world, now=now)
        failed = self._apply(made)
        self._held = self._put & made.wanted
        self._announce(made, now)
        self._verdicts.note(made.verdicts.values(), world.electorate)
        self._reporter.report(made.verdicts.values(), self._held)
        self._metrics.address_renewals_active.set(len(self._held))
        self.is_ready = True
        return self._wake_at(world, made, now, failed=failed)

    def _choose(self) -> bool:
        """Find the LBNodeAgent for this node; whether it is another one, or another state of it."""
        store = self._store
        choice = choose(store.configs.records.values(), store.labels.records.get(self._node, {}))
        for state in SelectorState:
            self._metrics.selector_state.labels(state.value).set(state is choice.state)
        is_new, self._choice = choice != self._choice, choice
        if is_new:
            named = choice.config or NodeConfig()
            log.info(
                "configuration",
                state=choice.state.value,
                object=named.name,
                problem=named.problem,
            )
            self._reporter.report_choice(choice)
        return is_new

    @property
    def _config(self) -> NodeConfig:
        """The configuration in force; without a usable one, one that names no interface."""
        usable = self._choice.state in (SelectorState.DEFAULT, SelectorState.CONFIGURED)
        config = self._choice.config
        return config if usable and config else NodeConfig(local_interface="none")

    def _world(self, now: float) -> World:
        store, right = self._store, self._store.right
        members = store.leases.membership.live(now)
        addresses = self._kernel.addresses()
        self._seen = {(held.link, held.address): held for held in addresses}
        self._put &= self._seen.keys()
        self._metrics.member_count.set(len(members))
        return World(
            node=self._node,
            services=tuple(store.services.records.values()),
            groups=tuple(store.groups.records.values()),
            electorate=electorate_of(members, right, listed=store.leases.listed, now=now),
            right=right,
            links=selected_links(self._links, self._config),
            addresses=addresses,
            put=self._put,
            own=store.own_addresses,
            config=self._config.addresses,
        )

    def _apply(self, made: Plan) -> bool:
        """Bring the kernel to the plan; whether anything was refused."""
        removed = [self._remove(remove) for remove in made.removes]
        with self._metrics.address_renewal_latency.time():
            done = [self._add(put) for put in made.puts]
        return not all(removed) or not all(done)

    def _remove(self, remove: Remove) -> bool:
        held = remove.held
        try:
            self._kernel.remove(held)
        except NetlinkError as problem:
            log.error("withdrawFailed", ip=held.address, link=held.link, error=str(problem))
            return False
        self._put -= {(held.link, held.address)}
        self._seen.pop((held.link, held.address), None)
        self._metrics.withdrawals.inc()
        log.info("withdrawAddress", ip=held.address, reason=remove.reason.value)
        return True

    def _add(self, put: Put) -> bool:
        place = (put.link, put.address)
        try:
            self._kernel.put(put)
        except NetlinkError as problem:
            if not put.is_new:
                self._metrics.address_renewal_errors.inc()
            log.error("addFailed", ip=put.address, link=put.link, error=str(problem))
            return False
        if put.is_new:
            self._metrics.additions.inc()
            if place in self._held:
                self._metrics.watchdog_recoveries.inc()
                log.warning("addressPutBack", ip=put.address, link=put.link)
        else:
            self._metrics.address_renewals.inc()
        self._put |= {place}
        return True

    def _announce(self, made: Plan, now: float) -> None:
        fresh = {(p.link, p.address) for p in made.puts if p.is_new and _usable_at_once(p)}
        usable = frozenset(p for p in self._held if p in fresh or self._is_usable(p))
        self._announcer.announce(usable, fresh, self._links, self._config.announce, now=now)

    def _is_usable(self, place: Place) -> bool:
        seen = self._seen.get(place)
        return seen is not None and not seen.tentative and not seen.dad_failed

    def _wake_at(self, world: World, made: Plan, now: float, *, failed: bool) -> float:
        moments = [
            now + (_AFTER_ERROR if failed else RESYNC),
            made.refresh_at,
            self._store.leases.membership.next_expiry(now),
            world.right.announce_until if world.right else None,
            self._announcer.next_at,
        ]
        # A right that has just lapsed stays in the store until its renewer has looked, too.
        return min(moment for moment in moments if moment is not None and moment > now)

    def withdraw_all(self) -> None:
        """Withdraw everything now; called when the own Lease gives no right any more."""
        self._cycle()


def _state(held: InterfaceAddress) -> tuple[int, bool, bool, bool]:
    return held.prefixlen, held.tentative, held.dad_failed, held.deprecated


def _usable_at_once(put: Put) -> bool:
    """IPv4 knows no duplicate address detection in the kernel."""
    return put.address.version == 4 or put.no_dad  # noqa: PLR2004 - the IP version
