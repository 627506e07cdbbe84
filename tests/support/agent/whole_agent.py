# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The node agent's whole program with a fake API and a fake kernel."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from purelb.core.holding.messages import read_message
from purelb.core.node.service_proxy import Answer
from purelb_agent.node import main as program
from simulation.api.server import ApiServer
from tests.support.agent.fake_api import FakeApi
from tests.support.agent.fake_kernel import FakeKernel
from tests.support.agent.kubernetes_objects import (
    NAMESPACE,
    group_object,
    node_object,
    service_object,
)
from tests.support.core.snapshots import ETH0, OWN4, OWN6, VIP4, VIP6
from tests.support.fence.fake_fence import FakeFenceKernel

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/purelb-node-n1"
SERVICE = "/api/v1/namespaces/default/services/web"
VIPS = {(ETH0.index, VIP4), (ETH0.index, VIP6)}


class Cluster(FakeApi):
    """An API server with one node, a group and a Service."""

    def __init__(self):
        super().__init__(ApiServer())
        self.put("/api/v1/nodes", node_object("n1"))
        self.put("/apis/purelb.io/v2/servicegroups", group_object())
        self.put("/api/v1/services", service_object())
        self.kernel, self.listener, self.probes = Kernel(), Listener(), Server()
        self.fence = FakeFenceKernel()
        self.wire, self.service_proxy = Wire(), ServiceProxy()
        self.stop = asyncio.Event()

    @property
    def lease(self):
        return self.find(LEASE)

    @property
    def annotations(self):
        return self.find(SERVICE)["metadata"]["annotations"]

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        pass


class Kernel(FakeKernel):
    """A kernel with eth0 and the node's own addresses."""

    def __init__(self):
        super().__init__(ETH0)
        self.hold(OWN4, OWN6)
        self.is_closed = False
        self.fails_once = False

    def addresses(self):
        if self.fails_once:
            self.fails_once = False
            raise ValueError("an answer that no one can read")
        return super().addresses()

    @property
    def vips(self):
        return set(self.held) & VIPS

    def close(self):
        self.is_closed = True


class Listener:
    """A conflict listener that detects no conflict."""

    def make(self, on_conflict, *, sender):
        self.on_conflict = on_conflict
        return self

    def update(self, _held, _links, *, nodes, now):
        pass

    def answering_nodes(self, _now):
        return ()

    def forgets_at(self, _now):
        return None

    def subscribe(self, _on_settled):
        pass

    def take_settled(self):
        return {}

    async def run(self):
        await asyncio.Event().wait()

    def close(self):
        self.is_closed = True


class Sender:
    """A frame sender that sends nothing."""

    def send(self, _interface, _frames):
        pass

    def close(self):
        pass


class Server:
    """No HTTP server; keeps what it would serve."""

    def make(self, registry, *, port, is_ready, routes):
        self.port, self.is_ready, self.routes = port, is_ready, routes
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        pass


class Request(NamedTuple):
    """A request of a peer."""

    body: bytes

    async def read(self):
        return self.body


class Wire:
    """Sends messages to peers, of which none is answered; `kinds` are those that were sent."""

    def __init__(self):
        self.kinds = []

    def make(self, _port):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        pass

    async def send(self, _address, message):
        self.kinds.append(read_message([b"x" * 32], message, peer="n2").kind)
        raise OSError("no route to host")


class ServiceProxy:
    """A service proxy that gives one answer until another one is set."""

    def __init__(self):
        self.answer, self.port = Answer.GOOD, None

    def make(self, port):
        self.port = port
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        pass

    async def ask(self, _addresses):
        return self.answer


async def run_for(cluster, seconds):
    """Run the program for a while; return its task."""
    outside = program.AgentOutside(
        kube=lambda: cluster,
        kernel=lambda: cluster.kernel,
        fence=lambda: cluster.fence,
        sender=Sender,
        listener=cluster.listener.make,
        server=cluster.probes.make,
        peers=cluster.wire.make,
        service_proxy=cluster.service_proxy.make,
    )
    work = program.run_agent(cluster.settings, outside, cluster.stop)
    task = asyncio.create_task(work)
    await asyncio.sleep(seconds)
    return task
