# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The program lbnodeagent: builds its parts, starts them, and stops them in order."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from prometheus_client import CollectorRegistry

from purelb.core.election.claims import ALL_CLASSES, Classes, claimed
from purelb.core.holding.peer_keys import PeerKeys
from purelb.core.names import API_GROUP, API_VERSION, DEFAULT_NAMESPACE, LEADER_LEASE
from purelb.core.node.conflicts import DuplicateAddress
from purelb.core.settings import TimingChoice, parse_port, parse_switch, required
from purelb_agent import __version__
from purelb_agent.fence.fence import AddressFence
from purelb_agent.fence.kernel import FenceKernel
from purelb_agent.holding.ends import Ends
from purelb_agent.holding.outage import OutageKeeper
from purelb_agent.holding.own_lease import Identity
from purelb_agent.holding.questions import Questions
from purelb_agent.holding.renewer import Renewer
from purelb_agent.kube.client import Kube
from purelb_agent.kube.events import Events
from purelb_agent.kube.http import PodAccess
from purelb_agent.kube.store import NodeStore
from purelb_agent.kube.watch import CHANCE, Watcher
from purelb_agent.node.announcer import Announcer
from purelb_agent.node.conflicts import ConflictListener
from purelb_agent.node.decisions import DecisionRecorder
from purelb_agent.node.interfaces import Interfaces
from purelb_agent.node.metrics import NodeMetrics
from purelb_agent.node.netlink import Kernel
from purelb_agent.node.reconcile import Effects, Reconciler
from purelb_agent.node.reporter import Reporter
from purelb_agent.node.service_proxy import ProxyHttp, ProxyWatch
from purelb_agent.node.sockets import FrameSender
from purelb_agent.peers.http import PATH as PEER_PATH
from purelb_agent.peers.http import PeerHttp
from purelb_agent.peers.key_files import PeerKeyFiles
from purelb_agent.peers.peers import Peers, Send
from purelb_agent.runtime import log
from purelb_agent.runtime.probes import Probes
from purelb_agent.runtime.program import METRICS_PORT, arguments, run, stop_signal
from purelb_agent.runtime.tasks import Tasks

# The agent keeps running this long after it deleted its Lease, so that its peers have announced the
# addresses before it ends.
LINGER_SECONDS = 2.0
# Where kube-proxy answers, by default.
SERVICE_PROXY_PORT = 10256
# Where the role mounts the Secret with the keys that the agents share.
PEER_KEYS = Path("/etc/purelb/peers")
_ENVIRONMENT = """\
  PURELB_NODE_NAME       name of this node (required)
  PURELB_POD_UID         UID of this pod, identifies the holder of the Lease (required)
  PURELB_NAMESPACE       namespace of the Leases (purelb-system)
  PURELB_LEASE_DURATION  how long a Lease is valid without renewal; auto: by the number of nodes
                         and what writes take (auto)
  PURELB_RENEW_DEADLINE  time after which a node withdraws if renewals fail (auto)
  PURELB_RETRY_PERIOD    pause after a failed renewal (auto)
  PURELB_OUTAGE_HOLD     keep addresses while no node reaches the API: on or off (on)
  PURELB_CLAIM_UNCLASSED serve Services without a loadBalancerClass: on or off (on)
  PURELB_DRAINING        keep addresses off nodes with a draining taint: on or off (on)
  PURELB_EXCLUDE_LABELLED_NODES
                         and off nodes that take no traffic of load balancers by their label: on or
                         off (off)
  PURELB_FENCE           silence addresses exactly at the end of the right: on or off (on)
  PURELB_SERVICE_PROXY_PORT
                         health port of kube-proxy; 0: do not ask it (10256)
"""


