# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The demo: install PureLB, serve a Service, lose a pod, a node and a cable of two, audit."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from demo.report import report
from demo.target import CLUSTER, IMAGE, MINE, target, untouched
from labkit.errors import LabError, StepFailed, of_missing_file
from labkit.host.progress import run_step
from labkit.lab import Lab
from labkit.probe.addresses import nodes_with
from labkit.probe.prober import Answer, Prober
from purelb.core.addresses import parse_address
from purelb.core.election.election import rank

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / ".cache/demo"
AGENTS = "/api/v1/namespaces/purelb-system/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases"
SERVICE = "/api/v1/namespaces/default/services/demo"
SECOND_SERVICE = f"{SERVICE}-lan2"
SECOND_LAN, SECOND_NODES, SECOND_INTERFACE = "lan2", ("n2", "n3"), "eth1"
# A crashed node's addresses may be down for the duration of its Lease and a little longer.
TAKEOVER_SECONDS = 30.0


def kept_environment() -> dict[str, str]:
    """Return this process's environment without what would lead modules to another cluster."""
    return {name: text for name, text in os.environ.items() if not name.startswith("K8S_AUTH_")}


def playbook(step: str, kubeconfig: str, *arguments: str) -> None:
    """Run a playbook as a step with its own log. Raises LabError with Ansible's message."""
    log = LOGS / f"{step}.log"
    log.unlink(missing_ok=True)
    environ = {**kept_environment(), "KUBECONFIG": kubeconfig, "ANSIBLE_NOCOLOR": "1"}
    command = [str(Path(sys.executable).with_name("ansible-playbook")), *arguments]
    begin = time.monotonic()
    try:
        run_step(step, command, log=log, cwd=ROOT, env=environ)
    except StepFailed as error:
        messages = re.findall(r'"msg": ("(?:[^"\\]|\\.)*")', log.read_text())
        if not messages:
            raise
        where = log.relative_to(ROOT)
        raise LabError(f"{step} failed: {json.loads(messages[-1])} (log: {where})") from error
    print(f"  {step}: done in {time.monotonic() - begin:.1f} s", flush=True)


def audit(kubeconfig: str) -> dict[str, Any]:
    """Run purelb_lease_info and return its result."""
    result = LOGS / "audit.json"
    playbook("audit", kubeconfig, "demo/audit.yml", "-e", f"demo_report={result}")
    answer: dict[str, Any] = json.loads(result.read_text())
    return answer


def holder(lab: Lab, vip: str) -> str:
    """Return the node that has the address on an interface; waits until it is exactly one."""
    deadline = time.monotonic() + TAKEOVER_SECONDS
    while time.monotonic() < deadline:
        holders = nodes_with(lab, vip)
        if len(holders) == 1:
            return holders.pop()
        time.sleep(0.02)
    raise TimeoutError(f"{vip} is not on exactly one node, but on {nodes_with(lab, vip) or 'none'}")


def agent_pod(lab: Lab, node: str) -> str:
    """Return the path of the node agent's pod on a node."""
    pods = lab.api.items(
        AGENTS, labelSelector="component=lbnodeagent", fieldSelector=f"spec.nodeName={node}"
    )
    return f"{AGENTS}/{pods[0]['metadata']['name']}"


def next_holder(lab: Lab, vip: str, *, instead_of: str) -> tuple[str, float]:
    """Return the next node with the address, and the monotonic time at which it had it."""
    deadline = time.monotonic() + TAKEOVER_SECONDS
    while time.monotonic() < deadline:
        others = nodes_with(lab, vip) - {instead_of}
        if others:
            return others.pop(), time.monotonic()
        time.sleep(0.005)
    raise TimeoutError(f"no node took {vip} over from {instead_of}")


def lose_pod(lab: Lab, prober: Prober, vip: str) -> None:
    """Delete the holder's agent pod, and print how long the client got no answer."""
    loser = holder(lab, vip)
    print(f"  deleting the agent pod on {loser} ...", flush=True)
    start = time.monotonic()
    lab.api.delete(agent_pod(lab, loser))
    winner, taken = next_holder(lab, vip, instead_of=loser)
    prober.wait_for_answer(vip, after=taken, seconds=TAKEOVER_SECONDS)
    show(f"agent pod on {loser} deleted", vip, loser, winner, taken - start)
    pause = prober.longest_gap(vip, since=start)
    print(f"      longest time without an answer: {pause * 1000:.0f} ms", flush=True)


