# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The program allocator: puts its parts together, starts them, and ends them."""

from __future__ import annotations

import argparse
import os

from prometheus_client import CollectorRegistry

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
from .kube import Access, Kube
from .metrics import AllocatorMetrics
from .preempting import Preempting
from .probes import Probes
from .program import arguments, run, stop_signal
from .tasks import Tasks
from .watch import Watcher

_ENVIRONMENT = """\
  PURELB_NAMESPACE  namespace of the ServiceGroups (purelb-system)
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
    registry = CollectorRegistry()
    stop, tasks = stop_signal(), Tasks()
    async with Kube(Access.in_cluster(os.environ)) as kube:
        events = Events(kube, component="allocator", instance=os.uname().nodename)
        allocating = Allocating(kube, events, AllocatorMetrics(registry))
        groups = f"/apis/{API_GROUP}/{API_VERSION}/namespaces/{namespace}/servicegroups"
        async with Probes(
            registry, port=options.metrics_port, is_ready=lambda: allocating.is_ready
        ):
            log.info("started", version=__version__)
            tasks.start("watch-groups", Watcher(kube, groups, allocating.groups).run())
            services = Watcher(kube, "/api/v1/services", allocating.services)
            tasks.start("watch-services", services.run())
            tasks.start("allocate", allocating.run())
            tasks.start("events", events.run())
            if has_draining:
                _start_preempting(tasks, kube, events)
            try:
                await tasks.run_until(stop)
            finally:
                await tasks.stop()
    log.info("stopped")


def main() -> None:
    """Entry point of the program."""
    description = "Give LoadBalancer Services addresses from the pools of ServiceGroups."
    run(arguments("allocator", description, _ENVIRONMENT).parse_args(), _work)
