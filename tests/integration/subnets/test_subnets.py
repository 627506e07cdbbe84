# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes in different subnets: n2 and n3 are in lan1 and lan2, n1 in lan1 only.

Each test has Services with an address of each family, and prints its figures.
"""

from __future__ import annotations

import json
import time

import pytest

from labkit.inventory import inventory
from labkit.probe.prober import Prober
from purelb.core.addresses import parse_address
from purelb.core.election.election import rank
from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import (
    CRASH,
    GRACEFUL,
    LAN2_V4,
    LAN2_V6,
    LEASES,
    addresses_of,
    answers,
    eventually,
    lease_info,
    timed,
    wait_for_endpoints,
)
from tests.support.lab.faults import (
    events_of,
    holders_of,
    longest_of,
    node_with_both_families,
    serve_addresses,
    wait_for_candidates,
    wait_until_moved,
    wait_until_returned,
)

pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]
LAN1 = {"172.28.1.0/24", "fd28:0:0:1::/64"}
LAN2 = {"172.28.2.0/24", "fd28:0:0:2::/64"}
INSIDE, OUTSIDE = ("n2", "n3"), "n1"
BOTH = {OUTSIDE: LAN1} | dict.fromkeys(INSIDE, LAN1 | LAN2)
GROUP = {"purelb.io/service-group": "lan2"}
SETTLED = 1.0
OBJECTS = [
    {
        "apiVersion": "purelb.io/v2",
        "kind": kind,
        "metadata": {"name": "lan2", "namespace": "purelb-system"},
        "spec": {"local": local},
    }
    for kind, local in (
        ("LBNodeAgent", {"interfaces": ["eth1"]}),
        (
            "ServiceGroup",
            {
                "v4pool": {"pool": LAN2_V4, "subnet": "172.28.2.0/24"},
                "v6pool": {"pool": LAN2_V6, "subnet": "fd28:0:0:2::/64"},
            },
        ),
    )
]


def lease_subnets(lab):
    notes = {n: lab.api.get(f"{LEASES}/purelb-node-{n}")["metadata"]["annotations"] for n in BOTH}
    return {node: {*note["purelb.io/subnets"].split(",")} for node, note in notes.items()}


@pytest.fixture(scope="module", autouse=True)
def lan2(cluster):
    """Connects two nodes to lan2, and lets their agents announce the addresses of a group there."""
    connected = []
    try:
        for node in INSIDE:
            cluster.connect(node, "lan2")
            connected.append(node)
        for thing in OBJECTS:
            cluster.api.apply(thing)
        eventually(lambda: lease_subnets(cluster) == BOTH, "subnets in the Leases")
        yield
    finally:
        for path in map(cluster.api.path_of, OBJECTS):
            if cluster.api.exists(path):
                cluster.api.delete(path)
        for node in connected:
            cluster.disconnect(node, "lan2")
        eventually(
            lambda: lease_subnets(cluster) == dict.fromkeys(BOTH, LAN1), "Leases as they were"
        )


def wait_for_election(lab):
    """Wait until every agent knows who is in which subnet, so that all elect alike."""
    wait_for_candidates(lab, *LAN1)
    wait_for_candidates(lab, *LAN2, count=len(INSIDE))


@pytest.fixture
def there(cluster, make_service):
    """The addresses of four Services in lan2."""
    wait_for_election(cluster)
    return serve_addresses(cluster, make_service, annotations=GROUP)


@pytest.fixture
def here(cluster, there, make_service):
    """The addresses of four Services in lan1."""
    return serve_addresses(cluster, make_service)


def winners(vips, nodes=INSIDE):
    return {vip: {rank(nodes, parse_address(vip))[0]} for vip in vips}


def interfaces_with(lab, vip):
    return {
        link["ifname"]
        for node in lab.nodes
        for link in lab.addresses(node)
        for info in link["addr_info"]
        if info.get("local") == vip
    }


def test_winner_is_in_the_subnet_and_clients_of_both_lans_get_answers(cluster, there, here, figure):
    assert lease_subnets(cluster) == BOTH
    assert holders_of(cluster, *there) == winners(there)
    assert holders_of(cluster, *here) == winners(here, BOTH)
    assert {name for vip in there for name in interfaces_with(cluster, vip)} == {"eth1"}
    assert {name for vip in here for name in interfaces_with(cluster, vip)} == {"eth0"}
    # The client is in both lans; the control host reaches lan2 by the router.
    assert " dev eth1 " in cluster.run_in("client", ["ip", "route", "get", there[0]]).stdout
    assert " via 172.28.1.1 " in cluster.run_in("control", ["ip", "route", "get", there[0]]).stdout
    for host in ("client", "control"):
        seconds = timed(
            lambda h=host: all(answers(cluster, vip, of=h) for vip in there), f"answers to {host}"
        )
        figure(f"all {len(there)} addresses answered {host} after {seconds:.2f} s")


def test_audit_of_two_subnets_has_no_findings(cluster, there, here, playbook, tmp_path, figure):
    def settled():
        result = lease_info(cluster.kubeconfig)
        return result if not result["findings"] else None

    result = eventually(settled, "audit without findings", seconds=60)
    assert {x["node"]: {*x["subnets"]} for x in result["leases"]} == BOTH
    for vip in result["vips"]:
        nodes = INSIDE if vip["address"] in there else (*BOTH,)
        assert sorted(vip["candidates"]) == sorted(nodes)
        assert {vip["winner"]} == winners([vip["address"]], nodes)[vip["address"]]
        assert [e["node"] for e in vip["announcing"]] == [vip["winner"]]
    hosts = tmp_path / "hosts.yml"
    hosts.write_text(inventory(cluster.at, cluster.topology))
    strict = json.dumps({"purelb_verify_fail_on": "warning"})
    start = time.monotonic()
    shown = playbook("-i", str(hosts), "purelb.purelb.verify", "-e", strict).stdout
    figure(f"verified after {time.monotonic() - start:.1f} s")
    assert "0 errors, 0 warnings" in shown
    for vip in (*there, *here):
        (node,) = holders_of(cluster, vip)[vip]
        (line,) = (line for line in shown.splitlines() if line.strip().startswith(f'"{vip} '))
        mac = cluster.nodes[node].interfaces[vip in there].mac
        assert line.split()[2:5] == [node, node, mac]


def test_node_that_is_cut_off_is_replaced_inside_the_subnet(cluster, there, figure):
    loser, own = node_with_both_families(cluster, there)
    (other,) = {*INSIDE} - {loser}
    with (
        Prober(cluster, *own) as near,
        Prober(cluster, *own, host="control") as far,
        record_holders(cluster, *there) as holders,
    ):
        for prober in (near, far):
            for vip in own:
                prober.wait_for_answer(vip, after=0, seconds=15)
        start = time.monotonic()
        cluster.cut(loser)
        wait_until_moved(cluster, loser, own, seconds=CRASH)
        moved = time.monotonic()
        for prober in (near, far):
            for vip in own:
                prober.wait_for_answer(vip, after=moved, seconds=CRASH)
        gaps = [longest_of(lambda v, p=p: p.longest_gap(v, since=start), own) for p in (near, far)]
        assert holders_of(cluster, *there) == {vip: {other} for vip in there}
        away = holders.now
        cluster.mend(loser)
        back = timed(lambda: holders_of(cluster, *there) == winners(there), "return", seconds=30)
        time.sleep(SETTLED)
    figure(
        f"moved after {moved - start:.2f} s, without answer {gaps[0]:.2f} s in lan2, "
        f"{gaps[1]:.2f} s behind the router; back after {back:.2f} s"
    )
    assert away == dict.fromkeys(there, frozenset({other}))
    assert not any(OUTSIDE in nodes for vip in there for nodes in holders.sequence(vip))
    # Longer than the move: IPv6 addresses are checked for duplicates, and some requests go to the
    # lost node's pod.
    assert max(gaps) < CRASH
    # At the return both may have an address briefly, until the old holder sees the Lease.
    assert longest_of(holders.longest_doubled, own) < 1


def test_lost_subnet_takes_only_its_own_addresses_and_the_last_one_all(
    cluster, there, here, make_service, figure
):
    loser, own = node_with_both_families(cluster, there)
    (other,) = {*INSIDE} - {loser}
    path = make_service(annotations=GROUP)
    vips = addresses_of(cluster, path)
    uid = cluster.api.get(path)["metadata"]["uid"]
    with record_holders(cluster, *there, *here) as holders:
        start = time.monotonic()
        cluster.cut(loser, "eth1")
        wait_until_moved(cluster, loser, own, seconds=GRACEFUL)
        moved = time.monotonic() - start
        wait_for_candidates(cluster, *LAN2, count=1)
        wait_for_candidates(cluster, *LAN1)
        assert lease_subnets(cluster) == BOTH | {loser: LAN1}
        eventually(lambda: all(answers(cluster, vip) for vip in own), "answers of the other node")

        start = time.monotonic()
        cluster.cut(other, "eth1")
        eventually(lambda: not any(holders_of(cluster, *there).values()), "withdrawal")
        gone = time.monotonic() - start
        (event, *more) = eventually(
            lambda: len(e := events_of(cluster, uid, "NoEligibleNodes")) == len(vips) and e,
            "an event for each address",
            seconds=CRASH,
        )
        told = time.monotonic() - start
        messages = [e["message"] for e in (event, *more)]
        assert all(any(f"{vip} is announced nowhere" in m for m in messages) for vip in vips)
        found = [f for f in lease_info(cluster.kubeconfig)["findings"] if f["severity"] == "error"]
        assert {f["code"] for f in found} == {"noEligibleNodes"}
        assert all(any(vip in json.dumps(f) for f in found) for vip in (*there, *vips))

        start = time.monotonic()
        cluster.mend(other, "eth1")
        wait_until_returned(cluster, other, [*there, *vips], seconds=GRACEFUL)
        again = time.monotonic() - start
        cluster.mend(loser, "eth1")
        wait_until_returned(cluster, loser, own, seconds=GRACEFUL)
        eventually(lambda: all(answers(cluster, vip) for vip in there), "answers again")
    figure(
        f"moved after {moved:.2f} s; last node lost: gone after {gone:.2f} s, reported after "
        f"{told:.2f} s; back after {again:.2f} s"
    )
    assert holders_of(cluster, *there) == winners(there)
    # The addresses of the other subnet never moved.
    assert [holders.sequence(vip) for vip in here] == [[w] for w in winners(here, BOTH).values()]
    assert not any(OUTSIDE in nodes for vip in there for nodes in holders.sequence(vip))
    assert longest_of(holders.longest_doubled, there) < 1


def test_endpoints_choose_only_among_the_nodes_of_the_subnet(
    cluster, make_service, label_pod_on, figure
):
    wait_for_election(cluster)
    label_pod_on("n2")
    notes = {
        **GROUP, "purelb.io/node-affinity": "service-endpoints", "purelb.io/allow-local": "true",
    }  # fmt: skip
    path = make_service(annotations=notes, selector={"here": "yes"}, externalTrafficPolicy="Local")
    vips = addresses_of(cluster, path)
    with record_holders(cluster, *vips) as holders:
        for node in ("n3", "n2"):
            start = time.monotonic()
            label_pod_on(node)
            wait_for_endpoints(cluster, path, node)
            eventually(
                lambda n=node: holders_of(cluster, *vips) == {vip: {n} for vip in vips},
                f"{vips} on {node}",
                seconds=GRACEFUL,
            )
            figure(f"on {node} after {time.monotonic() - start:.2f} s")
            for vip in vips:
                for host in ("client", "control"):
                    eventually(lambda v=vip, h=host: answers(cluster, v, of=h), f"answer of {vip}")
        # With the endpoint outside the subnet, the winner inside has the address.
        label_pod_on(OUTSIDE)
        wait_for_endpoints(cluster, path, OUTSIDE)
        eventually(lambda: holders_of(cluster, *vips) == winners(vips), "winners of the subnet")
        time.sleep(SETTLED)
    assert cluster.api.get(path)["spec"]["externalTrafficPolicy"] == "Local"
    assert not any(OUTSIDE in nodes for vip in vips for nodes in holders.sequence(vip))
