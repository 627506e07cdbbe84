# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Queries to the cluster that many tests use: holders of addresses, frames, logs, metrics."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO, TypeVar

from scapy.layers.l2 import Ether
from scapy.packet import Packet

from labkit.api import is_transient
from labkit.lab import Lab
from labkit.net.namespaces import netns
from labkit.probe.addresses import addresses_on, nodes_with
from purelb.core.addresses import parse_address, parse_bare_range
from tests.support import ROOT
from tests.support.lab import commands

VERSION = next(
    line.split()[1]
    for line in (ROOT / "galaxy.yml").read_text().splitlines()
    if line.startswith("version: ")
)
IMAGE = f"localhost/purelb/purelb:{VERSION}"
VIPS_V4, VIPS_V6 = "172.28.1.220-172.28.1.250", "fd28:0:0:1::220-fd28:0:0:1::2ff"
# The same in lan2, for tests that connect nodes to it.
LAN2_V4, LAN2_V6 = "172.28.2.220-172.28.2.250", "fd28:0:0:2::220-fd28:0:0:2::2ff"
AGENTS = "/api/v1/namespaces/purelb-system/pods"
DAEMON_SET = "/apis/apps/v1/namespaces/purelb-system/daemonsets/lbnodeagent"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases"
# The contract's worst cases for a takeover, in seconds.
GRACEFUL, CRASH = 10.0, 20.0
# Seconds: the duration of a Lease in the lab, with a margin.
LEASE_END = 4.0
# The contract's limit in seconds until a changed configuration is on the interface.
IN_FORCE = 2.0
# Signs of an unhandled exception or of a logged error.
_ERRORS = ("taskFailed", "Traceback", "level=error", '"level": "error"', "Fatal Python error")
T = TypeVar("T")


def eventually(
    condition: Callable[[], T], what: str | Callable[[], str], *, seconds: float = 15.0
) -> T:
    """Poll a condition until it is true; return its value. Fails with `what` after `seconds`.

    A request of the condition that fails for a transient reason is repeated.
    """
    deadline = time.monotonic() + seconds
    seen: object = None
    failure = ""
    while True:
        try:
            if seen := condition():
                return seen
        except Exception as error:
            if not is_transient(error):
                raise
            failure = f"; last failed request: {error!r}"
        is_over = time.monotonic() >= deadline
        if is_over:
            missed = what if isinstance(what, str) else what()
            raise AssertionError(f"no {missed} within {seconds:g} s, but {seen!r}{failure}")
        time.sleep(0.05)


def timed(condition: Callable[[], object], what: str, *, seconds: float = 15.0) -> float:
    """Poll as `eventually` does; return the seconds that it took."""
    start = time.monotonic()
    eventually(condition, what, seconds=seconds)
    return time.monotonic() - start


def reset_lock_transitions(lab: Lab) -> None:
    """Reset the lock's count of transitions, as tests change the leader often (flapping)."""
    lab.api.merge_patch(f"{LEASES}/purelb-allocator", {"spec": {"leaseTransitions": 0}})


def agents_ready(lab: Lab) -> bool:
    """Whether every node has a ready agent and every agent a Lease.

    Of Pods, as the status of their DaemonSet may count a node late that was deleted and is back.
    """
    ready = [
        pod["spec"]["nodeName"]
        for pod in lab.api.items(AGENTS, labelSelector="component=lbnodeagent")
        if "deletionTimestamp" not in pod["metadata"] and "True" in _ready(pod)
    ]
    leases = lab.api.items(LEASES, labelSelector="app.kubernetes.io/component=lbnodeagent")
    return sorted(ready) == sorted(lab.nodes) and len(leases) == len(lab.nodes)


def _ready(pod: dict[str, Any]) -> list[str]:
    """Return the status of a Pod's condition Ready; empty if it has none."""
    conditions = pod["status"].get("conditions", ())
    return [each["status"] for each in conditions if each["type"] == "Ready"]


