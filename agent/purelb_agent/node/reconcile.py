# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The loop that makes the node's interfaces what the plan says.

It wakes on every change of what the API server says, of the own right, and of the interfaces, and
at the next moment at which something ends by itself. Each time it reads the interfaces, judges,
plans, acts on the kernel and the wire, and only then hands on what the API server is to be told. It
owns all that it remembers between two cycles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from purelb.core.node.configuration import (
    NOWHERE,
    NodeConfig,
    SelectedConfig,
    SelectorState,
    choose,
)
from purelb.core.node.decisions import Decisions, decide_vips
from purelb.core.node.interfaces import lease_subnets, selected_links
from purelb.core.node.plan import Plan, plan
from purelb.core.node.readiness import Readiness
from purelb.core.node.snapshot import NodeSnapshot, electorate_of
from purelb_agent.kube.store import NodeStore
from purelb_agent.lease.renewer import Renewer
from purelb_agent.node.announcer import Announcer
from purelb_agent.node.decisions import DecisionRecorder
from purelb_agent.node.interfaces import Interfaces
from purelb_agent.node.metrics import NodeMetrics
from purelb_agent.node.reporter import Reporter
from purelb_agent.runtime import clock, log

# The watchdog: actual is compared with plan at least this often, whatever was noticed.
RESYNC = 30.0
# A refused change is tried again after this, not at once and for ever.
_AFTER_ERROR = 1.0


@dataclass(frozen=True)
class Effects:
    """What the loop acts through: kernel, wire, log and metrics, API."""

    interfaces: Interfaces
    announcer: Announcer
    verdicts: DecisionRecorder
    reporter: Reporter


class Reconciler:
    """The owner of the node's VIPs."""

    def __init__(
        self,
        store: NodeStore,
        renewer: Renewer,
        hands: Effects,
        *,
        metrics: NodeMetrics,
        ask_again: Callable[[], None],
    ) -> None:
        """`ask_again` lists the Leases anew; it is asked when one seems to have ended."""
        self._readiness = Readiness()
        self._interfaces = hands.interfaces
        self._announcer = hands.announcer
        self._verdicts = hands.verdicts
        self._reporter = hands.reporter
        self._renewer = renewer
        self._metrics = metrics
        self._store = store
        self._ask_again = ask_again
        self._node = renewer.node
        # How this node came by its configuration, and what it says.
        self._choice = SelectedConfig(SelectorState.DEFAULT, NodeConfig())
        self._decisions: Decisions | None = None
        self._leaving = False

    @property
    def is_ready(self) -> bool:
        """Whether the node does its part: then another one may leave.

        Not while it has no right to any address, because its Lease could not be renewed.
        """
        return self._store.right is not None and self._readiness.is_ready(clock.now())

    async def run(self) -> None:
        """Reconcile until cancelled."""
        self._interfaces.subscribe(self._store.changed.set)
        while True:
            self._store.changed.clear()
            wake_at = self._cycle()
            try:
                async with asyncio.timeout(max(0.0, wake_at - clock.now())):
                    await self._store.changed.wait()
            except TimeoutError:
                continue

    def _cycle(self) -> float:
        """One look and one act; returns when to look again at the latest."""
        now = clock.now()
        if not self._store.listed:
            return now + RESYNC
        self._metrics.mark_loaded()
        self._interfaces.read_links(now, max_age=RESYNC)
        is_new_choice = self._choose()
        world = self._world(now)
        subnets = lease_subnets(world.segments)
        self._metrics.election.show_local_subnets(len(subnets))
        self._renewer.set_subnets(subnets, at_once=is_new_choice)
        self._renewer.ensure_current()
        if self._store.leases.membership.has_unconfirmed_end(now):
            self._ask_again()
        if world.right and not self._store.leases.membership.counts(self._node, now):
            # Somebody deleted the own Lease, so others have taken over: write it anew at once.
            self._renewer.renew_soon()
        if world.right is None and not self._readiness.has_acted:
            # Before its first Lease a node cannot know what is its own: what an earlier agent left
            # is kept or removed by the first plan, and ends by its lifetime if none comes.
            return now + RESYNC
        self._decisions = decide_vips(world, self._decisions)
        made = plan(self._decisions, world, now=now)
        done = self._interfaces.apply(made)
        self._announce(world, made, now)
        self._verdicts.note(self._decisions)
        self._reporter.report(self._decisions, self._interfaces.held, done=done)
        if self._decisions.lacks_dummy and self._config.dummy_interface:
            if self._interfaces.make_dummy(self._config.dummy_interface):
                return now
            done = False
        held = self._interfaces.held
        self._readiness = self._readiness.after(made, held, world.addresses, now=now)
        return self._wake_at(world, made, now, done=done)

    def _choose(self) -> bool:
        """Find the LBNodeAgent for this node; whether it is another one, or another state of it."""
        choice = choose(self._store.configs.records.values(), self._store.labels)
        self._metrics.show_selector(choice.state)
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
        return config if usable and config else NOWHERE

    def _world(self, now: float) -> NodeSnapshot:
        store, right, config = self._store, self._store.right, self._config
        members = store.leases.membership.live(now, store.drained)
        addresses = self._interfaces.read_addresses()
        self._metrics.election.show_members(len(members))
        self._metrics.show_draining(is_draining=store.taint is not None)
        links = self._interfaces.links
        return NodeSnapshot(
            node=self._node,
            vips=store.vips,
            groups=tuple(store.groups.records.values()),
            endpoints=store.endpoints,
            membership=electorate_of(members, right, listed=store.leases.listed, now=now),
            right=right,
            draining=store.taint is not None,
            leaving=self._leaving,
            links=selected_links(links, config),
            dummy=next((k for k in links if k.name == config.dummy_interface), None),
            dummies=self._interfaces.dummies(config.dummy_interface),
            addresses=addresses,
            put=self._interfaces.put,
            known=store.known_addresses,
            config=config.addresses,
            dummy_config=config.dummy_addresses,
        )

    def _announce(self, world: NodeSnapshot, made: Plan, now: float) -> None:
        """Announce on real interfaces; nobody is behind the dummy one."""
        fresh = {(p.link, p.address) for p in made.puts if p.is_new and p.usable_at_once}
        usable = self._interfaces.usable(fresh)
        on_wire = frozenset(place for place in usable if place[0] not in world.dummies)
        links = self._interfaces.links
        self._announcer.announce(on_wire, fresh, links, self._config.announce, now=now)
        # What failed duplicate address detection is somebody's, and who that is shall be found.
        held = self._interfaces.held
        guarded = frozenset(place for place in held if place[0] not in world.dummies)
        self._announcer.ensure_current(guarded, links, now=now)

    def _wake_at(self, world: NodeSnapshot, made: Plan, now: float, *, done: bool) -> float:
        moments = [
            now + (RESYNC if done else _AFTER_ERROR),
            made.refresh_at,
            self._store.leases.membership.next_expiry(now),
            world.right.announce_until if world.right else None,
            self._announcer.next_at,
        ]
        # A right that has just lapsed stays in the store until its renewer has looked, too.
        return min(moment for moment in moments if moment is not None and moment > now)

    def withdraw_all(self) -> None:
        """Withdraw everything now, for good."""
        self._leaving = True
        self._cycle()
        self._interfaces.remove_dummies()
