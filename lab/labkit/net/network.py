# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Switch, cables, addresses and routes of a topology: the `ip` commands, and running them.

The machine's own namespace gets one link, to the control host, to reach the API. Everything else is
inside namespaces, which `down` removes as a whole.
"""

from collections.abc import Iterator
from pathlib import Path

from labkit import topology as plan
from labkit.net.namespaces import ip_batch, ip_json, set_sysctls
from labkit.topology import Host, Interface, Topology

DUMMY = "kube-lb0"
# Seconds for which a node has an address by DHCP; renewed several times in that time.
LEASED_FOR = 60
GATEWAY = 1  # the router's number on every lan

# Reverse path filters would drop traffic that a node sends on one lan and receives on another.
_SYSCTLS = {
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    "net.ipv6.conf.all.accept_ra": "0",
    "net.ipv6.conf.default.accept_ra": "0",
    "net.ipv4.ping_group_range": "0 2147483647",
}
_FORWARD = {"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"}
# The router also routes between two hosts of one lan, without sending redirects. It chooses among
# next hops by ports too; otherwise a client would reach only one node.
_ROUTER = {
    "net.ipv4.conf.all.send_redirects": "0",
    "net.ipv4.conf.default.send_redirects": "0",
    "net.ipv4.fib_multipath_hash_policy": "1",
    "net.ipv6.fib_multipath_hash_policy": "1",
}


def build(topology: Topology, *, owner: Path) -> None:
    """Create all namespaces and links, marked with `owner`, for a `down` without a state file."""
    names = topology.namespaces
    ip_batch([f"netns add {name}" for name in names])
    for name in names:
        ip_batch([f"link set lo up alias {owner}"], namespace=name)
    ip_batch(switch_commands(topology), namespace=topology.switch)
    for host in topology.hosts:
        set_sysctls(host.netns, sysctls(topology, host))
        ip_batch(host_commands(topology, host), namespace=host.netns)
    ip_batch(uplink_commands(topology, owner))
    ip_batch(
        [
            f"addr add {topology.link_v4[1]} dev uplink",
            f"addr add {topology.link_v6[1]} dev uplink nodad",
            "link set uplink up",
        ],
        namespace=topology.host("control").netns,
    )


def uplink_commands(topology: Topology, owner: Path) -> list[str]:
    """Return the commands for the machine's end of the one link out of the lab."""
    link, control = topology.host_link, topology.host("control").netns
    return [
        f"link add {link} type veth peer name uplink netns {control}",
        f"link set {link} alias {owner}",
        f"addr add {topology.link_v4[0]} dev {link}",
        f"addr add {topology.link_v6[0]} dev {link} nodad",
        f"link set {link} up",
    ]


def switch_commands(topology: Topology) -> list[str]:
    """Return the commands for bridges and cables."""
    commands = [command for lan in topology.lans for command in _bridge(lan)]
    for host in topology.hosts:
        commands += [command for i in host.interfaces for command in _cable(host, i)]
    return commands


def _bridge(lan: str) -> list[str]:
    """Return the commands for a lan; without STP and multicast snooping."""
    return [
        f"link add {lan} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
        f"link set {lan} up addrgenmode none",
    ]


def _cable(host: Host, i: Interface) -> list[str]:
    return [
        f"link add {i.port} type veth peer name {i.name} address {i.mac} netns {host.netns}",
        f"link set {i.port} master {i.lan} up addrgenmode none",
    ]


def change(before: Topology, after: Topology) -> None:
    """Remove the lans and cables that are only in `before`; create those only in `after`.

    What should be removed and does not exist is no error.
    """
    gone = [f"link del {i.port}" for _host, i in _cables_only_in(before, other=after)]
    gone += [f"link del {lan}" for lan in before.lans if lan not in after.lans]
    if gone:
        ip_batch(gone, namespace=before.switch, force=True)
    more = [c for lan in after.lans if lan not in before.lans for c in _bridge(lan)]
    cables = _cables_only_in(after, other=before)
    more += [command for host, i in cables for command in _cable(host, i)]
    if more:
        ip_batch(more, namespace=after.switch)
    for host, i in cables:
        ip_batch(addresses(after, host, i), namespace=host.netns)


def _cables_only_in(topology: Topology, *, other: Topology) -> list[tuple[Host, Interface]]:
    others = {i for h in other.hosts for i in h.interfaces}
    return [(h, i) for h in topology.hosts for i in h.interfaces if i not in others]


