# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The lab's hosts, lans, names and addresses. Pure: no I/O, no state.

Every address follows from the numbers of lan and host: 172.28.<lan>.<host> and
fd28:0:0:<lan>::<host>, MAC addresses likewise. Labs of different numbers differ only in names that
exist in the machine's own namespace, and in the addresses of the one link there.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from labkit.errors import Problem

MAX_NODES = 200  # hosts .11 to .210; the rest of the /24 is for VIP pools
MAX_IN_LAN = 2  # interfaces of a node
SECOND = 100  # what a node's second interface in the same lan adds to its number
MAX_LABS = 16  # on one machine at the same time
FIRST_NODE = 10
API_PORT = 6443

POD_V4, POD_V6 = "10.244.0.0/16", "fd00:244::/48"
SERVICE_V4, SERVICE_V6 = "10.96.0.0/16", "fd00:96::/112"

# What nodes of other people have that these have not by default.
VARIANTS = {
    "dhcp": "nodes' addresses have a lifetime, renewed as by a DHCP client",
    "host-masks": "nodes' addresses are /32 and /128, with on-link routes",
    "iptables": "kube-proxy in iptables mode",
    "ipvs": "a stand-in for kube-proxy in IPVS mode: each node has each Service's address",
    "promote": "promote_secondaries is 1, as systemd sets it",
}

_PLACE = re.compile(r"(?P<node>n[1-9]\d*)=(?P<lans>lan[1-9](?:,lan[1-9])*)")
_LAN = re.compile(r"lan[1-9]")


@dataclass(frozen=True)
class Interface:
    """An interface of a host; `port` is the other end of its cable, at the switch.

    `added` is true if it was not there after `up`, but was connected later.
    """

    name: str
    lan: str
    v4: str
    v6: str
    mac: str
    port: str
    added: bool = False


@dataclass(frozen=True)
class Host:
    """A network namespace with interfaces; a node also has a number, and pod subnets from it."""

    name: str
    netns: str
    interfaces: tuple[Interface, ...]
    number: int = 0

    @property
    def is_node(self) -> bool:
        """Whether a kubelet runs here."""
        return self.number > 0

    @property
    def v4(self) -> str:
        """The IPv4 address on the first lan: the node's InternalIP."""
        return self.interfaces[0].v4

    @property
    def v6(self) -> str:
        """The IPv6 address on the first lan."""
        return self.interfaces[0].v6

    @property
    def pods_v4(self) -> str:
        """The IPv4 subnet of this node's pods."""
        return f"10.244.{self.number}.0/24"

    @property
    def pods_v6(self) -> str:
        """The IPv6 subnet of this node's pods."""
        return f"fd00:244:0:{self.number:x}::/64"

    def on(self, lan: str) -> Interface | None:
        """Return the interface on a lan; None if there is none."""
        return next((i for i in self.interfaces if i.lan == lan), None)


