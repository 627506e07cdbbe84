# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The facade of a running lab, for tests, the demo and the commands: hosts, faults, API, images.

`Lab.load()` returns the lab that is up; `cluster.lifecycle` starts and ends one.
"""

import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from labkit.api import Api
from labkit.cluster import cables, containers, daemons, faults, node_images, routing, state
from labkit.cluster.containers import Container
from labkit.errors import Problem
from labkit.host import cgroups
from labkit.host.places import Places, places
from labkit.net.namespaces import inside, ip_json
from labkit.topology import Host, Interface, Topology


class Lab:
    """The lab that is up. It keeps no state: every call reads the machine."""

    def __init__(self, at: Places, topology: Topology) -> None:
        """Use `Lab.load()`."""
        self.at = at
        self.topology = topology

    @staticmethod
    def load() -> "Lab":
        """Return the running lab. Raises Problem if there is none."""
        at = places()
        topology = state.load_topology(at)
        if topology is None or not (at.run / "ready").exists():
            raise Problem("no lab is up: start one with 'lab up'")
        return Lab(at, topology)

    @property
    def kubeconfig(self) -> Path:
        """The path of the admin's kubeconfig."""
        return self.at.kubeconfig

    @property
    def audit_log(self) -> Path:
        """The path of the audit log: a JSON line per request of a non-system ServiceAccount."""
        return self.at.audit_log

    @property
    def hosts(self) -> dict[str, Host]:
        """All hosts by name: control, router, client, n1, ..."""
        return {h.name: h for h in self.topology.hosts}

    @property
    def nodes(self) -> dict[str, Host]:
        """The nodes by name."""
        return {n.name: n for n in self.topology.nodes}

    @cached_property
    def api(self) -> Api:
        """A client of the API server, as cluster admin."""
        return Api(self.at.run / "pki", self.topology.api_v4)

    def run_in(
        self, host: str, argv: Sequence[str], *, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a host's network namespace, wait for it and capture its output."""
        command = inside(self.topology.host(host).netns, argv)
        return subprocess.run(command, text=True, capture_output=True, check=check, timeout=timeout)

    def popen_in(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command in a host's network namespace; the options are those of Popen."""
        command = inside(self.topology.host(host).netns, argv)
        process = subprocess.Popen(command, **options)
        # A measuring client must not compete with the test that starts it for processor time.
        cgroups.join(self.at.cgroup, cgroups.CLIENTS, process.pid)
        return process

    def addresses(self, host: str) -> list[dict[str, Any]]:
        """Return the parsed `ip -json addr` of a host."""
        links: list[dict[str, Any]] = ip_json(self.topology.host(host).netns, "addr", "show")
        return links

    def containers(self, node: str) -> list[Container]:
        """List the running containers of a node."""
        return list(containers.containers(self.at, self.topology.node(node)))

    def pod_pid(self, node: str, program: str) -> int:
        """Return the pid of a container, or of a program in a pod, on a node."""
        return containers.find_program(self.at, self.topology.node(node), program).pid

    def load_image(self, archive: Path, *nodes: str) -> None:
        """Import an image archive into all nodes, or the named ones, that lack its image."""
        chosen = [self.topology.node(n) for n in nodes] or list(self.topology.nodes)
        node_images.load(self.at, archive, chosen)

    def ctr(self, node: str, *arguments: str) -> str:
        """Run the client of a node's containerd; return its output."""
        return node_images.ctr(self.at, self.topology.node(node), *arguments)

    def connect(self, node: str, lan: str) -> Interface:
        """Give a node one more interface, in this lan; router and client are connected, too.

        Other objects of this class do not know it until they are loaded again.
        """
        self.topology, interface = cables.connect(self.at, node, lan)
        return interface

    def disconnect(self, node: str, lan: str) -> None:
        """Remove the interface that `connect` gave a node in this lan."""
        self.topology = cables.disconnect(self.at, node, lan)

    def cut(self, node: str, interface: str | None = None) -> None:
        """Set the switch ports of a host down, or only that of one interface."""
        faults.set_ports(self.topology, node, up=False, interface=interface)

    def mend(self, node: str, interface: str | None = None) -> None:
        """Set the switch ports of a host up, or only that of one interface."""
        faults.set_ports(self.topology, node, up=True, interface=interface)

    def partition(self, node: str) -> None:
        """Drop all packets between a node and the API server, also of open connections."""
        faults.partition(self.topology, node)

    def heal(self, node: str) -> None:
        """End a partition, if there is one."""
        faults.heal(self.topology, node)

    def stop_api(self) -> None:
        """Kill the API server and wait until it is gone."""
        faults.kill(self.at, self.topology, "control", "kube-apiserver")

    def start_api(self, *, seconds: float = 60) -> None:
        """Start the API server again and wait until it is ready."""
        daemons.start_again(self.at, self.topology.host("control"), "kube-apiserver")
        faults.wait_for_api(self.at, self.api, seconds=seconds)

    def start_routing(self) -> None:
        """Start BGP between router and nodes, which advertise the addresses on their kube-lb0.

        Returns when all sessions are established.
        """
        routing.start(self.at, self.topology)

    def stop_routing(self) -> None:
        """Stop BGP, if it runs, and remove its routes."""
        routing.stop(self.at, self.topology)

    def show_routing(self) -> str:
        """Return a text with the router's BGP sessions and routes."""
        return routing.show(self.at, self.topology)

    def next_hops(self, prefix: str) -> set[str]:
        """Return the nodes that are next hops of the router's BGP route to exactly this prefix."""
        return routing.next_hops(self.topology, prefix)

    def kill(self, host: str, what: str, signal: str = "KILL") -> int:
        """Signal a component, a container or a program in a pod; return its pid."""
        return faults.kill(self.at, self.topology, host, what, signal=signal).pid

    def start(self, host: str, what: str, *options: str) -> int:
        """Restart a component that was killed; return its pid.

        `options` follow its own ones, this time only.
        """
        found = self.topology.host(host)
        return daemons.start_again(self.at, found, what, options).process.pid
