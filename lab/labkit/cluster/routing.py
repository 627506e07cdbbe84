# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""BGP between the nodes and the router: FRR's zebra and bgpd on each of them.

A node advertises the prefixes on its kube-lb0 to the router and accepts no routes. The router's
kernel gets a route to each prefix, with every node that advertises it as a next hop (ECMP).
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from labkit.cluster import daemons, state
from labkit.cluster.state import Daemon
from labkit.errors import Problem, StepFailed
from labkit.host.places import Places
from labkit.host.processes import end, wait_until
from labkit.net.namespaces import inside, ip_batch, ip_json
from labkit.net.network import DUMMY
from labkit.topology import Host, Interface, Topology

PROGRAMS = ("zebra", "bgpd")  # in this order: bgpd looks for zebra only every 10 s
AS = 64512  # of all hosts (iBGP), so the router advertises no node's routes to another node
SECONDS = 20.0  # limit until all sessions are established; 1.3 s is usual
_FRR = Path("/usr/lib/frr")
_USER = "frr"  # zebra refuses to run as root
# FRR writes here with any options, so each host mounts its own folder here. That also keeps
# the paths of sockets below the kernel's limit of 108 characters, wherever the checkout is.
_HERE = "/var/tmp"  # noqa: S108 - private to a daemon's mount namespace

# Defined before their use: otherwise bgpd applies them only 5 s later.
_ROUTE_MAPS = (
    "route-map told permit 10",
    f" match interface {DUMMY}",
    # Global next hops identify the nodes in the routing table; link-local ones do not.
    "route-map heard permit 10",
    " set ipv6 next-hop prefer-global",
)


def start(at: Places, topology: Topology) -> None:
    """Start or restart FRR on the router and the nodes; wait until all sessions are established.

    Stops FRR again if that fails.
    """
    stop(at, topology)
    try:
        _start(at, topology)
    except BaseException:
        stop(at, topology)
        raise


def _start(at: Places, topology: Topology) -> None:
    hosts = _hosts(topology)
    for host in hosts:
        _write_files(topology, host, _folder(at, host))
    for program in PROGRAMS:
        for host in hosts:
            daemons.start(at, host, program, _command(_folder(at, host), program))
        sockets = [_folder(at, host) / f"{program}.vty" for host in hosts]
        _wait(at, f"sockets of {program}", partial(_all_there, sockets))
    _wait(at, "sessions with all nodes", lambda: _have_peered(at, topology))


def stop(at: Places, topology: Topology) -> None:
    """Stop FRR on all hosts, if it runs, and remove its routes."""
    ours = _daemons(at)
    if left := end(d.process for d in ours):
        pids = " ".join(str(p.pid) for p in left)
        raise StepFailed("routing stop", f"these processes do not end: {pids}")
    for daemon in ours:
        state.forget_daemon(at, daemon)
    for host in _hosts(topology):
        # All routes of zebra use next hop objects, and nothing else creates any here.
        ip_batch(["nexthop flush"], namespace=host.netns)
        shutil.rmtree(_folder(at, host), ignore_errors=True)


def show(at: Places, topology: Topology) -> str:
    """Return a text with the router's sessions and its kernel's BGP routes."""
    parts = [_ask(at, topology, "show bgp summary").strip(), "Routes in the router's kernel:"]
    for family in ("-4", "-6"):
        argv = ["ip", family, "route", "show", "proto", "bgp"]
        command = inside(topology.host("router").netns, argv)
        parts.append(subprocess.run(command, text=True, capture_output=True, check=True).stdout)
    return "\n".join(parts).rstrip()


def next_hops(topology: Topology, prefix: str) -> set[str]:
    """Return the nodes that are next hops of the kernel's BGP route to exactly this prefix."""
    family = "-6" if ":" in prefix else "-4"
    argv = (family, "route", "show", "exact", prefix, "proto", "bgp")
    routes = ip_json(topology.host("router").netns, *argv)
    gateways = {hop.get("gateway") for r in routes for hop in r.get("nexthops", [r])}
    return {n.name for n in topology.nodes if gateways & {n.v4, n.v6}}