@dataclass(frozen=True)
class AgentSettings:
    """What the environment and the command line say.

    `keys` returns the present keys of the agents; None if peers are not to be asked.
    """

    identity: Identity
    timing: TimingChoice = field(default_factory=TimingChoice)
    classes: Classes = ALL_CLASSES
    drains: bool = True
    excludes: bool = False
    keys: Callable[[], PeerKeys] | None = None
    port: int = METRICS_PORT
    service_proxy_port: int = SERVICE_PROXY_PORT
    fences: bool = True

    @classmethod
    def read(
        cls, environ: Mapping[str, str], *, port: int, keys: Path = PEER_KEYS
    ) -> AgentSettings:
        """Read the settings; `keys` is the folder of the keys. SettingError if one is invalid."""
        keeps_addresses = parse_switch(environ, "PURELB_OUTAGE_HOLD", default=True)
        files = PeerKeyFiles.open(keys) if keeps_addresses else None
        return cls(
            _identity(environ),
            TimingChoice.parse(environ),
            claimed(unclassed=parse_switch(environ, "PURELB_CLAIM_UNCLASSED", default=True)),
            parse_switch(environ, "PURELB_DRAINING", default=True),
            parse_switch(environ, "PURELB_EXCLUDE_LABELLED_NODES", default=False),
            None if files is None else files.current,
            port,
            parse_port(environ, "PURELB_SERVICE_PROXY_PORT", default=SERVICE_PROXY_PORT),
            parse_switch(environ, "PURELB_FENCE", default=True),
        )

    def key_ids(self) -> tuple[str, ...]:
        """Return the ids of the keys in use at present, the one that signs first."""
        return () if self.keys is None else self.keys().ids


def _identity(environ: Mapping[str, str]) -> Identity:
    remediation = "set it from the pod's fields, as the role purelb_install does"
    return Identity(
        node=required(environ, "PURELB_NODE_NAME", remediation),
        instance=required(environ, "PURELB_POD_UID", remediation),
        namespace=environ.get("PURELB_NAMESPACE") or DEFAULT_NAMESPACE,
    )


@dataclass(frozen=True)
class AgentOutside:
    """How the agent reaches what is outside of it: makers of its clients and of its server.

    `chance` spreads requests that many nodes would make at the same time.
    """

    kube: Callable[[], Kube]
    kernel: Callable[[], Kernel] = Kernel
    fence: Callable[[], FenceKernel] = FenceKernel
    sender: Callable[[], FrameSender] = FrameSender
    listener: Callable[..., ConflictListener] = ConflictListener
    peers: Callable[[int], PeerHttp] = PeerHttp
    service_proxy: Callable[[int], ProxyHttp] = ProxyHttp
    server: Callable[..., Probes] = Probes
    chance: Random = CHANCE


def _watchers(
    kube: Kube, store: NodeStore, identity: Identity, chance: Random
) -> dict[str, Watcher]:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{identity.namespace}/leases"
    ours = f"/apis/{API_GROUP}/{API_VERSION}/namespaces/{identity.namespace}"
    # Without the allocators' lock, which changes every two seconds and belongs to no node.
    node_leases = {"fieldSelector": f"metadata.name!={LEADER_LEASE}"}
    load_balancers = {"fieldSelector": "spec.type=LoadBalancer"}
    watcher = partial(Watcher, kube, chance=chance)
    return {
        "leases": watcher(leases, store.leases, params=node_leases),
        "groups": watcher(f"{ours}/servicegroups", store.groups),
        "configs": watcher(f"{ours}/lbnodeagents", store.configs),
        "nodes": watcher("/api/v1/nodes", store.nodes),
        "slices": watcher("/apis/discovery.k8s.io/v1/endpointslices", store.slices),
        "services": watcher("/api/v1/services", store.services, params=load_balancers),
    }


