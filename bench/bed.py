# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The lab to measure: three nodes with PureLB, a pool for hundreds of Services, a web server.

The lab's own lan has only about thirty free IPv4 addresses, so the nodes and the client get another
address each, in a subnet with room for the pool.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figures import RESULTS, ROOT, progress
from labkit.errors import LabError
from labkit.host.progress import run_step
from labkit.lab import Lab
from purelb.core.addresses import parse_address
from purelb.core.election.election import rank
from purelb.core.model import Address
from purelb.core.settings import LeaseTiming, TimingChoice

NODES = 3
ARCHIVE = ROOT / ".cache/image.tar"
NAMESPACE = "purelb-system"
SERVICES = "/api/v1/namespaces/default/services"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
SUBNET4, SUBNET6 = "172.29.0.0/16", "fd28:0:0:1::/64"
# The pool is between these; the nodes' own addresses are below.
_ABOVE, _LAST = ("172.29.16.0", "fd28:0:0:1::1:0"), ("172.29.31.254", "fd28:0:0:1::1:ffff")
# The node that wins the first address of each family in the pool.
FIRST_NODE = "n1"
# Addresses of each Service, one per family.
FAMILIES = 2
_SERVER = (ROOT / "demo/server.py").read_text()
_SELECTOR = {"app": "bench"}


def timing(nodes: int) -> LeaseTiming:
    """Return how agents time their Leases where so many renew theirs, by default."""
    return TimingChoice().timing(nodes=nodes, is_exact=True)


def _image() -> str:
    lines = (ROOT / "galaxy.yml").read_text().splitlines()
    version = next(line.split()[1] for line in lines if line.startswith("version: "))
    return f"localhost/purelb/purelb:{version}"


@contextmanager
def bed() -> Iterator[Lab]:
    """Start a new lab with PureLB and end it afterwards; first end one that is up."""
    if not ARCHIVE.exists():
        raise LabError(f"there is no {ARCHIVE.relative_to(ROOT)}: make it with 'make bench'")
    run_lab("down")
    try:
        run_lab("up", "--nodes", str(NODES))
        lab = Lab.load()
        _prepare(lab)
        yield lab
    finally:
        run_lab("down")


def run_lab(*arguments: str) -> None:
    """Run a command of the lab. Raises LabError with its error output if it fails."""
    done = subprocess.run(
        [ROOT / "lab/lab", *arguments], text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise LabError(f"lab {' '.join(arguments)}: {done.stderr.strip()}")


def _prepare(lab: Lab) -> None:
    progress("lab is up; installing")
    lab.load_image(ARCHIVE)
    for name in ("client", *lab.nodes):
        number = lab.hosts[name].v4.rpartition(".")[2]
        lab.run_in(name, ["ip", "addr", "add", f"172.29.0.{number}/16", "dev", "eth0"])
    log = RESULTS / "install.log"
    log.unlink(missing_ok=True)
    playbook = str(Path(sys.executable).with_name("ansible-playbook"))
    install = [playbook, "purelb.purelb.install", "-e", f"purelb_install_image={_image()}"]
    run_step("install", install, log=log, env={**os.environ, "KUBECONFIG": str(lab.kubeconfig)})
    lab.api.apply(pool(lab.nodes))
    web = web_server(_image())
    lab.api.apply(web)
    path, replicas = lab.api.path_of(web), web["spec"]["replicas"]
    lab.api.wait(path, lambda d: d["status"].get("readyReplicas") == replicas, seconds=60)


def pool(nodes: Mapping[str, object]) -> dict[str, Any]:
    """Return a ServiceGroup with room for thousands of Services."""
    v4, v6 = (
        f"{_first_won(above, nodes)}-{last}" for above, last in zip(_ABOVE, _LAST, strict=True)
    )
    return {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "default", "namespace": NAMESPACE},
        "spec": {
            "local": {
                "v4pool": {"pool": v4, "subnet": SUBNET4},
                "v6pool": {"pool": v6, "subnet": SUBNET6},
            }
        },
    }


def _first_won(above: str, nodes: Mapping[str, object]) -> Address:
    """Return the first address above this one that the first node wins."""
    address = parse_address(above) + 1
    while rank(nodes, address)[0] != FIRST_NODE:
        address += 1
    return address


def web_server(image: str) -> dict[str, Any]:
    """Return a Deployment of the web server behind all Services, with a pod per node."""
    container = {
        "name": "web",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["/opt/purelb/bin/python3", "-c", _SERVER],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    # As long as by default, which is longer than in the lab: Pods stay on a node that is lost.
    stays = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    pod = {
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "tolerations": [
            {"key": f"node.kubernetes.io/{trouble}", **stays}
            for trouble in ("not-ready", "unreachable")
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "bench", "namespace": "default"},
        "spec": {
            "replicas": NODES,
            "selector": {"matchLabels": _SELECTOR},
            "template": {"metadata": {"labels": _SELECTOR}, "spec": pod},
        },
    }


def service(number: int) -> dict[str, Any]:
    """Return a dual-stack Service."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"bench-{number:04}", "namespace": "default"},
        "spec": {
            "type": "LoadBalancer",
            "ipFamilyPolicy": "RequireDualStack",
            "selector": _SELECTOR,
            "ports": [{"port": 80, "targetPort": 8080}],
        },
    }


def have_services(lab: Lab, count: int) -> list[str]:
    """Create Services up to this number; return all addresses when each is on its winner."""
    existing = len(_balanced(lab))
    progress(f"{count} Services: creating {count - existing}")
    for number in range(existing, count):
        lab.api.create(service(number))
    eventually(
        lambda: len(_addresses(lab)) == FAMILIES * count, f"address of {count} Services", 180
    )
    vips = _addresses(lab)
    settle(lab, vips)
    return vips


def _balanced(lab: Lab) -> list[dict[str, Any]]:
    return lab.api.items(SERVICES, fieldSelector="spec.type=LoadBalancer")


def _addresses(lab: Lab) -> list[str]:
    return [
        entry["ip"]
        for service in _balanced(lab)
        for entry in service["status"].get("loadBalancer", {}).get("ingress") or ()
    ]


def winners(vips: list[str], nodes: Mapping[str, object]) -> dict[str, str]:
    """Return the winner of each address."""
    return {vip: rank(nodes, parse_address(vip))[0] for vip in vips}


def on_nodes(lab: Lab) -> dict[str, frozenset[str]]:
    """Return the addresses on the interfaces of each node."""
    return {
        node: frozenset(
            info["local"]
            for link in lab.addresses(node)
            for info in link["addr_info"]
            if "local" in info
        )
        for node in lab.nodes
    }


def settle(lab: Lab, vips: list[str], *, members: Mapping[str, object] | None = None) -> None:
    """Wait until each address is on its winner and on no other node.

    `members`: the names of all candidates, if there are more than the lab's nodes.
    """
    wanted = winners(vips, members or lab.nodes)

    def settled() -> bool:
        held = on_nodes(lab)
        return all(
            (vip in held[n]) == (n == winner) for vip, winner in wanted.items() for n in held
        )

    eventually(settled, "each address on its winner alone", 60)


def eventually(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Poll a condition until it is true. Raises LabError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"no {what} within {seconds:g} s")
        time.sleep(0.2)
