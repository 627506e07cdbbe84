# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What must always be so in a cluster, as it is now; each function returns what is not, as text.

`simulation.history` has what takes a history: addresses on two nodes or on none, and how long.
"""

from __future__ import annotations

from itertools import combinations

from purelb.core.names import SHARING_ANNOTATION
from simulation.api.objects import Json
from simulation.cluster import Cluster
from simulation.manifests import KINDS, ingress
from simulation.member import ETH0, ETH1
from simulation.time.timeline import MICROSECONDS


def given_twice(cluster: Cluster) -> list[str]:
    """Return the addresses in the status of two Services that do not share it by a key."""
    having: dict[str, list[Json]] = {}
    for stored in cluster.api.objects.of_kind(KINDS["services"], ""):
        for entry in ingress(stored.body):
            having.setdefault(entry["ip"], []).append(stored.body)
    return [
        f"{address}: {one['metadata']['name']} and {other['metadata']['name']}"
        for address, services in having.items()
        for one, other in combinations(services, 2)
        if not _share(one, other)
    ]


def _share(one: Json, other: Json) -> bool:
    keys = [
        (body["metadata"].get("annotations") or {}).get(SHARING_ANNOTATION) for body in (one, other)
    ]
    ports = [{(p["protocol"], p["port"]) for p in body["spec"]["ports"]} for body in (one, other)]
    return keys[0] == keys[1] is not None and not ports[0] & ports[1]


def ownerless(cluster: Cluster) -> list[str]:
    """Return the addresses on nodes that are of no Service, apart from the nodes' own."""
    given = cluster.addresses()
    return [
        f"{address} on {node.name}"
        for node in cluster.nodes.values()
        for (link, address), held in node.kernel.held.items()
        if link in (ETH0, ETH1) and held.valid_until is not None and address not in given
    ]


class Leaks:
    """The addresses that stay on nodes though they are of no Service, for longer than `seconds`.

    It counts from the first look that has found one, so it must look more often than that.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[str, int] = {}

    def look(self, cluster: Cluster) -> list[str]:
        """Return those that have been there for too long."""
        now = cluster.timeline.now
        self._since = {text: self._since.get(text, now) for text in ownerless(cluster)}
        longest = self._seconds * MICROSECONDS
        return [text for text, since in self._since.items() if now - since > longest]


def misled(cluster: Cluster) -> list[str]:
    """Return what hosts use and do not find at a node that answers them for it."""
    return [
        f"{host.name} looks for {address} at {_name_of(cluster, host.neighbors.get(address))}"
        for segment in cluster.segments
        for host in segment.hosts
        for address in host.uses
        if _name_of(cluster, host.neighbors.get(address)) not in segment.heard_by(host, address)
    ]


def _name_of(cluster: Cluster, mac: bytes | None) -> str:
    for node in cluster.nodes.values():
        if mac in {link.mac for link in node.kernel.links.values()}:
            return node.name
    return "no host" if mac is None else mac.hex(":")