def unready_agents(lab: Lab) -> str:
    """Return what an agent on every node is wanted for, with what there is of them now."""
    states = []
    for pod in lab.api.items(AGENTS, labelSelector="component=lbnodeagent"):
        status, meta = pod["status"], pod["metadata"]
        parts = [pod["spec"].get("nodeName"), status.get("phase"), status.get("reason")]
        parts += [meta["creationTimestamp"], meta.get("deletionTimestamp"), *_ready(pod)]
        parts += [each.get("state") for each in status.get("containerStatuses", ())]
        states.append(f"{pod['metadata']['name']}: {parts}")
    leases = lab.api.items(LEASES, labelSelector="app.kubernetes.io/component=lbnodeagent")
    names = [lease["metadata"]["name"] for lease in leases]
    nodes = {
        node["metadata"]["name"]: [taint["key"] for taint in node["spec"].get("taints", ())]
        for node in lab.api.items("/api/v1/nodes")
    }
    counted = lab.api.get(DAEMON_SET)["status"]
    return (
        f"agent ready on every node ({'; '.join(states)}; DaemonSet {counted}; "
        f"Leases {names}; taints of Nodes {nodes})"
    )


def agent_pod(lab: Lab, node: str) -> dict[str, Any]:
    """Return the agent's pod on a node; wait for it, as a deleted one is replaced a while later."""

    def only() -> list[dict[str, Any]]:
        pods = lab.api.items(
            AGENTS, labelSelector="component=lbnodeagent", fieldSelector=f"spec.nodeName={node}"
        )
        return pods if len(pods) == 1 else []

    return eventually(only, f"single agent on {node}", seconds=30)[0]


def delete_agent(lab: Lab, node: str) -> None:
    """Delete the agent's pod on a node, with its grace period."""
    lab.api.delete(f"{AGENTS}/{agent_pod(lab, node)['metadata']['name']}")


def allocator_pods(lab: Lab) -> list[dict[str, Any]]:
    """Return the allocator's pods, including terminating ones."""
    return lab.api.items(AGENTS, labelSelector="component=allocator")


def leader(lab: Lab) -> dict[str, Any]:
    """Return the pod of the leading allocator; empty if none leads."""
    holder = lab.api.get(f"{LEASES}/purelb-allocator")["spec"].get("holderIdentity") or ""
    name = holder.partition("_")[0]
    return next((p for p in allocator_pods(lab) if p["metadata"]["name"] == name), {})


def allocator_metric(lab: Lab, series: str) -> float | None:
    """Return the value of a series from the first allocator that has it; None if none has."""
    for pod in allocator_pods(lab):
        url = f"http://{pod['status'].get('podIP')}:7472/metrics"
        text = lab.run_in(pod["spec"]["nodeName"], ["curl", "-sS", url], check=False).stdout
        rows = [line for line in text.splitlines() if line.startswith(f"{series} ")]
        if rows:
            return float(rows[0].rpartition(" ")[2])
    return None


def ingress(service: dict[str, Any]) -> list[str]:
    """Return the addresses in a Service's status."""
    entries = service["status"].get("loadBalancer", {}).get("ingress") or []
    return [entry["ip"] for entry in entries]


def addresses_of(lab: Lab, path: str, count: int = 2) -> list[str]:
    """Wait until a Service has `count` addresses and each is on exactly one node; return them."""
    service = lab.api.wait(
        path, lambda s: len(ingress(s)) == count, what=f"Service with {count} addresses"
    )
    found = ingress(service)
    eventually(
        lambda: all(len(nodes_with(lab, vip)) == 1 for vip in found), "holder for each address"
    )
    return found


def holder(lab: Lab, vip: str, *, seconds: float = 15.0) -> str:
    """Wait until exactly one node has the address; return the node."""

    def only() -> set[str]:
        holders = nodes_with(lab, vip)
        return holders if len(holders) == 1 else set()

    return next(iter(eventually(only, f"one holder of {vip}", seconds=seconds)))


def leftovers(lab: Lab) -> set[str]:
    """Return the addresses that an agent put on a node and that no Service has any more."""
    given = {vip for service in lab.api.items("/api/v1/services") for vip in ingress(service)}
    on = {
        info["local"]
        for node in lab.nodes
        for link in lab.addresses(node)
        for info in link["addr_info"]
        # With a lifetime; a node's own addresses have none.
        if info.get("dynamic") and parse_address(info["local"]) in addresses_on(lab, node)
    }
    pools = [parse_bare_range(pool) for pool in (VIPS_V4, VIPS_V6, LAN2_V4, LAN2_V6)]
    return {vip for vip in on - given if any(parse_address(vip) in pool for pool in pools)}


