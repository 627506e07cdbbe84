# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A reconcile loop with a fake kernel; what it requests of its neighbours is recorded."""

from __future__ import annotations

import asyncio
from types import MappingProxyType

from prometheus_client import CollectorRegistry

from purelb.core.election.claims import claimed
from purelb.core.holding.deadline import HoldDeadline
from purelb.core.holding.right import Right
from purelb.core.settings import LeaseTiming
from purelb_agent.fence.fence import AddressFence
from purelb_agent.holding.renewer import Said
from purelb_agent.kube.store import NodeStore
from purelb_agent.node.decisions import DecisionRecorder
from purelb_agent.node.interfaces import Interfaces
from purelb_agent.node.metrics import NodeMetrics
from purelb_agent.node.reconcile import Effects, Reconciler
from purelb_agent.runtime import clock
from tests.support.agent.fake_kernel import FakeKernel
from tests.support.agent.kubernetes_objects import (
    group_object,
    lease_object,
    service_object,
)
from tests.support.core.snapshots import ETH0, NET4, NET6, OWN4, OWN6
from tests.support.fence.fake_fence import FakeFenceKernel

TABLES = ("services", "groups", "slices", "leases", "configs", "nodes")


class RecordedRenewer:
    """Counts what the loop requests of the renewer."""

    node = "n1"

    def __init__(self):
        self.subnets = []
        self.checks = self.looks = 0
        self.own = []
        self.said = Said()
        self.right = Right(LeaseTiming(), "token")

    def set_subnets(self, subnets, *, at_once):
        self.subnets.append((subnets, at_once))

    def ensure_current(self):
        self.checks += 1

    def look_at_clock(self):
        self.looks += 1

    def saw(self, own):
        self.own.append(own)

    def say(self, said):
        self.said = said


class RecordedAnnouncer:
    """Keeps what is announced; `next_at` is when the next announcement is due."""

    def __init__(self):
        self.usable = []
        self.fresh = []
        self.again = []
        self.next_at = None

    def announce(self, usable, fresh, links, config, *, again, now):
        self.usable.append(usable)
        self.fresh.append(fresh)
        self.again.append(again)


class RecordedListener:
    """Keeps which addresses are checked for duplicates; `settle` is for the test to call."""

    checked = frozenset()
    settled = MappingProxyType({})
    answering = ()

    def subscribe(self, on_settled):
        self._on_settled = on_settled

    def settle(self, places):
        self.settled = places
        self._on_settled()

    def take_settled(self):
        settled, self.settled = self.settled, {}
        return settled

    def update(self, checked, _links, *, nodes, now):
        self.checked, self.nodes = checked, nodes

    def forgets_at(self, _now):
        return None

    def answering_nodes(self, _now):
        return self.answering


class RecordedReporter:
    """Keeps the results of the cycles."""

    def __init__(self):
        self.results = []
        self.choices = []
        self.selected = ()
        self.mistaken = frozenset()
        self.fence = ""

    def report(self, decisions, held, *, done):
        self.results.append((held, done))

    def report_choice(self, choice):
        self.choices.append(choice.state)

    def report_selected(self, _choice, names):
        self.selected = names

    def report_mistaken(self, addresses):
        self.mistaken = addresses

    def report_fence(self, said):
        self.fence = said


class RecordedQuestions:
    """Gives all permissions; `held`: what was on the interfaces after each plan; `had`: before."""

    def __init__(self):
        self.held = []
        self.had = []

    def read_mail(self, _now):
        pass

    def decide(self, elected, held, *, now):
        self.had.append(held)
        return elected

    def send(self, held, *, now):
        self.held.append(held)

    def next_at(self, _now):
        return None


class Node:
    """A node on which the loop runs; `held` is what is on its interfaces in addition to its own."""

    def __init__(self, kernel=None):
        """`kernel`: the real one; without it, a fake one with the own addresses."""
        if kernel is None:
            kernel = FakeKernel(ETH0)
            kernel.hold(OWN4, OWN6)
        self.kernel = kernel
        self.store = NodeStore("n1", classes=claimed(unclassed=True), drains=True)
        self.renewer, self.announcer = RecordedRenewer(), RecordedAnnouncer()
        self.listener, self.reporter = RecordedListener(), RecordedReporter()
        self.questions = RecordedQuestions()
        self.registry = CollectorRegistry()
        metrics = NodeMetrics(self.registry)
        self.interfaces = Interfaces(self.kernel, metrics.addresses)
        self.fence_kernel = FakeFenceKernel()
        self.reconciler = Reconciler(
            self.store,
            self.renewer,
            Effects(
                self.interfaces,
                AddressFence(lambda: self.fence_kernel, metrics.fence),
                self.announcer,
                self.listener,
                DecisionRecorder("n1", metrics.election),
                self.reporter,
            ),
            metrics=metrics,
            questions=self.questions,
        )

    @property
    def held(self):
        return set(self.kernel.held) - {(a.link, a.address) for a in (OWN4, OWN6)}

    def list_all(self, **objects):
        listed = {"groups": [group_object()], "services": [service_object()], **objects}
        for table in TABLES:
            getattr(self.store, table).replace(listed.get(table, []), asked_at=clock.now())

    def renew(self, *nodes, seconds=10.0):
        """Renew the Leases of these nodes, and with the own one the hold deadline."""
        for node in nodes or ("n1",):
            self.store.leases.put(lease_object(node, version=str(int(clock.now() * 10))))
        if not nodes or "n1" in nodes:
            now = clock.now()
            deadline = HoldDeadline(now + seconds * 0.7, now + seconds)
            self.fence_kernel.control.open_until(deadline.silent_at)
            self.store.set_hold_deadline(deadline, (NET4, NET6))

    def metric(self, name):
        return self.registry.get_sample_value(name)

    async def calls_of(self, method, *, seconds):
        """How often the kernel is asked for this within so many seconds."""
        before = self.kernel.calls.count(method)
        await asyncio.sleep(seconds)
        return self.kernel.calls.count(method) - before