def lose_node(lab: Lab, prober: Prober, vip: str) -> None:
    """Cut the holder's cable, print when the client got an answer again, and connect it again."""
    loser = holder(lab, vip)
    lease = lab.api.get(f"{LEASES}/purelb-node-{loser}")
    seconds = lease["spec"]["leaseDurationSeconds"]
    print(f"  cutting off {loser}; its Lease expires within {seconds} s ...", flush=True)
    start = time.monotonic()
    lab.cut(loser)
    try:
        winner, taken = next_holder(lab, vip, instead_of=loser)
        answer: Answer = prober.wait_for_answer(vip, after=taken, seconds=TAKEOVER_SECONDS)
        show(f"{loser} cut off the network", vip, loser, winner, taken - start)
        again = answer.ended - start
        print(f"      the client got an answer again after {again * 1000:.0f} ms", flush=True)
    finally:
        lab.mend(loser)


def show(what: str, vip: str, loser: str, winner: str, seconds: float) -> None:
    """Print one takeover."""
    print(f"  {what}: {vip} moved from {loser} to {winner} in {seconds * 1000:.0f} ms", flush=True)


def lose_cable(lab: Lab, prober: Prober, vips: list[str]) -> None:
    """Cut the holder's cable in the second lan, print the takeovers, and connect it again."""
    loser = holder(lab, vips[0])
    print(f"  cutting the cable of {SECOND_INTERFACE} on {loser} ...", flush=True)
    start = time.monotonic()
    lab.cut(loser, SECOND_INTERFACE)
    try:
        for vip in vips:
            winner, taken = next_holder(lab, vip, instead_of=loser)
            show(f"{loser} lost its cable in {SECOND_LAN}", vip, loser, winner, taken - start)
        ends = [prober.wait_for_answer(v, after=taken, seconds=TAKEOVER_SECONDS) for v in vips]
        again = max(answer.ended for answer in ends) - start
        print(f"      the client got answers again after {again * 1000:.0f} ms", flush=True)
    finally:
        lab.mend(loser, SECOND_INTERFACE)


def subnets_of_leases(lab: Lab) -> dict[str, list[str]]:
    """Return the subnets in each node's Lease."""
    leases = lab.api.items(LEASES, labelSelector="app.kubernetes.io/component=lbnodeagent")
    return {
        lease["spec"]["holderIdentity"]: lease["metadata"]["annotations"][
            "purelb.io/subnets"
        ].split(",")
        for lease in leases
    }


def second_subnet(lab: Lab, kubeconfig: str) -> None:
    """Connect two nodes to a second lan, and serve a Service there that no other node may have."""
    for node in SECOND_NODES:
        lab.connect(node, SECOND_LAN)
    print(f"  {' and '.join(SECOND_NODES)} have {SECOND_INTERFACE} in {SECOND_LAN}", flush=True)
    playbook("subnets", kubeconfig, "demo/subnets.yml")
    vips = service_addresses(lab, SECOND_SERVICE)

    def settle_second() -> None:
        settle(lab, SECOND_SERVICE, SECOND_NODES, SECOND_INTERFACE)

    settle_second()
    for node, subnets in sorted(subnets_of_leases(lab).items()):
        print(f"  the Lease of {node} lists {' '.join(subnets)}")
    with Prober(lab, *vips) as prober:
        for vip in vips:
            prober.wait_for_answer(vip, after=0, seconds=TAKEOVER_SECONDS)
            first = rank(lab.nodes, parse_address(vip))[0]
            text = f"; {first} has the lowest hash, but is not in its subnet"
            note = text if first not in SECOND_NODES else ""
            print(f"  {vip} is on {holder(lab, vip)}{note}", flush=True)
        lose_cable(lab, prober, vips)
        settle_second()


def service_addresses(lab: Lab, path: str = SERVICE) -> list[str]:
    """Return a Service's addresses, as soon as it has one of each family."""

    def complete(service: dict[str, Any] | None) -> bool:
        ingress = ((service or {}).get("status", {}).get("loadBalancer", {})).get("ingress", [])
        return len(ingress) == len(("IPv4", "IPv6"))

    service = lab.api.wait(path, complete, what="address of both families", seconds=30)
    return [entry["ip"] for entry in service["status"]["loadBalancer"]["ingress"]]