@dataclass(frozen=True)
class Topology:
    """The complete plan of one lab."""

    number: int
    lans: tuple[str, ...]
    hosts: tuple[Host, ...]
    # Names from VARIANTS, sorted.
    variants: tuple[str, ...] = ()

    @property
    def switch(self) -> str:
        """The namespace with the bridges, one per lan."""
        return f"{prefix_of(self.number)}switch"

    @property
    def host_link(self) -> str:
        """The name of the one link in the machine's own namespace."""
        return f"{prefix_of(self.number)}host"

    @property
    def link_v4(self) -> tuple[str, str]:
        """Addresses with prefix length of that link: the machine's end, the control host's end."""
        first = 4 * self.number + 1  # a /30 per lab
        return f"172.28.255.{first}/30", f"172.28.255.{first + 1}/30"

    @property
    def link_v6(self) -> tuple[str, str]:
        """The IPv6 addresses of that link, like `link_v4`."""
        first = 4 * self.number + 1
        return f"fd28:0:0:ff::{first:x}/126", f"fd28:0:0:ff::{first + 1:x}/126"

    @property
    def api_v4(self) -> str:
        """The API server's address for clients outside the lab."""
        return self.link_v4[1].partition("/")[0]

    @property
    def api_v6(self) -> str:
        """The API server's IPv6 address for clients outside the lab."""
        return self.link_v6[1].partition("/")[0]

    @property
    def nodes(self) -> tuple[Host, ...]:
        """The hosts with a kubelet."""
        return tuple(h for h in self.hosts if h.is_node)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The names of all network namespaces of the lab."""
        return (self.switch, *(h.netns for h in self.hosts))

    def host(self, name: str) -> Host:
        """Return a host by name. Raises Problem if there is none."""
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(h.name for h in self.hosts)
        raise Problem(f"there is no host {name!r} in this lab: use one of {known}")

    def node(self, name: str) -> Host:
        """Return a node by name. Raises Problem if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(n.name for n in self.nodes)
        raise Problem(f"there is no node {name!r} in this lab: use one of {known}")

    @property
    def planned(self) -> "Topology":
        """The topology without the interfaces that were connected after `up`."""
        return self._with(
            replace(h, interfaces=tuple(i for i in h.interfaces if not i.added)) for h in self.hosts
        )

    def _with(self, hosts: Iterable[Host]) -> "Topology":
        """Return the topology with these hosts, and the lans that they are on."""
        kept = tuple(hosts)
        lans = {i.lan for h in kept for i in h.interfaces}
        return replace(self, hosts=kept, lans=tuple(sorted(lans)))

    def connected(self, name: str, lan: str) -> "Topology":
        """Return the topology with a further interface of a node, and router and client there."""
        node = self.node(name)
        if not _LAN.fullmatch(lan):
            raise Problem(f"there is no lan {lan!r}: use one of lan1 to lan9")
        check_lans(name, (*(i.lan for i in node.interfaces), lan), nodes=len(self.nodes))

        def further(host: Host) -> Host:
            is_there = host.on(lan) is not None
            if host == node or (host.name in ("router", "client") and not is_there):
                return replace(host, interfaces=(*host.interfaces, _further(host, lan)))
            return host

        return self._with(map(further, self.hosts))

    def disconnected(self, name: str, lan: str) -> "Topology":
        """Return the topology without the interface that `connected` gave a node."""
        added = [i for i in self.node(name).interfaces if i.added and i.lan == lan]
        if not added:
            raise Problem(f"{name} was not connected to {lan} after 'lab up'")
        left = {
            i
            for h in self.nodes
            for i in h.interfaces
            if i.added and i.lan == lan and i != added[-1]
        }
        return self._with(
            replace(
                h,
                interfaces=tuple(
                    i
                    for i in h.interfaces
                    # The router and the client stay as long as a node needs them.
                    if i.lan != lan or not i.added or (i in left if h.is_node else left)
                ),
            )
            for h in self.hosts
        )

    def to_json(self) -> dict[str, Any]:
        """Return the topology as JSON data for the state file."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Topology":
        """Return the topology that `to_json` returned as data."""
        hosts = (
            Host(
                name=h["name"],
                netns=h["netns"],
                number=h["number"],
                interfaces=tuple(Interface(**i) for i in h["interfaces"]),
            )
            for h in data["hosts"]
        )
        return Topology(
            number=data["number"],
            lans=tuple(data["lans"]),
            hosts=tuple(hosts),
            variants=tuple(data["variants"]),
        )


def prefix_of(number: int) -> str:
    """Return the prefix of the names that a lab uses on the machine."""
    return f"lab{number or ''}-"


def v4_of(lan: str, number: int) -> str:
    """Return the IPv4 address of host `number` on a lan."""
    return f"172.28.{lan.removeprefix('lan')}.{number}"


def v6_of(lan: str, number: int) -> str:
    """Return the IPv6 address of host `number` on a lan; its last digits are those of the IPv4."""
    return f"fd28:0:0:{lan.removeprefix('lan')}::{number}"


def parse_placements(texts: Iterable[str], *, nodes: int) -> dict[str, tuple[str, ...]]:
    """Parse `n3=lan2` or `n2=lan1,lan2` into {node: lans}; the first lan has the default route.

    A lan that is named twice means two interfaces there.
    """
    placed: dict[str, tuple[str, ...]] = {}
    for text in texts:
        match = _PLACE.fullmatch(text)
        if not match:
            raise Problem(f"--place {text!r} is not NODE=LAN[,LAN], such as n2=lan1,lan2")
        node, lans = match["node"], tuple(match["lans"].split(","))
        if int(node[1:]) > nodes:
            raise Problem(f"--place {text!r}: the lab would have nodes n1 to n{nodes} only")
        if node in placed:
            raise Problem(f"--place {text!r}: name each node once")
        check_lans(node, lans, nodes=nodes)
        placed[node] = lans
    return placed


def check_lans(node: str, lans: Sequence[str], *, nodes: int) -> None:
    """Refuse more interfaces in one lan than there are addresses for."""
    counts = [lans.count(lan) for lan in lans]
    if max(counts) > MAX_IN_LAN:
        raise Problem(f"{node} would have {max(counts)} interfaces in one lan: use two at most")
    if max(counts) > 1 and nodes > SECOND:
        raise Problem(f"two interfaces of {node} in one lan: use {SECOND} nodes at most")


def plan(
    *,
    nodes: int,
    number: int = 0,
    placements: Iterable[str] = (),
    variants: Iterable[str] = (),
) -> Topology:
    """Return the topology: control, router, client and nodes, on lan1 unless placed elsewhere."""
    chosen = tuple(sorted(set(variants)))
    if unknown := [name for name in chosen if name not in VARIANTS]:
        raise Problem(f"there is no variant {unknown[0]!r}: use one of {', '.join(VARIANTS)}")
    if not 1 <= nodes <= MAX_NODES:
        raise Problem(f"--nodes {nodes}: a lab has 1 to {MAX_NODES} nodes")
    placed = parse_placements(placements, nodes=nodes)
    lans = tuple(sorted({"lan1", *(lan for lans in placed.values() for lan in lans)}))

    def host(name: str, address: int, on: tuple[str, ...], node: int = 0) -> Host:
        cables = tuple(
            _interface(name, i, lan, address + SECOND * on[:i].count(lan))
            for i, lan in enumerate(on)
        )
        netns = f"{prefix_of(number)}{name}"
        return Host(name=name, netns=netns, interfaces=cables, number=node)

    hosts = [host("control", 2, ("lan1",)), host("router", 1, lans), host("client", 3, ("lan1",))]
    hosts += [
        host(f"n{i}", FIRST_NODE + i, placed.get(f"n{i}", ("lan1",)), i)
        for i in range(1, nodes + 1)
    ]
    return Topology(number=number, lans=lans, hosts=tuple(hosts), variants=chosen)


def _further(host: Host, lan: str) -> Interface:
    """Return one more interface of a host, with the first free name."""
    names = {i.name for i in host.interfaces}
    index = next(n for n in range(len(names) + 1) if f"eth{n}" not in names)
    first = host.interfaces[0]
    own = int(first.v4.rpartition(".")[2])
    return replace(_interface(host.name, index, lan, own + SECOND * bool(host.on(lan))), added=True)


def _interface(host: str, index: int, lan: str, number: int) -> Interface:
    return Interface(
        name=f"eth{index}",
        lan=lan,
        v4=v4_of(lan, number),
        v6=v6_of(lan, number),
        mac=f"02:1b:00:00:{int(lan[3:]):02x}:{number:02x}",
        port=f"{host}-eth{index}",
    )
