# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The API is down for all nodes: addresses stay and clients are not interrupted."""

from __future__ import annotations

import time
from contextlib import contextmanager

import pytest

from labkit.probe.addresses import nodes_with
from labkit.probe.prober import Prober
from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import (
    DAEMON_SET,
    LEASE_END,
    addresses_of,
    agents_ready,
    eventually,
    fetch,
    holder,
    lease_info,
    metric,
)

EVENTS = "/api/v1/namespaces/default/events"
pytestmark = [
    pytest.mark.timeout(420),
    pytest.mark.safety,
    pytest.mark.usefixtures("control_plane"),
]


# Without a fault, 3 of 10,924 requests were refused in one minute, all over IPv6, and none of
# 33,000 in others.
NOISE = 1 / 1000


def share_of_failures(answers):
    return sum(a.body is None for a in answers) / len(answers)


def nodes_addresses(lab):
    return [address for host in lab.nodes.values() for address in (host.v4, host.v6)]


@contextmanager
def outage(lab):
    lab.stop_api()
    try:
        yield
    finally:
        lab.start_api()


def held_outages(lab, node):
    text = fetch(lab, lab.nodes[node].v4, path="/metrics", port=7472)
    return metric(text, "purelb_election_outages_held_total")


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(15, id="longer-than-a-lease"),
        pytest.param(180, id="three-minutes", marks=pytest.mark.thorough),
    ],
)
def test_clients_are_not_interrupted_by_an_outage(cluster, make_service, figure, seconds):
    # A node whose kubelet cannot report counts as dead, and its pods are not ready any more.
    unready = {"publishNotReadyAddresses": True}
    services = [make_service(**unready) for _one in range(2)]
    vips = [vip for service in services for vip in addresses_of(cluster, service)]
    # Requests to the nodes' own addresses are the baseline of this machine.
    node_port = cluster.api.get(services[0])["spec"]["ports"][0]["nodePort"]
    own_addresses = nodes_addresses(cluster)
    control = Prober(cluster, *own_addresses, port=node_port)
    winners = {vip: holder(cluster, vip) for vip in vips}
    before = {node: held_outages(cluster, node) for node in cluster.nodes}
    old = told(cluster).keys()
    with control, Prober(cluster, *vips) as prober, record_holders(cluster, *vips) as holders:
        for vip in vips:
            prober.wait_for_answer(vip, after=0, seconds=15)
        for home in own_addresses:
            control.wait_for_answer(home, after=0, seconds=15)
        start = time.monotonic()
        with outage(cluster):
            time.sleep(seconds)
        back = time.monotonic()
        eventually(
            lambda: all(held_outages(cluster, n) == before[n] + 1 for n in cluster.nodes),
            "end of the outage on every node",
            seconds=5,
        )
        resumed = time.monotonic() - back
        lasted = time.monotonic() - start
        # A node that counted as dead would lose its addresses within a Lease duration.
        time.sleep(LEASE_END + 1)
        gap, control_gap = (
            max(client.longest_gap(address, since=start) for address in addresses)
            for client, addresses in ((prober, vips), (control, own_addresses))
        )
        failed, control_failed = (
            share_of_failures([a for a in client.answers if a.sent > start])
            for client in (prober, control)
        )
    figure(
        f"longest time without an answer {gap:.2f} s, of 1,000 requests {failed * 1000:.1f} failed "
        f"({control_gap:.2f} s, {control_failed * 1000:.1f} with the nodes' own addresses), "
        f"renewed {resumed:.1f} s after the API was back"
    )
    # Shorter than any failover; a busy machine delays the requests to the nodes themselves, too.
    assert gap < 1 + control_gap
    assert failed <= 2 * control_failed + NOISE
    assert {vip: holders.sequence(vip) for vip in vips} == {
        vip: [frozenset({node})] for vip, node in winners.items()
    }
    outages = [lease["outage"] for lease in lease_info(cluster.kubeconfig)["leases"]]
    # From the last renewal, at most some seconds before, until the next one.
    assert all(seconds <= outage["seconds"] < lasted + 5 for outage in outages), outages

    def news():
        return {node for uid, node in told(cluster).items() if uid not in old}

    eventually(lambda: news() >= set(cluster.nodes), "an event on every Node", seconds=10)


def told(lab):
    """Return the nodes of all events about an outage, by the UIDs of the events."""
    events = lab.api.items(EVENTS, fieldSelector="reason=OutageHeld")
    return {event["metadata"]["uid"]: event["involvedObject"]["name"] for event in events}


def test_service_created_after_an_outage_is_announced(cluster, make_service, figure):
    with outage(cluster):
        time.sleep(12)
    start = time.monotonic()
    addresses_of(cluster, make_service())
    figure(f"announced after {time.monotonic() - start:.2f} s")


@contextmanager
def switched_off(lab):
    def switch(value):
        container = {"name": "lbnodeagent", "env": [{"name": "PURELB_OUTAGE_HOLD", "value": value}]}
        patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
        lab.api.call("PATCH", DAEMON_SET, patch, kind="application/strategic-merge-patch+json")
        eventually(lambda: rolled_out(lab), "rollout", seconds=90)

    try:
        switch("off")
        yield
    finally:
        switch("on")


def rolled_out(lab):
    body = lab.api.get(DAEMON_SET)
    status = body["status"]
    is_seen = status["observedGeneration"] == body["metadata"]["generation"]
    return is_seen and status.get("updatedNumberScheduled") == len(lab.nodes) and agents_ready(lab)


@pytest.mark.thorough
def test_without_the_feature_addresses_are_removed_before_leases_expire(
    cluster, make_service, figure
):
    vips = addresses_of(cluster, make_service())
    with switched_off(cluster):
        with record_holders(cluster, *vips) as holders:
            with outage(cluster):
                start = time.monotonic()
                eventually(
                    lambda: not any(nodes_with(cluster, vip) for vip in vips),
                    "withdrawal",
                    seconds=12,
                )
                gone = time.monotonic() - start
            back = time.monotonic()
            for vip in vips:
                holder(cluster, vip, seconds=20)
            returned = time.monotonic() - back
            time.sleep(3)
        doubled = max(holders.seconds_doubled(vip) for vip in vips)
    figure(f"gone after {gone:.1f} s, back {returned:.1f} s after the API")
    assert doubled < 1
