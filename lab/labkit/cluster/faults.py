# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Faults that a test starts and ends: a cut cable, a partition from the API, a killed program.

Each is made in the kernel (a port that is down, a packet filter, a signal), so the programs under
test see what they would see in a data centre.
"""

import signal as signals
import subprocess

from labkit.api import Api
from labkit.cluster import containers, daemons, state
from labkit.errors import Problem, StepFailed
from labkit.host.places import Places
from labkit.host.processes import Process, wait_until
from labkit.net.namespaces import inside, ip_batch
from labkit.topology import Host, Topology

_TABLE = "inet lab_partition"
_GONE = 30.0  # seconds until a killed program must have ended; long, as the machine may be busy


def set_ports(topology: Topology, host: str, *, up: bool, interface: str | None = None) -> None:
    """Set the switch's end of a host's cables up or down; the host's interfaces lose carrier.

    With the name of an interface, only the end of its cable.
    """
    word = "up" if up else "down"
    cables = topology.host(host).interfaces
    ports = [i.port for i in cables if interface in (None, i.name)]
    if not ports:
        known = ", ".join(i.name for i in cables)
        raise Problem(f"{host} has no interface {interface!r}: use one of {known}")
    ip_batch([f"link set {port} {word}" for port in ports], namespace=topology.switch)


def partition_rules(node: Host) -> str:
    """Return the packet filter on the control host that drops all packets from and to a node.

    It matches the addresses of the node and its pods in both directions, and the node's MAC
    addresses, because the node may also use a VIP as source address.
    """
    v4 = ", ".join([*(i.v4 for i in node.interfaces), node.pods_v4])
    v6 = ", ".join([*(i.v6 for i in node.interfaces), node.pods_v6])
    macs = ", ".join(i.mac for i in node.interfaces)
    return f"""\
table {_TABLE}_{node.name} {{
  chain in {{
    type filter hook input priority -300; policy accept;
    ether saddr {{ {macs} }} drop
    ip saddr {{ {v4} }} drop
    ip6 saddr {{ {v6} }} drop
  }}
  chain out {{
    type filter hook output priority -300; policy accept;
    ip daddr {{ {v4} }} drop
    ip6 daddr {{ {v6} }} drop
  }}
}}
"""


def partition(topology: Topology, node: str) -> None:
    """Load the packet filter, or replace it."""
    host = topology.node(node)
    table = f"{_TABLE}_{host.name}"
    _nft(topology, f"table {table}\ndelete table {table}\n{partition_rules(host)}")


def heal(topology: Topology, node: str) -> None:
    """Remove the packet filter, if there is one."""
    table = f"{_TABLE}_{topology.node(node).name}"
    _nft(topology, f"table {table}\ndelete table {table}\n")


def _nft(topology: Topology, text: str) -> None:
    done = subprocess.run(
        inside(topology.host("control").netns, ["nft", "-f", "-"]),
        input=text,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise StepFailed("nft", done.stderr)


def kill(at: Places, topology: Topology, host: str, what: str, *, signal: str = "KILL") -> Process:
    """Signal a component or a program in a pod; after KILL wait until it has ended."""
    number = _signal(signal)
    process = _find(at, topology.host(host), what)
    if not process.send(number):
        raise Problem(f"{what} does not run on {host}: start it with 'lab start {host} {what}'")
    if number == signals.SIGKILL and not wait_until(lambda: not process.is_alive, seconds=_GONE):
        raise StepFailed(what, f"killed, but still there after {_GONE:.0f} s (pid {process.pid})")
    return process


def _signal(name: str) -> int:
    try:
        return int(name) if name.isdigit() else signals.Signals[f"SIG{name.removeprefix('SIG')}"]
    except KeyError as error:
        raise Problem(
            f"there is no signal {name!r}: use a name such as KILL, TERM, STOP"
        ) from error


def _find(at: Places, host: Host, what: str) -> Process:
    components = {d.name: d for d in state.load_daemons(at).values() if d.host == host.name}
    if what in components:
        return components[what].process
    if not host.is_node:
        return daemons.find(at, host, what).process  # raises, and lists the components
    return containers.find_program(at, host, what)


def wait_for_api(at: Places, api: Api, *, seconds: float) -> None:
    """Wait until the API server answers that it is ready."""
    if not wait_until(api.is_ready, seconds=seconds):
        log = daemons.log_of(at, "control.kube-apiserver")
        raise StepFailed("kube-apiserver", f"not ready after {seconds:.0f} s", log=log)
