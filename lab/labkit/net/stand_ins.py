# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""A daemon of the lab that stands for programs that nodes of other people run.

A DHCP client renews the nodes' own addresses. kube-proxy in IPVS mode gives each node the addresses
of all Services, on an interface that is down; the lab's kernel has no IPVS.
"""

import contextlib
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from labkit.api import Api, ApiError, Json
from labkit.net.namespaces import ip_batch
from labkit.net.network import LEASED_FOR, own_addresses
from labkit.topology import Host, Topology

NAME = "stand-ins"
IPVS = "kube-ipvs0"
_SERVICES = "/api/v1/services"
_PAUSE = 0.1  # seconds; kube-proxy sees a Service sooner than this, mostly
_RENEWALS = 6  # in the lifetime of an address


def wanted(topology: Topology) -> bool:
    """Whether a lab needs this daemon."""
    return bool({"dhcp", "ipvs"} & {*topology.variants})


def command() -> list[str]:
    """Return the command line of this daemon."""
    script = Path(__file__).resolve().parents[2] / "lab"
    return [sys.executable, str(script), NAME]


class Ipvs:
    """The addresses of Services on kube-ipvs0 of each node."""

    def __init__(self, nodes: Sequence[Host]) -> None:
        """Create the interface on each node."""
        self._nodes = nodes
        self._has: set[str] = set()
        # A bridge, which does as well as a dummy interface while it is down.
        self._on_each([f"link add {IPVS} type bridge", f"link set {IPVS} arp off"])

    def _on_each(self, commands: list[str], *, force: bool = False) -> None:
        for node in self._nodes if commands else ():
            ip_batch(commands, namespace=node.netns, force=force)

    def follow(self, services: Iterable[Json]) -> None:
        """Have the IPv4 addresses that these Services have."""
        found = {
            entry["ip"]
            for service in services
            for entry in service["status"]["loadBalancer"].get("ingress", ())
            if ":" not in entry["ip"]
        }
        gone = [f"addr del {ip}/32 dev {IPVS}" for ip in self._has - found]
        new = [f"addr add {ip}/32 dev {IPVS}" for ip in found - self._has]
        # A node that misses one is no reason for the others to miss all of them.
        self._on_each(gone + new, force=True)
        self._has = found

    def close(self) -> None:
        """Remove the interface."""
        self._on_each([f"link del {IPVS}"])


def renew(topology: Topology) -> None:
    """Give the nodes' own addresses their whole lifetime again."""
    for node in topology.nodes:
        for i in node.interfaces:
            # What was connected later has its lifetime too; an interface may be gone meanwhile.
            commands = own_addresses(topology, node, i, verb="change")
            ip_batch(commands, namespace=node.netns, force=True)


def run(topology: Topology, api: Api) -> None:
    """Do what the variants of a lab need; never returns."""
    ipvs = Ipvs(topology.nodes) if "ipvs" in topology.variants else None
    next_renewal = 0.0
    while True:
        if ipvs:
            with contextlib.suppress(OSError, ApiError):
                ipvs.follow(api.items(_SERVICES))
        if "dhcp" in topology.variants and time.monotonic() >= next_renewal:
            renew(topology)
            next_renewal = time.monotonic() + LEASED_FOR / _RENEWALS
        time.sleep(_PAUSE)
