# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A cluster: nodes with agents, two allocators, an API server, one segment, all on one timeline.

The programs are the real ones, from their composition roots on. The caller acts as its
users and operators do, by objects in the API server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address

from purelb.core.holding.peer_keys import PeerKeys
from purelb.core.model import Address
from purelb.core.names import DEFAULT_NAMESPACE
from purelb_agent.allocator.main import AllocatorOutside, AllocatorSettings, run_allocator
from purelb_agent.fence.moment import MOMENT_BYTES
from purelb_agent.holding.own_lease import Identity
from purelb_agent.kube.client import Kube
from purelb_agent.leader.leader_kube import LeaderKube
from purelb_agent.node.conflicts import ConflictListener
from purelb_agent.node.main import AgentOutside, AgentSettings, run_agent
from purelb_agent.node.netlink import Kernel as KernelClient
from purelb_agent.peers.http import PATH as PEER_PATH
from simulation.api.objects import Json, Key
from simulation.api.server import ApiServer
from simulation.api.transport import ModelAccess
from simulation.api.way import Way
from simulation.between import Between
from simulation.chance import stream
from simulation.collector import Collector
from simulation.kubelet import Kubelet
from simulation.manifests import (
    KINDS,
    NET4,
    NET6,
    OTHER4,
    OTHER6,
    POOLS,
    ingress,
    node_object,
    own_lease_alone,
)
from simulation.member import ETH0, ETH1, Node
from simulation.node.hosts import Host
from simulation.node.http import ModelPeers, ModelServer, Network
from simulation.node.kernel import Kernel
from simulation.node.netlink import ModelResumes
from simulation.node.service_proxy import ModelProxy
from simulation.node.wire import Net, Segment, WireSender, listen_on
from simulation.shape import PLAIN, Other, Shape
from simulation.time.machine import Machine
from simulation.time.process import Process, simulated_clocks
from simulation.time.timeline import MICROSECONDS, Action, Timeline

_BOOKMARKS = 60.0