def sysctls(topology: Topology, host: Host) -> dict[str, str]:
    """Return the kernel settings of a host."""
    values = dict(_SYSCTLS)
    # Set in any case: a namespace inherits the machine's.
    promotes = str(int("promote" in topology.variants))
    for name in ("default", *(i.name for i in host.interfaces)):
        values[f"net.ipv4.conf.{name}.promote_secondaries"] = promotes
    values["net.ipv4.conf.all.promote_secondaries"] = "0"
    if host.is_node or host.name == "router":
        values |= _FORWARD
    if host.name == "router":
        values |= _ROUTER
    return values


def host_commands(topology: Topology, host: Host) -> list[str]:
    """Return the commands for addresses, routes and, on a node, the substitute for a dummy link."""
    commands = []
    for i in host.interfaces:
        commands += addresses(topology, host, i)
    if host.name != "router":
        lan = host.interfaces[0].lan
        commands += [
            f"route add default via {plan.v4_of(lan, GATEWAY)}",
            f"route add default via {plan.v6_of(lan, GATEWAY)}",
        ]
    if host.is_node:
        commands += dummy_commands()
    if host.name != "client":
        commands += pod_routes(topology, host)
    return commands


def addresses(topology: Topology, host: Host, i: Interface) -> list[str]:
    """Return the commands for the addresses of an interface and the routes to their subnets."""
    own = own_addresses(topology, host, i, verb="add")
    return [*own, f"link set {i.name} up", *on_link_routes(topology, host, i)]


def on_link_routes(topology: Topology, host: Host, i: Interface) -> list[str]:
    """Return the commands for the routes to the subnets of an interface, if no address has them."""
    commands = []
    v4, v6 = plan.v4_of(i.lan, 0), plan.v6_of(i.lan, 0)
    if host.is_node and "host-masks" in topology.variants:
        commands.append(f"route add {v4}/24 dev {i.name}")
    if host.is_node and {"host-masks", "dhcp"} & {*topology.variants}:
        commands.append(f"route add {v6}/64 dev {i.name} proto ra")
    return commands


def own_addresses(topology: Topology, host: Host, i: Interface, *, verb: str) -> list[str]:
    """Return the commands that add the addresses of an interface, or change them to be renewed.

    As network managers do, the IPv6 address brings no route: it would end with the address.
    """
    of_node = {*topology.variants} if host.is_node else set()
    v4, v6, more = "24", "64", ""
    if "host-masks" in of_node:
        v4, v6 = "32", "128"
    if "dhcp" in of_node:
        more = f" valid_lft {LEASED_FOR} preferred_lft {LEASED_FOR}"
    plain = " noprefixroute" if of_node & {"dhcp", "host-masks"} else ""
    return [
        f"addr {verb} {i.v4}/{v4} dev {i.name}{more}",
        f"addr {verb} {i.v6}/{v6} dev {i.name} nodad{plain}{more}",
    ]


def dummy_commands() -> list[str]:
    """Return the commands for a link that behaves like a dummy, for kernels without that type."""
    return [f"link add {DUMMY} type ifb", f"link set {DUMMY} up"]


def pod_routes(topology: Topology, host: Host) -> list[str]:
    """Return the commands for routes to the pods of nodes on a common lan."""
    commands = []
    for node in topology.nodes:
        via = None if node == host else _reach(host, node)
        if via:
            commands += [
                f"route add {node.pods_v4} via {via.v4}",
                f"route add {node.pods_v6} via {via.v6}",
            ]
    return commands


def _reach(host: Host, node: Host) -> Interface | None:
    """Return an interface of the node on a lan of the host."""
    return next((i for i in node.interfaces if host.on(i.lan)), None)


def links_of(owner: Path) -> Iterator[str]:
    """Yield the names of this lab's links in the machine's own namespace."""
    for folder in Path("/sys/class/net").iterdir():
        if owner_of_link(folder.name) == str(owner):
            yield folder.name


def owner_of(namespace: str) -> str:
    """Return a namespace's mark, the run folder of its lab; empty if it has none."""
    links = ip_json(namespace, "link", "show", "dev", "lo")
    return str(links[0].get("ifalias", "")) if links else ""


def owner_of_link(name: str) -> str:
    """Return the mark of a link of the machine; empty if it has none."""
    try:
        return Path("/sys/class/net", name, "ifalias").read_text().strip()
    except OSError:
        return ""
