# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The node `n1` with its renewer and a fake API that keeps its Lease.

The watch shows each write at once; with `shows` set to False, it is silent.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

from prometheus_client import CollectorRegistry

from purelb.core.api import codec
from purelb.core.election.claims import claimed
from purelb.core.fence.programs import CONTROL_BYTES
from purelb.core.holding.outage import extended_deadline, next_round
from purelb.core.settings import LeaseTiming, TimingChoice
from purelb_agent.fence.control import Control
from purelb_agent.holding.own_lease import Identity
from purelb_agent.holding.renewer import Renewer
from purelb_agent.kube.client import ApiError
from purelb_agent.kube.store import NodeStore
from purelb_agent.node.metrics import NodeMetrics
from purelb_agent.runtime import clock
from tests.support.agent.fake_api import FakeApi
from tests.support.agent.kubernetes_objects import NAMESPACE
from tests.support.core.snapshots import NET4, NET6

COLLECTION = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PATH = f"{COLLECTION}/purelb-node-n1"
NODE = "/api/v1/nodes/n1"
NETS = (NET4, NET6)
TIMING = LeaseTiming()
CHOICE = TimingChoice(TIMING.duration, TIMING.renew_deadline, TIMING.retry_period)
DOWN = ApiError(0, "no route to host")
_WRITES = (("POST", COLLECTION), ("PUT", PATH))


class RecordedControl(Control):
    """Until when the fence was opened last; None: not at all."""

    def __init__(self):
        super().__init__(bytearray(CONTROL_BYTES))
        self.until = None

    def open_until(self, moment):
        self.until = moment


class LeasedNode:
    """A renewer, the requests that it sends, and what it publishes to the store."""

    def __init__(self, choice=CHOICE):
        self.api = FakeApi()
        self.api.answer("GET", NODE, {"metadata": {"name": "n1", "uid": "uid-n1"}})
        self.api.answer("GET", PATH, ApiError(404, "not found"))
        self.api.answer("DELETE", PATH, {})
        for method, path in _WRITES:
            self.api.answer(method, path, self._stored)
        self.store = NodeStore("n1", classes=claimed(unclassed=True), drains=True, timing=choice)
        self.registry = CollectorRegistry()
        self.metrics = NodeMetrics(self.registry).lease
        self.keys = ("key",)
        self.control = RecordedControl()
        self.shows = True
        self.watched_anew = []
        self.store.leases.watch_anew = lambda: self.watched_anew.append(clock.now())
        self.renewer = Renewer(
            self.api,
            self.store,
            Identity("n1", "pod-n1", NAMESPACE),
            metrics=self.metrics,
            key_ids=lambda: self.keys,
            control=self.control,
        )
        self.began = clock.now()
        self._version = 0

    def _stored(self, request):
        self._version += 1
        meta = {"uid": "uid-lease", **request.body["metadata"]}
        body = {**request.body, "metadata": {**meta, "resourceVersion": str(self._version)}}
        if self.shows:
            self.store.leases.put(body)
            asyncio.get_running_loop().call_soon(self.look)
        return body

    def look(self):
        """Let the renewer see the own Lease, as the reconcile loop does in each cycle."""
        self.renewer.saw(self.store.leases.own)

    @asynccontextmanager
    async def running(self, *, subnets=NETS):
        """Run the renewer; the first write is done on entry if the API answers."""
        self.renewer.set_subnets(subnets, at_once=True)
        task = asyncio.create_task(self.renewer.run())
        try:
            await asyncio.sleep(0.01)
            yield self
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def refuse(self, *, times=float("inf")):
        """Refuse writes from now on."""
        for method, path in _WRITES:
            self.api.answer(method, path, DOWN, times=times)

    def accept(self):
        """Accept writes again."""
        for method, path in _WRITES:
            self.api.answer(method, path, self._stored)

    def slow_writes(self, seconds):
        """Let replacements of the Lease that are sent from now on take effect so much later."""
        request = FakeApi.request

        async def slow(method, *args, **options):
            if method == "PUT":
                await asyncio.sleep(seconds)
            return await request(self.api, method, *args, **options)

        self.api.request = slow

    def extend(self, agreed):
        """Let this node hold for longer, as no node can renew."""
        holder = self.store.holder
        self.store.take(replace(holder, right=holder.right.extended(agreed, now=clock.now())))
        self.renewer.publish()

    async def agree(self, *, until):
        """Let no node be able to renew until then, as all of them say."""
        while clock.now() < self.began + until:
            if self.renewer.in_doubt.is_set():
                asked = next_round(self.renewer.right, TIMING, now=clock.now())
                self.extend(extended_deadline(asked, {}))
            await asyncio.sleep(0.1)

    async def until(self, seconds):
        """Sleep until so many seconds after the beginning, and a moment."""
        await asyncio.sleep(self.began + seconds + 0.01 - clock.now())

    @property
    def writes(self):
        """The Leases that were written or tried to, each with when that was sent."""
        return [
            (round(request.at - self.began, 2), codec.lease_of(request.body))
            for request in self.api.requests
            if (request.method, request.path) in _WRITES
        ]

    @property
    def written_at(self):
        return [at for at, _lease in self.writes]

    @property
    def durations(self):
        return [lease.duration for _at, lease in self.writes]

    @property
    def lease(self):
        """The Lease as it was last written or tried to."""
        return self.writes[-1][1]

    def metric(self, name):
        return self.registry.get_sample_value(f"purelb_election_{name}")
