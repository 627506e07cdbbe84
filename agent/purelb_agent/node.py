# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The program lbnodeagent: puts its parts together, starts them, and ends them in order."""

from __future__ import annotations

import argparse
import asyncio
import os

from prometheus_client import CollectorRegistry

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.names import (
    API_GROUP,
    API_VERSION,
    DEFAULT_NAMESPACE,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.settings import (
    LeaseTiming,
    parse_switch,
    required,
)

from . import __version__, log
from .events import Events
from .interfaces import Interfaces
from .kube import Access, Kube
from .metrics import NodeMetrics
from .netlink import Kernel
from .probes import Probes
from .program import arguments, run, stop_signal
from .reconcile import Reconciler
from .renewer import Identity, Renewer
from .reporter import Reporter
from .store import NodeStore
from .tasks import Tasks
from .watch import Watcher

# After its Lease is gone a node stays, so that its peers' announcements are out before it is.
STAY_SECONDS = 2.0
_ENVIRONMENT = """\
  PURELB_NODE_NAME       name of this node (required)
  PURELB_POD_UID         UID of this pod, marks the Lease as its own (required)
  PURELB_NAMESPACE       namespace of the Leases (purelb-system)
  PURELB_LEASE_DURATION  how long a Lease counts without renewal (10s)
  PURELB_RENEW_DEADLINE  when a node withdraws if renewals fail (7s)
  PURELB_RETRY_PERIOD    pause between failed renewals (2s)
  PURELB_DRAINING        whether taints of a leaving node keep addresses away: on or off (on)
"""


def _identity() -> Identity:
    mend = "set it from the pod's fields, as the role purelb_install does"
    return Identity(
        node=required(os.environ, "PURELB_NODE_NAME", mend),
        instance=required(os.environ, "PURELB_POD_UID", mend),
        namespace=os.environ.get("PURELB_NAMESPACE") or DEFAULT_NAMESPACE,
    )


def _watchers(kube: Kube, store: NodeStore, identity: Identity) -> dict[str, Watcher]:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{identity.namespace}/leases"
    ours = f"/apis/{API_GROUP}/{API_VERSION}/namespaces/{identity.namespace}"
    balanced = {"fieldSelector": "spec.type=LoadBalancer"}
    return {
        "leases": Watcher(kube, leases, store.leases),
        "groups": Watcher(kube, f"{ours}/servicegroups", store.groups),
        "configs": Watcher(kube, f"{ours}/lbnodeagents", store.configs),
        "nodes": Watcher(kube, "/api/v1/nodes", store.nodes),
        "slices": Watcher(kube, "/apis/discovery.k8s.io/v1/endpointslices", store.slices),
        "services": Watcher(kube, "/api/v1/services", store.services, params=balanced),
    }


async def _leave(tasks: Tasks, renewer: Renewer, reconciler: Reconciler) -> None:
    """Leave the election, withdraw all, delete the Lease, stay a little: in this order."""
    log.info("leaving")
    renewer.leave()
    reconciler.withdraw_all()
    await tasks.stop("renew", "reconcile")
    await renewer.delete()
    # The reporter is still there and takes this node's entries out of the annotations.
    await asyncio.sleep(STAY_SECONDS)
    await tasks.stop()


async def _work(options: argparse.Namespace) -> None:
    identity, timing = _identity(), LeaseTiming.parse(os.environ)
    registry = CollectorRegistry()
    drains = parse_switch(os.environ, "PURELB_DRAINING", default=True)
    metrics, tasks = NodeMetrics(registry), Tasks()
    store = NodeStore(identity.node, drains=drains)
    stop = stop_signal()
    async with Kube(Access.in_cluster(os.environ)) as kube:
        kernel = Kernel()
        renewer = Renewer(kube, store, identity, timing=timing, metrics=metrics)
        events = Events(kube, component="lbnodeagent", instance=identity.node)
        reporter = Reporter(kube, store, events, identity.node)
        watchers = _watchers(kube, store, identity)
        reconciler = Reconciler(
            Interfaces(kernel, metrics),
            store,
            renewer,
            reporter,
            metrics=metrics,
            ask_again=watchers["leases"].refresh,
        )
        probes = Probes(registry, port=options.metrics_port, is_ready=lambda: reconciler.is_ready)
        async with probes:
            log.info("started", version=__version__, node=identity.node)
            for name, watcher in watchers.items():
                tasks.start(f"watch-{name}", watcher.run())
            tasks.start("reconcile", reconciler.run())
            tasks.start("renew", renewer.run())
            tasks.start("report", reporter.run())
            tasks.start("events", events.run())
            try:
                await tasks.run_until(stop)
            finally:
                await _leave(tasks, renewer, reconciler)
        kernel.close()
    log.info("stopped")


def main() -> None:
    """Entry point of the program."""
    description = "Announce the addresses of LoadBalancer Services that this node has won."
    run(arguments("lbnodeagent", description, _ENVIRONMENT).parse_args(), _work)
