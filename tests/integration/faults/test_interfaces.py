# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Interfaces are renamed, deleted or change their addresses while the agent runs.

Each test checks addresses of both families and prints its figures.
"""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace
from datetime import datetime
from ipaddress import ip_address, ip_network

import pytest

from labkit.net.network import on_link_routes, own_addresses, pod_routes
from labkit.probe.prober import Prober
from labkit.topology import v4_of, v6_of
from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import (
    CRASH,
    GRACEFUL,
    LEASES,
    addresses_of,
    eventually,
    holder,
)
from tests.support.lab.faults import (
    ip,
    longest_of,
    node_with_both_families,
    serve_addresses,
    wait_until_moved,
    wait_until_returned,
)
from tests.support.lab.lan_9 import lan_9, plug

pytestmark = [pytest.mark.timeout(90), pytest.mark.safety]
SETTLED = 3.0
# Half of a Lease's duration.
RENEWED_EVERY = 5
# The subnets in every Lease by default.
LAN = {"172.28.1.0/24", "fd28:0:0:1::/64"}


@pytest.fixture
def vips(cluster, make_service):
    return serve_addresses(cluster, make_service)


def subnets(lab, node):
    meta = lab.api.get(f"{LEASES}/purelb-node-{node}")["metadata"]
    return {*meta["annotations"]["purelb.io/subnets"].split(",")}


def rename(lab, node, old, new):
    """Rename an interface as a driver or an administrator would, and set it up again."""
    host = lab.nodes[node]
    (cable,) = host.interfaces
    lan, renamed = cable.lan, replace(cable, name=new)
    ip(
        lab,
        node,
        f"link set {old} down",
        f"link set {old} name {new}",
        f"link set {new} up",
        # Setting it down removed its IPv6 addresses and the routes of both families.
        *own_addresses(lab.topology, host, renamed, verb="replace"),
        *on_link_routes(lab.topology, host, renamed),
        f"route add default via {v4_of(lan, 1)}",
        f"route add default via {v6_of(lan, 1)}",
        *pod_routes(lab.topology, host),
    )


def test_addresses_follow_a_renamed_interface_and_return_with_it(cluster, vips, figure):
    node, own = node_with_both_families(cluster, vips)
    figures = []
    with Prober(cluster, *own) as prober, record_holders(cluster, *own) as holders:
        for vip in own:
            prober.wait_for_answer(vip, after=0, seconds=15)
        try:
            for old, new in (("eth0", "eth7"), ("eth7", "eth0")):
                start = time.monotonic()
                rename(cluster, node, old, new)
                eventually(
                    lambda n=new: all_on(cluster, n, own), f"addresses on {new}", seconds=CRASH
                )
                figures.append(f"on {new} after {time.monotonic() - start:.2f} s")
                eventually(lambda n=new: told(cluster, own) == {f"{node},{n}"}, "annotations")
                time.sleep(SETTLED)
                gap = longest_of(lambda v, s=start: prober.longest_gap(v, since=s), own)
                figures.append(f"client without answer {gap:.2f} s")
        finally:
            if any(link["ifname"] == "eth7" for link in cluster.addresses(node)):
                rename(cluster, node, "eth7", "eth0")
    figure(", ".join(figures))
    assert longest_of(holders.longest_doubled, own) < 1
    assert gap < GRACEFUL


def all_on(lab, interface, vips):
    """Whether each of these addresses is on an interface of that name."""
    links = [link for node in lab.nodes for link in lab.addresses(node)]
    here = {i.get("local") for k in links if k["ifname"] == interface for i in k["addr_info"]}
    return here >= {*vips}


def told(lab, vips):
    """Return node and interface of these addresses in their Services' annotations."""
    services = lab.api.items("/api/v1/namespaces/default/services")
    notes = [s["metadata"].get("annotations", {}) for s in services]
    entries = [
        e.rpartition(",")
        for n in notes
        for k, v in n.items()
        if "announcing" in k
        for e in v.split()
    ]
    return {where for where, _comma, address in entries if address in vips}