def bgpd_config(topology: Topology, host: Host) -> str:
    """Return the configuration of bgpd on the router or a node."""
    peers = _peers(topology, host)
    lines = [
        f"hostname {host.name}",
        *_ROUTE_MAPS,
        f"router bgp {AS}",
        f" bgp router-id {host.v4}",
        " no bgp default ipv4-unicast",
        " timers bgp 1 3",  # seconds; removes a node that is cut off soon
    ]
    for address in (a for peer in peers for a in (peer.v4, peer.v6)):
        lines += [
            f" neighbor {address} remote-as {AS}",
            f" neighbor {address} timers connect 1",
        ]
    lines += _family("ipv4", host, [peer.v4 for peer in peers])
    lines += _family("ipv6", host, [peer.v6 for peer in peers])
    return "\n".join(lines) + "\n"


def _family(name: str, host: Host, peers: list[str]) -> Iterator[str]:
    yield f" address-family {name} unicast"
    yield "  redistribute connected route-map told" if host.is_node else "  maximum-paths ibgp 128"
    for address in peers:
        yield f"  neighbor {address} activate"
        yield f"  neighbor {address} route-map heard in"
    yield " exit-address-family"


def _peers(topology: Topology, host: Host) -> list[Interface]:
    """Return the peers' interfaces: a node's only peer is the router on its first lan."""
    if host.is_node:
        lan = host.interfaces[0].lan
        return [i for i in topology.host("router").interfaces if i.lan == lan]
    return [node.interfaces[0] for node in topology.nodes]


def _hosts(topology: Topology) -> tuple[Host, ...]:
    return (topology.host("router"), *topology.nodes)


def _folder(at: Places, host: Host) -> Path:
    return at.run / "routing" / host.name


def _daemons(at: Places) -> list[Daemon]:
    return [d for d in state.load_daemons(at).values() if d.name in PROGRAMS]


def _write_files(topology: Topology, host: Host, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "zebra.conf").write_text(f"hostname {host.name}\n")
    (folder / "bgpd.conf").write_text(bgpd_config(topology, host))
    shutil.chown(folder, _USER, _USER)


def _command(folder: Path, program: str) -> list[str]:
    """Return the command line of a program with its folder mounted at _HERE."""
    argv = [
        *(str(_FRR / program), "--log", "stdout", "--vty_port", "0", "--vty_socket", _HERE),
        *("--config_file", f"{_HERE}/{program}.conf", "--pid_file", f"{_HERE}/{program}.pid"),
        *("--socket", f"{_HERE}/zserv.api"),
    ]
    script = f'mount --bind "$0" {_HERE} && exec "$@"'
    return ["unshare", "--mount", "--", "sh", "-c", script, str(folder), *argv]


def _all_there(paths: list[Path]) -> bool:
    return all(path.exists() for path in paths)


def _have_peered(at: Places, topology: Topology) -> bool:
    """Whether the router has a session of each family with every node."""
    summary = json.loads(_ask(at, topology, "show bgp summary json"))
    peers = [
        peer
        for family in ("ipv4Unicast", "ipv6Unicast")
        for peer in summary.get(family, {}).get("peers", {}).values()
    ]
    up = [peer for peer in peers if peer["state"] == "Established"]
    return len(up) == 2 * len(topology.nodes)


def _ask(at: Places, topology: Topology, question: str) -> str:
    """Return the answer of the router's bgpd."""
    bgpd = state.load_daemons(at).get("router.bgpd")
    if bgpd is None or not bgpd.process.is_alive:
        raise Problem("BGP does not run: start it with 'lab routing start'")
    vtysh = ["vtysh", "--vty_socket", _HERE, "-d", "bgpd", "-c", question]
    mounts = ["nsenter", f"--mount=/proc/{bgpd.process.pid}/ns/mnt", "--", *vtysh]
    command = inside(topology.host("router").netns, mounts)
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=10)
    if done.returncode:
        raise StepFailed("vtysh", done.stderr or done.stdout)
    return done.stdout


def _wait(at: Places, what: str, test: Callable[[], bool]) -> None:
    def is_so() -> bool:
        for daemon in _daemons(at):
            daemons.check_alive(at, daemon)
        return test()

    if not wait_until(is_so, seconds=SECONDS, every=0.1):
        log = daemons.log_of(at, "router.bgpd")
        raise StepFailed("routing start", f"no {what} after {SECONDS:.0f} s", log=log)