class Cluster(Between):
    """A cluster that has just been made; nothing runs before `run`.

    `seed` decides all that chance decides, `shape` how it is built.
    """

    def __init__(
        self, seed: int, names: Sequence[str] = ("n1", "n2", "n3"), shape: Shape = PLAIN
    ) -> None:
        self.seed, self.shape = seed, shape
        self.timeline = Timeline(seed)
        self.api = ApiServer([own_lease_alone], clock=self.timeline.true_time)
        super().__init__(Network(self.timeline, self._delays("peers", 0.0005, 0.002), seed=seed))
        self.segment = self.add_segment("wire", (NET4, NET6))
        self.host = Host()
        self.segment.hosts.append(self.host)
        if shape.other is not Other.NONE:
            self.add_segment("other", (OTHER4, OTHER6)).hosts.append(Host("client elsewhere"))
        self.processes: list[Process] = []
        # Called when an agent has started, leaves, or has ended.
        self.noted: Action = lambda: None
        self._ways: dict[str, Way] = {}
        self.kubelets: dict[str, Kubelet] = {}
        # The last container of each.
        self.allocators: dict[str, Process] = {}
        self.nodes: dict[str, Node] = {}
        for name in names:
            self.add_node(name)
        delay = self._delays("collector", 0.5, 5.0)
        Collector(self.timeline, self.api, delay, owned=KINDS["leases"]).follow(KINDS["nodes"])
        self.put("groups", DEFAULT_NAMESPACE, "default", {"spec": {"local": POOLS}})
        self.timeline.after(_BOOKMARKS, self._bookmarks)

    # Nodes

    def add_segment(self, name: str, nets: Iterable[Net]) -> Segment:
        """Add a segment with these subnets, to which nothing is connected yet."""
        delay = self._delays(name, 0.0001, 0.0005)
        made = Segment(self.timeline, delay, seed=self.seed, nets=nets)
        self.segments.append(made)
        return made

    def nodes_on(self, segment: Segment) -> list[Node]:
        """Return the nodes that are connected to a segment."""
        return [node for node in self.nodes.values() if segment.link_of(node.kernel)]

    def add_node(self, name: str) -> Node:
        """Add a machine to the cluster, without an agent yet."""
        kernel = Kernel(Machine(self.timeline, name), stream(self.seed, name, "kernel"))
        kubelet = self.kubelet(f"agent/{name}", lambda: self.start_container(node))
        is_second = self.shape.other is not Other.NONE and self.shape.is_second(name)
        segment = self.segments[is_second and self.shape.other is Other.RACK]
        nets = self.shape.of_versions(segment.nets)
        node = self.nodes[name] = Node(kernel, len(self.nodes) + 1, kubelet, nets)
        node.timing = self.shape.timing
        segment.attach(node.kernel, node.eth0)
        node.kernel.fence.is_forbidden = not self.shape.is_fenced(name)
        if is_second and self.shape.other is Other.LINK:
            self.connect(node, self.segments[1])
        self.register(node)
        return node

    def connect(self, node: Node, segment: Segment) -> None:
        """Connect a node to another segment, by a second interface."""
        eth1 = node.add_second_link(self.shape.of_versions(segment.nets))
        segment.attach(node.kernel, eth1)

    # Objects

    def register(self, node: Node) -> None:
        """Create the Node of a machine, as its kubelet does when it starts."""
        self.put("nodes", "", node.name, node_object(node.addresses))

    def put(self, kind: str, namespace: str, name: str, body: Json) -> None:
        """Create or replace an object as a user does."""
        key = Key(KINDS[kind], namespace, name)
        stored = self.api.objects.find(key)
        uid = self.api.objects.next_uid() if stored is None else stored.body["metadata"]["uid"]
        metadata = {**body.get("metadata", {}), "name": name, "namespace": namespace, "uid": uid}
        self.api.objects.put(key, {**body, "metadata": metadata})

    def find(self, kind: str, namespace: str, name: str) -> Json | None:
        """Return an object as it is now; it must not be changed."""
        stored = self.api.objects.find(Key(KINDS[kind], namespace, name))
        return None if stored is None else stored.body

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object as a user does."""
        self.api.objects.drop(Key(KINDS[kind], namespace, name))

    def add_service(self, name: str) -> None:
        """Create a Service of type LoadBalancer, with all families of the cluster."""
        families = {"ipFamilies": list(self.shape.families), "ipFamilyPolicy": self.shape.policy}
        ports = [{"port": 80, "protocol": "TCP"}]
        self.put(
            "services",
            "default",
            name,
            {"spec": {"type": "LoadBalancer", "ports": ports, **families}},
        )

    def addresses(self) -> dict[Address, str]:
        """Return the Services' addresses, each with the name of the Service that has it."""
        return {
            ip_address(entry["ip"]): stored.key.name
            for stored in self.api.objects.of_kind(KINDS["services"], "")
            for entry in ingress(stored.body)
        }

    def holders(self, address: Address) -> list[str]:
        """Return the nodes whose kernel has an address.

        Without those that are paused or suspended, or whose interface has no carrier: they answer
        no host, so another one may have it. The moment that they do, they are holders again.
        """
        places = (ETH0, address), (ETH1, address)
        return [
            node.name
            for node in self.nodes.values()
            if node.machine.runs and any(node.kernel.answers_on(place) for place in places)
        ]

    # Programs

    def start_agent(self, node: Node) -> None:
        """Start a new Pod of the agent on a node."""
        node.pods += 1
        node.kernel.fence.moment = bytearray(MOMENT_BYTES)
        node.kubelet.begin_pod()
        self.start_container(node)

    def start_container(self, node: Node) -> None:
        """Start the agent in the Pod that a node has."""
        process = node.agent = self._process(node.machine, f"agent {node.name}")
        node.stop, node.is_leaving = asyncio.Event(), False
        identity = Identity(node.name, f"{node.name}-{node.pods}", DEFAULT_NAMESPACE)
        keys = None if node.keys is None else partial(_keys_of, node)
        settings = AgentSettings(identity, timing=node.timing, excludes=True, keys=keys)
        outside = AgentOutside(
            kube=partial(Kube, self._access(process, f"agent/{node.name}")),
            kernel=partial(
                KernelClient,
                open_socket=partial(node.kernel.open_socket, process),  # type: ignore[arg-type]
                open_resumes=partial(ModelResumes, process),  # type: ignore[arg-type]
            ),
            fence=partial(node.kernel.open_fence, process),  # type: ignore[arg-type]
            sender=partial(WireSender, self.segments, node.kernel),  # type: ignore[arg-type]
            listener=partial(
                ConflictListener,
                listen=partial(listen_on, self.segments, node.kernel, process),  # type: ignore[arg-type]
            ),
            service_proxy=partial(ModelProxy, node),  # type: ignore[arg-type]
            peers=partial(ModelPeers, self.network, process, PEER_PATH),  # type: ignore[arg-type]
            server=partial(ModelServer, self.network, process, node.addresses),  # type: ignore[arg-type]
            chance=stream(self.seed, process.name, str(node.pods), *node.kubelet.again()),
        )
        process.start(run_agent(settings, outside, node.stop))
        process.on_end(self._agent_ended)
        node.kubelet.container_began(process)
        self.noted()

    def _agent_ended(self) -> None:
        self.noted()

    def restart_container(self, node: Node) -> None:
        """Kill the container of a node's agent, and start another one in the same Pod at once."""
        self._kill(node)
        self.start_container(node)

    def kubelet(self, user: str, start: Action) -> Kubelet:
        """Make the kubelet for the Pods of a program."""
        made = self.kubelets[user] = Kubelet(self.timeline, start)
        return made

    def run_kubelets(self) -> None:
        """Let the containers that end from now on be started again, however they ended."""
        for kubelet in self.kubelets.values():
            kubelet.is_on = True

    def stop_agent(self, node: Node) -> None:
        """Send a node's agent SIGTERM."""
        node.kubelet.end_pod()
        node.is_leaving = True
        if node.agent is not None:
            node.agent.deliver(node.stop.set)
        self.noted()

    def kill_agent(self, node: Node) -> None:
        """End a node's agent at once; the kernel keeps its addresses until their lifetimes end."""
        agent = node.agent
        if agent is not None and not (agent.is_dead or agent.has_ended):
            self._kill(node)
            node.kubelet.container_ended(agent)

    def _kill(self, node: Node) -> None:
        if node.agent is not None:
            node.agent.kill()
            self.way(f"agent/{node.name}").abandon()

    def power_off(self, node: Node) -> None:
        """Let a node lose its power."""
        node.kubelet.end_pod()
        self._kill(node)
        node.set_up(is_up=False)
        node.kernel.lose_power()

    def power_on(self, node: Node) -> None:
        """Boot a node, without an agent yet."""
        node.set_up(is_up=True)
        node.add_addresses()

    def pause(self, node: Node) -> None:
        """Stop a node with all its clocks, as a hypervisor does."""
        node.machine.pause()

    def suspend(self, node: Node) -> None:
        """Let a node sleep: its clocks continue, but no program and no timer does.

        It hears no frame and no question. What the API server sends is found when it resumes; who
        wants that to be later, as TCP repeats it, drops its way meanwhile.
        """
        node.machine.suspend()

    def resume(self, node: Node, *, sets_wall_clock: bool = False) -> None:
        """Let a node resume; what came meanwhile is there."""
        node.machine.resume(sets_wall_clock=sets_wall_clock)

    def start_allocator(self, name: str) -> None:
        """Start an allocator on a machine of its own."""
        container = partial(self._start_allocator, Machine(self.timeline, name), name)
        self.kubelet(f"allocator/{name}", container).begin_pod()
        container()

    def _start_allocator(self, machine: Machine, name: str) -> None:
        process = self.allocators[name] = self._process(machine, f"allocator {name}")
        kubelet = self.kubelets[f"allocator/{name}"]
        access = self._access(process, f"allocator/{name}")
        outside = AllocatorOutside(
            kube=partial(Kube, access),
            writer=partial(LeaderKube, access),
            server=partial(ModelServer, self.network, process, ()),  # type: ignore[arg-type]
            chance=stream(self.seed, process.name, *kubelet.again()),
        )
        process.start(run_allocator(AllocatorSettings(name), outside, asyncio.Event()))
        kubelet.container_began(process)

    def start(self) -> None:
        """Start all programs, the agents at moments of their own."""
        phases = stream(self.seed, "starts")
        for node in self.nodes.values():
            self.timeline.after(phases.uniform(0, 6), partial(self.start_agent, node))
        for name in ("allocator-1", "allocator-2"):
            self.timeline.after(phases.uniform(0, 6), partial(self.start_allocator, name))

    def run(self, seconds: float) -> None:
        """Let so much time pass; raises what ended a program that no kubelet starts again."""
        self.timeline.run(self.timeline.now + int(seconds * MICROSECONDS))
        restarted = [p for kubelet in self.kubelets.values() for p in kubelet.ended]
        for process in self.processes:
            if process.error is not None and process not in restarted:
                raise RuntimeError(f"{process.name} ended") from process.error

    def close(self) -> None:
        """Give up all programs."""
        for process in self.processes:
            process.close()

    def _process(self, machine: Machine, name: str) -> Process:
        made = Process(machine, name)
        self.processes.append(made)
        return made

    def way(self, user: str) -> Way:
        """Return the way of a program to the API server: of `agent/NODE` or `allocator/NAME`."""
        if user not in self._ways:
            self._ways[user] = Way(
                self.timeline,
                request=self._delays(f"{user} requests", 0.001, 0.005),
                answer=self._delays(f"{user} answers", 0.004, 0.015),
                event=self._delays(f"{user} events", 0.001, 0.006),
            )
        return self._ways[user]

    def _access(self, process: Process, user: str) -> ModelAccess:
        return ModelAccess(self.api, process, self.way(user), user)

    def _delays(self, name: str, least: float, most: float) -> Callable[[], float]:
        draw, span = stream(self.seed, name, "delay").random, most - least
        return lambda: least + span * draw()

    def _bookmarks(self) -> None:
        self.api.send_bookmarks()
        self.timeline.after(_BOOKMARKS, self._bookmarks)


def _keys_of(node: Node) -> PeerKeys:
    if node.keys is None:
        raise RuntimeError(f"the keys of {node.name} were taken away from a running agent")
    return node.keys


@contextmanager
def quiet() -> Iterator[None]:
    """Let the programs log no more than warnings."""
    logger = logging.getLogger("purelb")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def simulated(
    seed: int, names: Sequence[str] = ("n1", "n2", "n3"), shape: Shape = PLAIN
) -> Iterator[Cluster]:
    """Make a cluster, and end all of it afterwards."""
    with quiet(), simulated_clocks():
        cluster = Cluster(seed, names, shape)
        try:
            yield cluster
        finally:
            cluster.close()
