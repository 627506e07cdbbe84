# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The verification by kernels and segment, in a healthy and in a deliberately broken cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from labkit.inventory import inventory
from labkit.net.namespaces import ip_batch
from labkit.probe.addresses import nodes_with
from tests.support.lab.cluster_queries import (
    LEASES,
    address_info,
    addresses_of,
    eventually,
    holder,
    lease_info,
)
from tests.support.lab.faults import keep_addresses, without_fence

pytestmark = pytest.mark.timeout(180)
LONG = {"spec": {"leaseDurationSeconds": 3600}}


@pytest.fixture
def hosts(cluster, tmp_path) -> Path:
    path = tmp_path / "hosts.yml"
    path.write_text(inventory(cluster.at, cluster.topology))
    return path


@pytest.fixture
def run_module(hosts):
    def run(host: str, name: str, *, succeeds: bool = True, **arguments: Any) -> dict[str, Any]:
        ansible = str(Path(sys.executable).with_name("ansible"))
        done = subprocess.run(
            [ansible, "-i", str(hosts), host, "-m", f"purelb.purelb.{name}",
             "-a", json.dumps(arguments)],
            env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
            text=True, capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        assert (done.returncode == 0) is succeeds, done.stdout + done.stderr
        result: dict[str, Any] = json.loads(done.stdout.partition("=> ")[2])
        return result

    return run


@pytest.fixture
def verify(playbook, hosts):
    """Runs the playbook; returns its output and asserts whether it succeeds."""

    def run(*, succeeds: bool, **variables: Any) -> str:
        extra = ("-e", json.dumps(variables))
        done = playbook("-i", str(hosts), "purelb.purelb.verify", *extra, check=False)
        assert (done.returncode == 0) is succeeds, done.stdout + done.stderr
        return str(done.stdout)

    return run


@pytest.fixture
def second(cluster, make_service) -> Iterator[tuple[list[str], str]]:
    """The addresses of a Service, and a second node that has them without being the winner."""
    path = make_service()
    vips = addresses_of(cluster, path)
    keep_addresses(cluster, path, *vips)
    holder_by_vip = {vip: holder(cluster, vip) for vip in vips}
    for vip, home in holder_by_vip.items():
        # Otherwise duplicate address detection would find the second one.
        eventually(lambda v=vip, n=home: not address_info(cluster, n, v).get("tentative"), vip)
    node = min(cluster.nodes.keys() - set(holder_by_vip.values()))
    masks = [f"{vip}/64" if ":" in vip else f"{vip}/24" for vip in vips]
    for mask in masks:
        nodad = ["nodad"] if ":" in mask else []
        cluster.run_in(node, ["ip", "addr", "add", mask, "dev", "eth0", *nodad])
    yield vips, node
    for mask in masks:
        cluster.run_in(node, ["ip", "addr", "del", mask, "dev", "eth0"])


def mac_of(lab, node):
    return lab.nodes[node].interfaces[0].mac


def settled(kubeconfig):
    eventually(lambda: not lease_info(kubeconfig)["findings"], "whole cluster", seconds=60)


def errors(kubeconfig):
    return [f for f in lease_info(kubeconfig)["findings"] if f["severity"] == "error"]


def test_healthy_cluster_has_no_findings(cluster, make_service, verify):
    vips = addresses_of(cluster, make_service())
    settled(cluster.kubeconfig)
    shown = verify(succeeds=True, purelb_verify_fail_on="warning")
    assert "0 errors, 0 warnings" in shown
    for vip in vips:
        (line,) = (line for line in shown.splitlines() if line.strip().startswith(f'"{vip} '))
        node = holder(cluster, vip)
        assert line.split()[2:5] == [node, node, mac_of(cluster, node)]


@pytest.mark.thorough
def test_vip_info_returns_node_and_lifetime_of_an_address(cluster, make_service, run_module):
    vips = addresses_of(cluster, make_service())
    for vip in vips:
        node = holder(cluster, vip)
        seen = run_module(node, "purelb_vip_info", vips=[vip])
        (one,) = seen["vips"]
        assert (one["address"], one["interface"], one["up"]) == (vip, "eth0", True)
        assert one["prefix_length"] == (128 if ":" in vip else 32)
        assert one["mac"] == mac_of(cluster, node)
        assert 0 < one["valid_lifetime"] <= 10
        assert "noprefixroute" in one["flags"]
        assert "permanent" not in one["flags"]
        (eth0,) = (link for link in seen["interfaces"] if link["name"] == "eth0")
        assert eth0["subnets"] == ["172.28.1.0/24", "fd28:0:0:1::/64"]


@pytest.mark.usefixtures("forget_duplicates")
def test_address_on_a_second_node_is_found_by_all_three_modules(
    cluster, second, run_module, verify
):
    vips, wrong = second
    seen = run_module(wrong, "purelb_vip_info", pools=["172.28.1.220-172.28.1.250", "fd28::/32"])
    by_hand = {vip["address"]: vip["valid_lifetime"] for vip in seen["vips"]}
    assert {vip: by_hand[vip] for vip in vips} == dict.fromkeys(vips)
    answers = run_module("client", "purelb_neighbor_info", vips=vips)["answers"]
    both = {v: {mac_of(cluster, n) for n in (wrong, holder_but(cluster, v, wrong))} for v in vips}
    assert {answer["address"]: set(answer["macs"]) for answer in answers} == both
    shown = verify(succeeds=False)
    for vip in vips:
        for code in ("wrongHolder", "answeredTwice"):
            lines = [line for line in shown.splitlines() if f'"error {code}: {vip} ' in line]
            assert len(lines) == 1, shown
            assert all(mac in lines[0] for mac in both[vip])


def holder_but(lab, vip, other):
    (node,) = nodes_with(lab, vip) - {other}
    return node


def test_two_interfaces_in_one_subnet_answer_once_with_the_fence(cluster, make_service, verify):
    """The kernel answers ARP on both for an address on one; the other answer is dropped."""
    vip4, _vip6 = addresses_of(cluster, make_service())
    node = holder(cluster, vip4)
    # Agents remember for half a minute what other tests showed them.
    eventually(lambda: not lease_info(cluster.kubeconfig)["findings"], "no finding", seconds=60)
    with second_interface(cluster, node):
        shown = verify(succeeds=True)
    assert "answeredTwice" not in shown
    assert "twoInterfacesAnswer" not in shown


@contextmanager
def second_interface(lab, node):
    """A node with another interface in the subnet of eth0."""
    begin = ["link add eth1 link eth0 type macvlan mode bridge", "link set eth1 up"]
    namespace = lab.nodes[node].netns
    ip_batch([*begin, "addr add 172.28.1.77/24 dev eth1"], namespace=namespace)
    try:
        time.sleep(1)
        yield
    finally:
        ip_batch(["link del eth1"], namespace=namespace)


@pytest.mark.thorough
def test_two_interfaces_in_one_subnet_are_found_without_the_fence(cluster, make_service, verify):
    """Both answer ARP for an address on one of them; of IPv6 only the one that has it."""
    vip4, vip6 = addresses_of(cluster, make_service())
    with without_fence(cluster):
        node = eventually(lambda: holder(cluster, vip4), "holder")
        with second_interface(cluster, node):
            shown = verify(succeeds=False)
    assert f"warning twoInterfacesAnswer: node {node}: eth0 and eth1 are both in" in shown
    (line,) = [line for line in shown.splitlines() if f'"error answeredTwice: {vip4} ' in line]
    assert f"set net.ipv4.conf.all.arp_ignore to 1 on {node}" in line
    assert f"answeredTwice: {vip6} " not in shown


@pytest.mark.thorough
def test_stopped_agent_is_a_warning_once_others_have_its_addresses(cluster, holder_by_vip, verify):
    cluster.kill("n1", "lbnodeagent", "STOP")
    try:
        moved = [vip for vip, node in holder_by_vip.items() if node == "n1"]
        for vip in moved:
            eventually(
                lambda v=vip: nodes_with(cluster, v) - {"n1"}, f"{vip} elsewhere", seconds=20
            )

        def is_only_a_warning():
            findings = lease_info(cluster.kubeconfig)["findings"]
            # None at all, if n1 had no address to wait for and its Lease is still valid.
            has_expired = any(f["code"] == "leaseExpired" for f in findings)
            return has_expired and all(f["severity"] == "warning" for f in findings)

        eventually(is_only_a_warning, "expired Lease without an error", seconds=60)
        shown = verify(succeeds=False, purelb_verify_fail_on="warning")
        assert "warning leaseExpired: Lease purelb-node-n1" in shown
        assert '"0 errors, ' in shown
    finally:
        cluster.kill("n1", "lbnodeagent", "CONT")


@pytest.mark.thorough
def test_winner_without_its_addresses_and_wrong_lease_are_errors(cluster, holder_by_vip, verify):
    node = next(iter(holder_by_vip.values()))
    try:
        # All of them: the others take over what a node has no right to, with any Lease.
        for name in cluster.nodes:
            cluster.kill(name, "lbnodeagent", "STOP")
        lease = f"{LEASES}/purelb-node-{node}"
        subnets = {"metadata": {"annotations": {"purelb.io/subnets": "172.28.1.0/24,fd28:9::/64"}}}
        cluster.api.merge_patch(lease, {**subnets, **LONG})
        lost = [vip for vip, home in holder_by_vip.items() if home == node and ":" not in vip]
        for vip in lost:
            eventually(lambda v=vip: not nodes_with(cluster, v), f"{vip} gone", seconds=40)
        shown = verify(succeeds=False)
        named = f"subnetsDiffer: Lease purelb-node-{node}"
        assert f"error {named}: names fd28:9::/64" in shown
        assert f"warning {named}: does not name fd28:0:0:1::/64" in shown
        for vip in lost:
            assert f"error notHeld: {vip} " in shown
            assert f"error noAnswer: {vip} " in shown
    finally:
        for name in cluster.nodes:
            cluster.kill(name, "lbnodeagent", "CONT")


@pytest.fixture
def half_read(hosts) -> Path:
    """The inventory with a node that does not answer and one without the configured Python."""
    inventory = json.loads(hosts.read_text())
    nodes = inventory["purelb_nodes"]["hosts"]
    nodes["n1"] = {"ansible_connection": "ssh", "ansible_host": "192.0.2.1", "ansible_timeout": 1}
    nodes["n2"]["ansible_python_interpreter"] = "/nowhere/python3"
    hosts.write_text(json.dumps(inventory))
    return hosts


def test_unreachable_nodes_are_findings_and_the_others_are_verified(
    cluster, holder_by_vip, half_read, verify
):
    settled(cluster.kubeconfig)
    shown = verify(succeeds=True)
    for node in ("n1", "n2"):
        assert f'"warning nodeUnread: node {node}: its interfaces could not be read: ' in shown
    assert '"0 errors, 2 warnings"' in shown
    for vip in (vip for vip, node in holder_by_vip.items() if node == "n3"):
        (line,) = (line for line in shown.splitlines() if line.strip().startswith(f'"{vip} '))
        assert line.split()[3] == "n3"


@pytest.mark.thorough
def test_unreachable_node_fails_the_playbook_if_configured(cluster, half_read, verify):
    settled(cluster.kubeconfig)
    shown = verify(succeeds=False, purelb_verify_fail_on="warning")
    assert "first: nodeUnread: node n1: " in shown


def test_what_was_not_looked_at_is_no_success(cluster, holder_by_vip, verify, hosts):
    assert holder_by_vip
    settled(cluster.kubeconfig)
    hosts.write_text(json.dumps({"ungrouped": {"hosts": {}}}))
    shown = verify(succeeds=False)
    assert '"error nodesNotExamined: nodes: the interfaces of no node were examined' in shown
    assert '"error segmentNotExamined: segment: no host asked the segment' in shown
    shown = verify(succeeds=True, purelb_verify_examine=[], purelb_verify_fail_on="warning")
    assert '"0 errors, 0 warnings"' in shown


@pytest.mark.thorough
def test_metrics_are_read_from_a_host_that_reaches_the_nodes(cluster, run_module):
    settled(cluster.kubeconfig)
    asked = {
        "kubeconfig": str(cluster.kubeconfig),
        "check_metrics": True,
        "examine": [],
        "fail_on": "warning",
    }
    run_module("control", "purelb_verify", **asked)
    refused = run_module("control", "purelb_verify", succeeds=False, **asked, metrics_port=7)
    assert refused["warning_count"] == len(cluster.nodes)
    assert "first: metricsUnreachable: node n1: http://172.28.1.11:7/metrics: " in refused["msg"]


@pytest.mark.thorough
def test_invalid_options_are_refused_with_the_remedy(cluster, run_module):
    refused = run_module("client", "purelb_neighbor_info", succeeds=False, vips=["10.100.0.7"])
    assert "10.100.0.7 is not on a segment of this host" in refused["msg"]
    refused = run_module("n1", "purelb_vip_info", succeeds=False, pools=["172.28.1.0-x"])
    assert "pools: '172.28.1.0-x' is not a CIDR or first-last" in refused["msg"]