def address_info(lab: Lab, node: str, vip: str) -> dict[str, Any]:
    """Return the kernel's data of an address on a node; empty if the node does not have it."""
    infos = (info for link in lab.addresses(node) for info in link["addr_info"])
    return next((info for info in infos if info.get("local") == vip), {})


def wait_for_endpoints(lab: Lab, path: str, *nodes: str) -> None:
    """Wait until a Service's endpoints are on these nodes; the cluster delays them for seconds."""
    selector = f"kubernetes.io/service-name={path.rpartition('/')[2]}"

    def current() -> bool:
        slices = lab.api.items(SLICES, labelSelector=selector)
        return {e["nodeName"] for s in slices for e in s.get("endpoints") or ()} == set(nodes)

    eventually(current, f"endpoints on {nodes} alone", seconds=30)


def answers(lab: Lab, address: str, *, of: str = "client") -> bool:
    """Whether the client, or another host, gets an HTTP answer from an address."""
    host = f"[{address}]" if ":" in address else address
    curl = ["curl", "-s", "-o", "/dev/null", "--max-time", "1", f"http://{host}/"]
    return lab.run_in(of, curl, check=False).returncode == 0


def fetch(lab: Lab, address: str, *, path: str = "/", port: int = 80) -> str:
    """Return the body that the client gets from an address. Raises ConnectionError."""
    host = f"[{address}]" if ":" in address else address
    url = f"http://{host}:{port}{path}"
    done = lab.run_in("client", ["curl", "-sS", "--fail", "--max-time", "3", url], check=False)
    if done.returncode:
        raise ConnectionError(f"{url}: {done.stderr}")
    return done.stdout


class Logs:
    """The logs of PureLB's containers. Files stay open, as kubelets delete them with their pods."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._files: dict[Path, TextIO] = {}

    def news(self) -> list[str]:
        """Return the lines since the last call, with their file, also of ended containers."""
        for path in sorted(self._lab.at.run.glob("*/pods/purelb-system_*/*/*.log")):
            if path not in self._files:
                self._files[path] = path.open(errors="replace")
        return [
            f"{'/'.join(path.parts[-5:])}: {line.rstrip()}"
            for path, file in self._files.items()
            for line in file
        ]

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


def error_lines(lines: Iterable[str], *expected: str) -> list[str]:
    """Return the lines with an error, except those with an expected word."""
    return [
        line
        for line in lines
        if any(sign in line for sign in _ERRORS) and not any(word in line for word in expected)
    ]


class Wire:
    """The frames that arrive at a host of the lab, parsed by scapy."""

    def __init__(self, lab: Lab, host: str = "client") -> None:
        every_protocol = socket.htons(0x0003)
        with netns(lab.hosts[host].netns):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, every_protocol)
            self._socket.bind(("eth0", 0))
        self._seen: list[tuple[float, Packet]] = []

    def frames(self) -> list[tuple[float, Packet]]:
        """Return all frames so far, each with the wall clock time at which it was read."""
        self._socket.settimeout(0.01)
        while True:
            try:
                self._seen.append((time.time(), Ether(self._socket.recv(65536))))
            except TimeoutError:
                return self._seen

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def metric(text: str, name: str) -> float:
    """Return the sum of a metric's series."""
    rows = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    assert rows, f"no {name}"
    return sum(float(row.rpartition(" ")[2]) for row in rows)


def run_ansible(
    *arguments: str, check: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook with the collection under test and these environment variables."""
    playbook = str(Path(sys.executable).with_name("ansible-playbook"))
    environ = {**os.environ, "ANSIBLE_NOCOLOR": "1", **variables}
    done = commands.run([playbook, *arguments], cwd=ROOT, env=environ, timeout=300)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def lease_info(kubeconfig: Path, *, succeeds: bool = True) -> dict[str, Any]:
    """Return the result of purelb_lease_info."""
    return module_result(kubeconfig, "purelb_lease_info", succeeds=succeeds)


def module_result(kubeconfig: Path, module: str, *, succeeds: bool = True) -> dict[str, Any]:
    """Return the result of a module that is run without options."""
    ansible = str(Path(sys.executable).with_name("ansible"))
    done = subprocess.run(
        [ansible, "localhost", "-m", f"purelb.purelb.{module}",
         "-e", f"ansible_python_interpreter={sys.executable}"],
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "ANSIBLE_NOCOLOR": "1"},
        text=True, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode == 0) is succeeds, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout.partition("=> ")[2])
    return result
