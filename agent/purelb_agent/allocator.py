# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The program allocator: puts its parts together, starts them, and ends them."""

from __future__ import annotations

import argparse
import os

from prometheus_client import CollectorRegistry

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.allocate import ALL_CLASSES
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.names import (
    API_GROUP,
    API_VERSION,
    DEFAULT_NAMESPACE,
    PREEMPT_EVENT_REASON,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.settings import parse_switch

from . import __version__, log
from .allocating import Allocating
from .events import Events
from .groupstatus import GroupStatus
from .kube import Access, Kube
from .metrics import AllocatorMetrics
from .pools import Pools
from .preempting import Preempting
from .probes import Probes
from .program import arguments, run, stop_signal
from .servicewriter import ServiceWriter
from .tasks import Tasks
from .watch import Watcher

_ENVIRONMENT = """\
  PURELB_NAMESPACE  namespace of the ServiceGroups (purelb-system)
  PURELB_UNCLASSED  on: Services without a loadBalancerClass are ours, too; or off (on)
  PURELB_DRAINING   on: an event PreemptScheduled about a Node taints it; or off (on)
"""


def _start_preempting(tasks: Tasks, kube: Kube, events: Events) -> None:
    preempting = Preempting(kube, events)
    nodes = Watcher(kube, "/api/v1/nodes", preempting.nodes)
    about = {"fieldSelector": f"reason={PREEMPT_EVENT_REASON},involvedObject.kind=Node"}
    preemptions = Watcher(kube, "/api/v1/events", preempting.preemptions, params=about)
    tasks.start("watch-nodes", nodes.run())
    tasks.start("watch-preemptions", preemptions.run())
    tasks.start("preempt", preempting.run())


async def _work(options: argparse.Namespace) -> None:
    namespace = os.environ.get("PURELB_NAMESPACE") or DEFAULT_NAMESPACE
    has_draining = parse_switch(os.environ, "PURELB_DRAINING", default=True)
    takes_unclassed = parse_switch(os.environ, "PURELB_UNCLASSED", default=True)
    classes = ALL_CLASSES if takes_unclassed else ALL_CLASSES - {None}
    registry = CollectorRegistry()
    metrics = AllocatorMetrics(registry)
    stop, tasks = stop_signal(), Tasks()

    def may_write() -> bool:
        return True

    async with Kube(Access.in_cluster(os.environ)) as kube:
        events = Events(kube, component="allocator", instance=os.uname().nodename)
        status = GroupStatus(kube, metrics, namespace=namespace, may_write=may_write)
        pools = Pools(status, events, metrics, namespace=namespace)
        writer = ServiceWriter(kube, may_write)
        allocating = Allocating(writer, pools, events, metrics, classes=classes)
        async with Probes(
            registry, port=options.metrics_port, is_ready=lambda: allocating.is_ready
        ):
            log.info("started", version=__version__)
            # All namespaces: a group in the wrong one is to be found by its metric.
            groups = f"/apis/{API_GROUP}/{API_VERSION}/servicegroups"
            leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
            tasks.start("watch-groups", Watcher(kube, groups, pools).run())
            tasks.start("watch-leases", Watcher(kube, leases, allocating.leases).run())
            services = Watcher(kube, "/api/v1/services", allocating.services)
            tasks.start("watch-services", services.run())
            tasks.start("allocate", allocating.run())
            tasks.start("group-status", status.run())
            tasks.start("events", events.run())
            if has_draining:
                _start_preempting(tasks, kube, events)
            try:
                await tasks.run_until(stop)
                await allocating.finish()
            finally:
                await tasks.stop()
    log.info("stopped")


def main() -> None:
    """Entry point of the program."""
    description = "Give LoadBalancer Services addresses from the pools of ServiceGroups."
    run(arguments("allocator", description, _ENVIRONMENT).parse_args(), _work)