def demonstrate(lab: Lab, image: str) -> None:
    """Run all steps after the installation."""
    kubeconfig = str(lab.kubeconfig)
    playbook("deploy", kubeconfig, "demo/deploy.yml", "-e", f"demo_image={image}")
    vips = service_addresses(lab)
    with Prober(lab, *vips) as prober:
        begin = time.monotonic()
        for vip in vips:
            answer = prober.wait_for_answer(vip, after=begin, seconds=TAKEOVER_SECONDS)
            print(f"  {vip} is on {holder(lab, vip)}; pod {answer.body} answered the client")
        for lose in (lose_pod, lose_node):
            for vip in vips:
                settle(lab)
                lose(lab, prober, vip)
    # The node that was cut off last recovers meanwhile.
    second_subnet(lab, kubeconfig)
    settle(lab)
    print("\n" + report(audit(kubeconfig)), flush=True)


def is_settled(lab: Lab, path: str, candidates: Iterable[str], interface: str) -> bool:
    """Whether every node has a Lease, and each address is on its winner and announced as such."""
    service = lab.api.get(path)
    vips = [entry["ip"] for entry in service["status"]["loadBalancer"]["ingress"]]
    announced = " ".join(
        value
        for key, value in service["metadata"]["annotations"].items()
        if key.startswith("purelb.io/announcing-")
    ).split()
    winners = {vip: rank(candidates, parse_address(vip))[0] for vip in vips}
    return (
        len(subnets_of_leases(lab)) == len(lab.nodes)
        and all(nodes_with(lab, vip) == {winner} for vip, winner in winners.items())
        and sorted(announced)
        == sorted(f"{node},{interface},{vip}" for vip, node in winners.items())
    )


def settle(
    lab: Lab,
    path: str = SERVICE,
    candidates: Iterable[str] | None = None,
    interface: str = "eth0",
) -> None:
    """Wait until the cluster has recovered from the last fault."""
    deadline = time.monotonic() + TAKEOVER_SECONDS
    while not is_settled(lab, path, candidates or lab.nodes, interface):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the cluster has not recovered after {TAKEOVER_SECONDS:g} s")
        time.sleep(0.1)


def lab_up(image: str, archive: Path) -> Lab:
    """Start the lab, end all faults and load the image into the nodes."""
    subprocess.run([ROOT / "lab/lab", "up", "--nodes", "3"], check=True)
    lab = Lab.load()
    for node in lab.nodes:
        # An interrupted run may have left these faults.
        lab.mend(node)
        lab.heal(node)
    lab.load_image(archive)
    print(f"  {image} is on every node", flush=True)
    return lab


def install(kubeconfig: str, image: str, *more: str) -> None:
    """Run the collection's playbook that installs PureLB."""
    variables = ("-e", f"purelb_install_image={image}", *more)
    playbook("install", kubeconfig, "purelb.purelb.install", *variables)


def run(image: str, archive: Path) -> None:
    """Install and audit, in the cluster that the user asks for or in a lab."""
    mine = target(os.environ)
    if mine:
        print(f"  installing {mine.image} in {mine}", flush=True)
        install(mine.kubeconfig, mine.image)
        print("\n" + report(audit(mine.kubeconfig)), flush=True)
        return
    if note := untouched(os.environ):
        print(note, flush=True)
    lab = lab_up(image, archive)
    # The nodes report the image that was just loaded half a minute later.
    install(str(lab.kubeconfig), image, "-e", "purelb_install_check_image=false")
    demonstrate(lab, image)


def main() -> None:
    """Run the demo. A failure ends it with one line: the step, the reason and the log."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"{CLUSTER}={MINE} and {IMAGE}=NAME install in the cluster of your kubeconfig and"
        " audit it, without a lab.",
    )
    parser.add_argument("--image", required=True, help="name of the image in the archive")
    parser.add_argument("--archive", type=Path, help="archive with the image, for the lab's nodes")
    options = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    try:
        run(options.image, options.archive)
    except LabError as error:
        sys.exit(f"demo: {error}")
    except FileNotFoundError as error:
        sys.exit(f"demo: {of_missing_file(error)}")
    except TimeoutError as error:
        sys.exit(f"demo: {error}: `lab/lab logs` lists the logs of every component and pod")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # `lab up` has printed the reason


if __name__ == "__main__":
    main()