class _Agent:
    """The parts of the program."""

    def __init__(
        self, kube: Kube, settings: AgentSettings, outside: AgentOutside, send: Send
    ) -> None:
        self.registry = CollectorRegistry()
        identity = settings.identity
        self.metrics = metrics = NodeMetrics(self.registry)
        self.store = store = NodeStore(
            identity.node,
            classes=settings.classes,
            drains=settings.drains,
            excludes=settings.excludes,
            timing=settings.timing,
        )
        self.kernel = outside.kernel()
        self.watchers = _watchers(kube, store, identity, outside.chance)
        self.fence = AddressFence(outside.fence if settings.fences else None, metrics.fence)
        self.renewer = Renewer(
            kube,
            store,
            identity,
            metrics=metrics.lease,
            key_ids=settings.key_ids,
            control=self.fence.control,
        )
        store.leases.watch_anew = self.watchers["leases"].refresh
        self.events = Events(kube, component="lbnodeagent", instance=identity.node)
        self.reporter = Reporter(kube, store, self.events, identity.node)
        self.sender = outside.sender()
        self.conflict_listener = outside.listener(self._on_conflict, sender=self.sender)
        effects = Effects(
            Interfaces(self.kernel, metrics.addresses),
            self.fence,
            Announcer(metrics.announcements, sender=self.sender),
            self.conflict_listener,
            DecisionRecorder(identity.node, metrics.election),
            self.reporter,
        )
        self.peers = self._peers(settings, send)
        self.ends = Ends(kube, identity.namespace, store, self.renewer, self.peers)
        self.questions = self._questions()
        self.reconciler = Reconciler(
            store,
            self.renewer,
            effects,
            metrics=metrics,
            questions=self.questions,
        )

    def _questions(self) -> Questions | None:
        if self.peers is None:
            return None
        return Questions(
            self.store,
            self.renewer,
            self.peers,
            look_anew=self._look_anew,
            metrics=self.metrics.lease,
        )

    def _look_anew(self) -> None:
        self.watchers["leases"].refresh()
        self.watchers["nodes"].refresh()

    def _on_conflict(self, conflict: DuplicateAddress) -> None:
        self.metrics.addresses.count_conflict()
        self.reporter.report_conflict(conflict)
        if conflict.node:
            # For the Lease, which names it.
            self.store.changed.notify()
        else:
            self.renewer.list_duplicate(conflict.address)

    def _peers(self, settings: AgentSettings, send: Send) -> Peers | None:
        """Return the peers to ask; None if that is switched off."""
        if settings.keys is None:
            log.warning("peersNotAsked", reason="switched off, or no key", folder=PEER_KEYS)
            return None
        return Peers(settings.identity.node, settings.keys, send=send)

    def start(self, tasks: Tasks) -> None:
        """Start all tasks except the outage keeper."""
        for name, watcher in self.watchers.items():
            tasks.start(f"watch-{name}", watcher.run())
        tasks.start("reconcile", self.reconciler.run())
        tasks.start("renew", self.renewer.run())
        tasks.start("ends", self.ends.run())
        if self.questions is not None:
            tasks.start("over", self.questions.over_reporter.run())
        tasks.start("report", self.reporter.run())
        tasks.start("events", self.events.run())
        tasks.start("conflicts", self.conflict_listener.run())

    async def leave(self, tasks: Tasks) -> None:
        """Leave the election, withdraw all addresses, delete the Lease, linger: in this order.

        Before its first plan an agent does not know which addresses an earlier one left. They end
        with their lifetimes, before the Lease does, so that is left to end, too.
        """
        log.info("leaving", node=self.renewer.node)
        self.renewer.leave()
        self.reconciler.withdraw_all()
        await tasks.stop("renew", "reconcile")
        if self.questions is not None:
            self.questions.cancel()
        if self.reconciler.has_acted:
            await self.renewer.delete()
        # Meanwhile the reporter removes this node's entries from the annotations.
        await asyncio.sleep(LINGER_SECONDS)
        await tasks.stop()
        self.conflict_listener.close()
        self.sender.close()
        self.kernel.close()
        self.fence.close()


async def run_agent(settings: AgentSettings, outside: AgentOutside, stop: asyncio.Event) -> None:
    """Run the program until `stop` is set, or until one of its tasks ends."""
    tasks = Tasks()
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(outside.kube())
        peer_http = await stack.enter_async_context(outside.peers(settings.port))
        proxy = await stack.enter_async_context(outside.service_proxy(settings.service_proxy_port))
        agent = _Agent(kube, settings, outside, peer_http.send)
        peers = agent.peers
        routes = {} if peers is None else {PEER_PATH: peers.handle}
        await stack.enter_async_context(
            outside.server(
                agent.registry,
                port=settings.port,
                is_ready=lambda: agent.reconciler.is_ready,
                routes=routes,
            )
        )
        log.info("started", version=__version__, node=settings.identity.node)
        agent.start(tasks)
        if settings.service_proxy_port:
            proxy_watch = ProxyWatch(proxy, agent.store, settings.identity.node)
            tasks.start("service-proxy", proxy_watch.run())
        if peers is not None:
            outage_keeper = OutageKeeper(
                peers,
                agent.renewer,
                agent.store,
                agent.events,
                metrics=agent.metrics.lease,
            )
            tasks.start("hold", outage_keeper.run())
        try:
            await tasks.run_until(stop)
        finally:
            await agent.leave(tasks)
    log.info("stopped")


async def _work(options: argparse.Namespace) -> None:
    settings = AgentSettings.read(os.environ, port=options.metrics_port)
    outside = AgentOutside(kube=partial(Kube, PodAccess.in_cluster(os.environ)))
    await run_agent(settings, outside, stop_signal())


def main() -> None:
    """Run the program."""
    description = "Announce the addresses of LoadBalancer Services that this node was elected for."
    run(arguments("lbnodeagent", description, _ENVIRONMENT).parse_args(), _work)