@pytest.mark.thorough
def test_node_without_a_default_route_loses_its_addresses_until_it_returns(cluster, vips, figure):
    node, own = node_with_both_families(cluster, vips)
    (cable,) = cluster.nodes[node].interfaces
    routes = [f"default via {of(cable.lan, 1)}" for of in (v4_of, v6_of)]
    start = time.monotonic()
    with record_holders(cluster, *own) as holders:
        ip(cluster, node, *(f"route del {route}" for route in routes))
        try:
            # The route to the API may be lost too: then the Lease must expire first.
            wait_until_moved(cluster, node, own, seconds=CRASH)
            moved = time.monotonic() - start
        finally:
            ip(cluster, node, *(f"route add {route}" for route in routes))
        start = time.monotonic()
        wait_until_returned(cluster, node, own, seconds=GRACEFUL)
        returned = time.monotonic() - start
    figure(f"moved after {moved:.2f} s, back after {returned:.2f} s")
    assert longest_of(holders.longest_doubled, own) < 1


@pytest.fixture
def lan9(cluster):
    with lan_9(cluster) as annotations:
        yield annotations


@pytest.mark.thorough
def test_addresses_of_a_deleted_interface_move_until_it_returns(
    cluster, vips, lan9, make_service, figure
):
    there = serve_addresses(cluster, make_service, annotations=lan9)
    node, own = node_with_both_families(cluster, there)
    with Prober(cluster, *own) as prober, record_holders(cluster, *vips, *own) as holders:
        for vip in own:
            prober.wait_for_answer(vip, after=0, seconds=15)
        gone = time.monotonic()
        ip(cluster, node, "link del eth9")
        wait_until_moved(cluster, node, own, seconds=GRACEFUL)
        moved = time.monotonic() - gone
        time.sleep(SETTLED)
        gap = longest_of(lambda vip: prober.longest_gap(vip, since=gone), own)
        again = time.monotonic()
        plug(cluster, node)
        wait_until_returned(cluster, node, own, seconds=GRACEFUL)
        returned = time.monotonic() - again
        time.sleep(SETTLED)
        at_return = longest_of(lambda vip: prober.longest_gap(vip, since=again), own)
    figure(
        f"moved after {moved:.2f} s, client without answer {gap:.2f} s; back after "
        f"{returned:.2f} s, client without answer {at_return:.2f} s"
    )
    assert longest_of(holders.longest_doubled, own) < 1
    assert gap < GRACEFUL
    assert at_return < 1
    # The node's other interface is not affected.
    assert all(len(holders.sequence(vip)) == 1 for vip in vips)


ALONE = "172.28.1.216/32", "fd28:0:0:1::216/128"
MORE = {"172.28.77.0/24": "172.28.77.11/24", "fd28:0:0:77::/64": "fd28:0:0:77::11/64"}


@pytest.fixture
def single(cluster, make_service):
    """The addresses of a Service from a pool with host prefixes."""
    pools = {
        "v4pool": {"pool": ALONE[0], "subnet": "172.28.1.0/24", "aggregation": "/32"},
        "v6pool": {"pool": ALONE[1], "subnet": "fd28:0:0:1::/64", "aggregation": "/128"},
    }
    group = {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "single", "namespace": "purelb-system"},
        "spec": {"local": pools},
    }
    cluster.api.apply(group)
    path = make_service(annotations={"purelb.io/service-group": "single"})
    yield addresses_of(cluster, path)
    cluster.api.delete(path)
    cluster.api.delete(cluster.api.path_of(group))


def writes(lab, node):
    """Return the time of the last write of a node's Lease by the API server."""
    entries = map(json.loads, lab.audit_log.read_text().splitlines())
    return [
        datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
        for entry in entries
        if entry["verb"] == "update" and entry["objectRef"].get("name") == f"purelb-node-{node}"
    ]


