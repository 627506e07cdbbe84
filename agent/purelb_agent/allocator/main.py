# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The program allocator: puts its parts together, starts them, and ends them.

Of several replicas one leads. The others watch the lock and do nothing else: a new leader reads
everything again. At shutdown pending writes are awaited before the lock is released, and
conversions are served until the API server knows that this Pod ends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random

from prometheus_client import CollectorRegistry

from purelb.core.election.claims import ALL_CLASSES, Classes, claimed
from purelb.core.names import (
    API_GROUP,
    API_VERSION,
    DEFAULT_NAMESPACE,
    LEADER_LEASE,
    PREEMPT_EVENT_REASON,
)
from purelb.core.settings import EvictionLimit, parse_switch
from purelb_agent import __version__
from purelb_agent.allocator.controller import AllocatorController
from purelb_agent.allocator.conversion import Conversion
from purelb_agent.allocator.events import ServiceEvents
from purelb_agent.allocator.eviction_taints import EvictionTainter
from purelb_agent.allocator.group_status import GroupStatus
from purelb_agent.allocator.metrics import AllocatorMetrics, ConversionMetrics
from purelb_agent.allocator.pools import Pools
from purelb_agent.allocator.service_allocator import ServiceAllocator
from purelb_agent.allocator.service_writer import ServiceWriter
from purelb_agent.ipam.port import CALL_SECONDS
from purelb_agent.ipam.queue import IpamQueue
from purelb_agent.ipam.sources import Sources, cluster_name
from purelb_agent.kube.client import Kube
from purelb_agent.kube.events import CLUSTER_NAMESPACE, Events
from purelb_agent.kube.http import PodAccess
from purelb_agent.kube.watch import CHANCE, Watcher
from purelb_agent.leader.elector import Elector, Lock
from purelb_agent.leader.leader_kube import Fence, LeaderKube
from purelb_agent.runtime import log
from purelb_agent.runtime.probes import Probes
from purelb_agent.runtime.program import METRICS_PORT, arguments, run, stop_signal
from purelb_agent.runtime.tasks import Tasks

_CONVERT = "convert"
# An API server may send conversions to a terminating Pod until the controller has removed it from
# the endpoints and the API server has seen that.
_CONVERSION_LINGER_SECONDS = 3.0
_ENVIRONMENT = """\
  PURELB_NAMESPACE   namespace of the ServiceGroups and of the lock (purelb-system)
  PURELB_CLAIM_UNCLASSED   on: Services without a loadBalancerClass are ours, too; or off (on)
  PURELB_DRAINING    on: an event PreemptScheduled about a Node taints it; or off (on)
  PURELB_EVICTION_LIMIT   how many Nodes are tainted at a time, as 2 or as 34% of all (34%)
  PURELB_CONVERSION  on: the API server is served conversions between API versions; or off (off)
"""


@dataclass(frozen=True)
class AllocatorSettings:
    """What the environment and the command line say; `host` is the name of the Pod."""

    host: str
    port: int = METRICS_PORT
    namespace: str = DEFAULT_NAMESPACE
    classes: Classes = ALL_CLASSES
    has_draining: bool = True
    eviction_limit: EvictionLimit = field(default_factory=EvictionLimit)
    has_conversion: bool = False

    @classmethod
    def read(cls, environ: Mapping[str, str], *, host: str, port: int) -> AllocatorSettings:
        """Read the settings; SettingError if one is invalid."""
        return cls(
            host,
            port,
            environ.get("PURELB_NAMESPACE") or DEFAULT_NAMESPACE,
            claimed(unclassed=parse_switch(environ, "PURELB_CLAIM_UNCLASSED", default=True)),
            parse_switch(environ, "PURELB_DRAINING", default=True),
            EvictionLimit.parse(environ),
            parse_switch(environ, "PURELB_CONVERSION", default=False),
        )


@dataclass(frozen=True)
class AllocatorOutside:
    """How the allocator reaches what is outside of it: makers of its clients and of its servers.

    `chance` spreads requests that many clients would make at the same time.
    """

    kube: Callable[[], Kube]
    writer: Callable[[Fence], LeaderKube]
    sources: Callable[..., Sources] = Sources
    server: Callable[..., Probes] = Probes
    conversion: Callable[[ConversionMetrics], Conversion] = Conversion
    chance: Random = CHANCE


