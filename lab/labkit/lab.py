# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The running lab as tests and the demo use it: hosts, faults, commands in hosts, the API.

`Lab.load()` gives the lab that is up. Nothing here starts or ends a lab; see up.py and down.py.
"""

import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from labkit.api import Api
from labkit.cluster import containers, daemons, faults, routing, state
from labkit.cluster.containers import Container
from labkit.errors import Problem
from labkit.host import cgroups
from labkit.host.places import Places, places
from labkit.host.processes import Process
from labkit.net.namespaces import inside, ip_json
from labkit.topology import Host, Topology


class Lab:
    """The lab that is up. Stateless: every answer is the machine's own, of this moment."""

    def __init__(self, at: Places, topology: Topology) -> None:
        """Use `Lab.load()`."""
        self.at = at
        self.topology = topology

    @staticmethod
    def load() -> "Lab":
        """Return the running lab, or say how to start one."""
        at = places()
        topology = state.load_topology(at)
        if topology is None or not (at.run / "ready").exists():
            raise Problem("no lab is up: start one with 'lab up'")
        return Lab(at, topology)

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.at.kubeconfig

    @property
    def audit_log(self) -> Path:
        """One JSON line for each request of a ServiceAccount outside kube-system."""
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
        """Run a command in a host's network namespace and wait for it; output is captured."""
        command = inside(self.topology.host(host).netns, argv)
        return subprocess.run(command, text=True, capture_output=True, check=check, timeout=timeout)

    def popen_in(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command in a host's network namespace; options are those of Popen."""
        command = inside(self.topology.host(host).netns, argv)
        process = subprocess.Popen(command, **options)
        # What it measures is the lab, not how much of a processor its starter leaves it.
        cgroups.join(self.at.cgroup, cgroups.CLIENTS, process.pid)
        return process

    def addresses(self, host: str) -> list[dict[str, Any]]:
        """Return the parsed `ip -json addr` of a host."""
        links: list[dict[str, Any]] = ip_json(self.topology.host(host).netns, "addr", "show")
        return links

    def holders(self, vip: str) -> set[str]:
        """Return the nodes that have an address on any interface but lo."""
        return {name for name in self.nodes if self._has(name, vip)}

    def _has(self, node: str, vip: str) -> bool:
        links = (link for link in self.addresses(node) if link.get("ifname") != "lo")
        return any(a.get("local") == vip for link in links for a in link.get("addr_info", []))

    def containers(self, node: str) -> list[Container]:
        """List the running containers of a node."""
        return list(containers.containers(self.at, self.topology.node(node)))

    def pod_pid(self, node: str, program: str) -> int:
        """Return the pid of a container, or of a program in a pod, on a node."""
        return containers.find_program(self.at, self.topology.node(node), program).pid

    def load_image(self, archive: Path, *nodes: str) -> None:
        """Import an image archive into all nodes, or the named ones."""
        chosen = [self.topology.node(n) for n in nodes] or list(self.topology.nodes)
        containers.load(self.at, archive, chosen)

    def ctr(self, node: str, *arguments: str) -> str:
        """Run the client of a node's containerd; return what it printed."""
        return containers.ctr(self.at, self.topology.node(node), *arguments)

    def cut(self, node: str) -> None:
        """Unplug all cables of a host at the switch."""
        faults.set_ports(self.topology, node, up=False)

    def mend(self, node: str) -> None:
        """Plug the cables in again."""
        faults.set_ports(self.topology, node, up=True)

    def partition(self, node: str) -> None:
        """Drop what the node and the API server send each other, open connections included."""
        faults.partition(self.topology, node)

    def heal(self, node: str) -> None:
        """End a partition; no error when there is none."""
        faults.heal(self.topology, node)

    def stop_api(self) -> None:
        """Kill the API server and wait until it is gone."""
        faults.kill(self.at, self.topology, "control", "kube-apiserver")

    def start_api(self, *, seconds: float = 60) -> None:
        """Start the API server again and wait until it is ready."""
        daemons.start_again(self.at, self.topology.host("control"), "kube-apiserver")
        faults.wait_for_api(self.at, self.api, seconds=seconds)

    def start_routing(self) -> None:
        """Let the nodes tell the router by BGP what is on their kube-lb0; wait for all sessions."""
        routing.start(self.at, self.topology)

    def stop_routing(self) -> None:
        """End that, and remove the routes; no error when there is none."""
        routing.stop(self.at, self.topology)

    def show_routing(self) -> str:
        """Return the router's BGP sessions and the routes that it has from them."""
        return routing.show(self.at, self.topology)

    def next_hops(self, prefix: str) -> set[str]:
        """Return the nodes by which the router reaches exactly this prefix, as BGP told it."""
        return routing.next_hops(self.topology, prefix)

    def kill(self, host: str, what: str, signal: str = "KILL") -> Process:
        """Signal a component, a container's program or a program in a pod; return who it was."""
        return faults.kill(self.at, self.topology, host, what, signal=signal)

    def start(self, host: str, what: str) -> Process:
        """Start a component again that was killed."""
        return daemons.start_again(self.at, self.topology.host(host), what).process