@pytest.mark.thorough
def test_lease_follows_the_subnets_of_its_node_but_not_their_flapping(cluster, single, figure):
    node = holder(cluster, single[0])
    # A node whose own addresses have the mask of one host lists these, too.
    usual = {name: subnets(cluster, name) for name in cluster.nodes}
    start = time.monotonic()
    ip(cluster, node, *(f"addr add {a} dev eth0 nodad" for a in MORE.values()))
    eventually(lambda: subnets(cluster, node) == usual[node] | {*MORE}, "subnets", seconds=3)
    seconds = time.monotonic() - start
    begin = time.time()
    for change in itertools.islice(itertools.cycle(["del", "add"]), 19):
        nodad = " nodad" * (change == "add")
        ip(cluster, node, *(f"addr {change} {a} dev eth0{nodad}" for a in MORE.values()))
        time.sleep(0.1)
    # A lost subnet counts for 3 s more, and a change is written after 2 s.
    eventually(lambda: subnets(cluster, node) == usual[node], "end of the subnets", seconds=6)
    time.sleep(RENEWED_EVERY + 1)
    pairs = itertools.pairwise(writes(cluster, node))
    rests = [later - earlier for earlier, later in pairs if later > begin]
    early = [rest for rest in rests if rest < RENEWED_EVERY - 0.5]
    figure(f"in the Lease after {seconds:.2f} s; {len(early)} of {len(rests)} writes early")
    assert len(early) <= 1
    for name in cluster.nodes:
        assert subnets(cluster, name) == usual[name]
        # Not even the holder's Lease contains the host prefixes of Services.
        hosts = {net for net in map(ip_network, usual[name]) if net.num_addresses == 1}
        own = {ip_address(cluster.nodes[name].v4), ip_address(cluster.nodes[name].v6)}
        assert {net.network_address for net in hosts} <= own
        assert usual[name] - {*map(str, hosts)} == LAN


def test_addresses_stay_while_the_node_gets_other_addresses_and_another_mac(
    cluster, lan9, make_service, figure
):
    there = serve_addresses(cluster, make_service, annotations=lan9)
    node, own = node_with_both_families(cluster, there)
    number = cluster.nodes[node].v4.rpartition(".")[2]
    before, after = f"172.28.9.{number}/24", f"172.28.9.1{number}/24"
    before6, after6 = f"fd28:0:0:9::{number}/64", f"fd28:0:0:9::1{number}/64"
    promote = "echo 1 >/proc/sys/net/ipv4/conf/eth9/promote_secondaries"
    cluster.run_in(node, ["sh", "-c", promote])
    changes = {
        "new addresses first": (
            *(f"addr add {new} dev eth9 nodad" for new in (after, after6)),
            *(f"addr del {old} dev eth9" for old in (before, before6)),
        ),
        "old addresses first": (
            *(f"addr del {old} dev eth9" for old in (after, after6)),
            *(f"addr add {new} dev eth9 nodad" for new in (before, before6)),
        ),
        "MAC address": ("link set eth9 address 02:1b:00:00:09:99",),
    }
    figures = {}
    with Prober(cluster, *own) as prober, record_holders(cluster, *own) as holders:
        for vip in own:
            prober.wait_for_answer(vip, after=0, seconds=15)
        for name, commands in changes.items():
            since = time.monotonic()
            ip(cluster, node, *commands)
            time.sleep(SETTLED)
            figures[name] = longest_of(lambda v, s=since: prober.longest_gap(v, since=s), own)
    figure(", ".join(f"{name}: without answer {gap:.2f} s" for name, gap in figures.items()))
    assert max(figures.values()) < 1
    # For a moment on no node, where they went behind the new own address.
    assert {n for vip in own for nodes in holders.sequence(vip) for n in nodes} == {node}
    (eth9,) = (link for link in cluster.addresses(node) if link["ifname"] == "eth9")
    assert eth9["addr_info"][0]["local"] == before.partition("/")[0]