class _Leading:
    """Everything that only the leader does; reads and writes have separate connection pools."""

    def __init__(
        self,
        watcher: Callable[..., Watcher],
        writer: LeaderKube,
        elector: Elector,
        settings: AllocatorSettings,
        sources: Sources,
        metrics: AllocatorMetrics,
    ) -> None:
        namespace = settings.namespace
        self._watcher = watcher
        self._writer = writer
        self._elector = elector
        self._settings = settings
        self._events = Events(writer, component="allocator", instance=settings.host)
        self._status = GroupStatus(writer, metrics, namespace=namespace)
        self._ipam_queue = IpamQueue(sources)
        self._pools = Pools(
            self._status, self._ipam_queue, self._events, metrics.pools, namespace=namespace
        )
        allocator = ServiceAllocator(
            ServiceWriter(writer),
            self._ipam_queue,
            self._pools,
            ServiceEvents(self._events),
            metrics.services,
            classes=settings.classes,
        )
        self.controller = AllocatorController(allocator, self._ipam_queue, self._pools, metrics)

    def start(self, tasks: Tasks) -> None:
        """Start all tasks; lists are requested only now."""
        self._elector.record_event(self._events)
        # All namespaces: a group in the wrong one is reported by a metric.
        groups = f"/apis/{API_GROUP}/{API_VERSION}/servicegroups"
        leases = Lock(self._settings.namespace).collection
        controller, watcher = self.controller, self._watcher
        tasks.start("watch-groups", watcher(groups, self._pools).run())
        of_nodes = {"fieldSelector": f"metadata.name!={LEADER_LEASE}"}
        members = watcher(leases, controller.leases, params=of_nodes)
        tasks.start("watch-leases", members.run())
        services = watcher("/api/v1/services", controller.services)
        tasks.start("watch-services", services.run())
        nodes = watcher("/api/v1/nodes", controller.nodes)
        tasks.start("watch-nodes", nodes.run())
        tasks.start("allocate", controller.run())
        tasks.start("group-status", self._status.run())
        tasks.start("ipam-queue", self._ipam_queue.run())
        tasks.start("events", self._events.run())
        if self._settings.has_draining:
            self._start_tainter(tasks)

    def _start_tainter(self, tasks: Tasks) -> None:
        nodes, limit = self.controller.nodes, self._settings.eviction_limit
        tainter = EvictionTainter(self._writer, self._events, nodes, limit)
        self.controller.on_nodes = tainter.nodes_changed
        about = {"fieldSelector": f"reason={PREEMPT_EVENT_REASON},involvedObject.kind=Node"}
        # Other namespaces are tenants', and the policy lets no one else write such an event here.
        path = f"/api/v1/namespaces/{CLUSTER_NAMESPACE}/events"
        preemptions = self._watcher(path, tainter.preemptions, params=about)
        tasks.start("watch-preemptions", preemptions.run())
        tasks.start("preempt", tainter.run())


async def run_allocator(
    settings: AllocatorSettings, outside: AllocatorOutside, stop: asyncio.Event
) -> None:
    """Run the program until `stop` is set, leadership is lost or a task ends."""
    lock, registry, tasks = Lock(settings.namespace), CollectorRegistry(), Tasks()
    metrics = AllocatorMetrics(registry)
    # Differs from that of a former process in the same pod, whose writes may still be pending.
    identity = f"{settings.host}_{uuid.uuid4()}"
    async with outside.kube() as kube:
        elector = Elector(kube, lock, identity, metrics=metrics.leader)
        async with (
            outside.writer(elector) as writer,
            outside.sources(
                metrics.sidecars,
                cluster=lambda: cluster_name(kube),
                may_ask=lambda: elector.may_ask(takes=CALL_SECONDS),
            ) as sources,
        ):
            watcher = partial(Watcher, kube, chance=outside.chance)
            leading = _Leading(watcher, writer, elector, settings, sources, metrics)

            def is_ready() -> bool:
                is_leader = elector.elected.is_set()
                return leading.controller.is_ready if is_leader else elector.has_looked

            async with outside.server(registry, port=settings.port, is_ready=is_ready):
                log.info("started", version=__version__, identity=identity)
                if settings.has_conversion:
                    tasks.start(_CONVERT, outside.conversion(ConversionMetrics(registry)).run())
                only = {"fieldSelector": f"metadata.name={lock.name}"}
                follower = watcher(lock.collection, elector, params=only)
                tasks.start("watch-lock", follower.run())
                tasks.start("elect", elector.run())
                try:
                    await tasks.run_until(stop, elector.elected)
                    if not stop.is_set():
                        leading.start(tasks)
                        await tasks.run_until(stop)
                        await leading.controller.finish()
                finally:
                    await writer.settle()
                    await tasks.stop(*tasks.names - {_CONVERT})
                    await elector.release()
                    if settings.has_conversion and stop.is_set():
                        await asyncio.sleep(_CONVERSION_LINGER_SECONDS)
                    await tasks.stop()
    log.info("stopped")


async def _work(options: argparse.Namespace) -> None:
    host = os.uname().nodename
    settings = AllocatorSettings.read(os.environ, host=host, port=options.metrics_port)
    access = PodAccess.in_cluster(os.environ)
    outside = AllocatorOutside(kube=partial(Kube, access), writer=partial(LeaderKube, access))
    await run_allocator(settings, outside, stop_signal())


def main() -> None:
    """Entry point of the program."""
    description = "Give LoadBalancer Services addresses from the pools of ServiceGroups."
    run(arguments("allocator", description, _ENVIRONMENT).parse_args(), _work)
