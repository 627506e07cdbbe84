# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses are removed by hand, or appear on wrong nodes or other hosts.

Each test checks addresses of both families and prints its figures.
"""

from __future__ import annotations

import time
from contextlib import closing
from ipaddress import ip_address

import pytest

from labkit.net.namespaces import netns
from purelb.core.node.packets import build_announcement
from purelb_agent.node.sockets import FrameSender
from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import (
    GRACEFUL,
    address_info,
    addresses_of,
    answers,
    eventually,
    holder,
    ingress,
    leftovers,
)
from tests.support.lab.faults import (
    duplicates_in_leases,
    events_of,
    ip,
    keep_addresses,
    leave_marked,
    longest_of,
    metric_of,
    node_with_both_families,
    serve_addresses,
    wait_until_returned,
)

pytestmark = [pytest.mark.timeout(90), pytest.mark.safety]
RECOVERIES = "purelb_lbnodeagent_address_watchdog_recoveries_total"
GROUP_EVENTS = "/api/v1/namespaces/purelb-system/events"
CONFLICTS = "purelb_lbnodeagent_address_conflicts_total"


@pytest.fixture
def vips(cluster, make_service):
    return serve_addresses(cluster, make_service)


def mask(vip):
    """An address with the mask that agents give it, so that a program names theirs."""
    return f"{vip}/{128 if ':' in vip else 32}"


def is_usable(lab, node, vip):
    info = address_info(lab, node, vip)
    return bool(info) and not info.get("tentative") and not info.get("dadfailed")


def test_address_removed_by_hand_is_restored_and_counted(cluster, vips, figure):
    node, own = node_with_both_families(cluster, vips)
    before, seconds = metric_of(cluster, node, RECOVERIES), []
    for vip in own:
        ip(cluster, node, f"addr del {mask(vip)} dev eth0")
        start = time.monotonic()
        # Below the 30 s after which the agent would look without the kernel's notification.
        eventually(lambda v=vip: address_info(cluster, node, v), "return", seconds=GRACEFUL)
        seconds.append(time.monotonic() - start)
    figure(f"back after {max(seconds):.3f} s")
    assert metric_of(cluster, node, RECOVERIES) == before + len(own)
    wait_until_returned(cluster, node, own, seconds=GRACEFUL)


def test_addresses_added_to_a_wrong_node_are_removed(cluster, vips, figure):
    node, own = node_with_both_families(cluster, vips)
    other = next(name for name in cluster.nodes if name != node)
    with record_holders(cluster, *own) as holders:
        leave_marked(cluster, other, *map(mask, own))
        start = time.monotonic()
        # The recorder measures below how long they were there; this poll is slower.
        wait_until_returned(cluster, node, own, seconds=GRACEFUL)
        seconds = time.monotonic() - start
        time.sleep(1)
    figure(f"gone after {seconds:.3f} s")
    assert longest_of(holders.longest_doubled, own) < 1
    sequences = {vip: holders.sequence(vip) for vip in own}
    assert all(node in on for sequence in sequences.values() for on in sequence), sequences


def test_node_with_an_own_address_keeps_it_and_says_so(cluster, make_service):
    """An address in a pool that no agent put there, as by DHCP, on the node that should have it."""
    path = make_service()
    vips = addresses_of(cluster, path)
    on = {vip: holder(cluster, vip) for vip in vips}
    life = "valid_lft 300 preferred_lft 300 noprefixroute"
    uid = cluster.api.get(path)["metadata"]["uid"]
    try:
        for vip, node in on.items():
            # This takes the mark away.
            ip(cluster, node, f"addr change {mask(vip)} dev eth0 {life}")
        eventually(
            lambda: len(events_of(cluster, uid, "AddressConflict")) == len(vips),
            "event for each address",
            seconds=15,
        )
        for vip, node in on.items():
            assert address_info(cluster, node, vip)["valid_life_time"] > 270
    finally:
        for vip, node in on.items():
            ip(cluster, node, f"addr del {mask(vip)} dev eth0")
    for vip, node in on.items():
        eventually(lambda v=vip, n=node: is_usable(cluster, n, v), "return", seconds=GRACEFUL)
        assert address_info(cluster, node, vip)["valid_life_time"] < 60


@pytest.fixture
def claim(cluster):
    """Adds addresses of ours to a host, which announces them; removed after the test."""
    made = []

    def give(host, *vips):
        made.extend((host, vip) for vip in vips)
        commands = [f"addr add {mask(v)} dev eth0{' nodad' * (':' in v)}" for v in vips]
        ip(cluster, host, *commands)
        mac = bytes.fromhex(cluster.hosts[host].interfaces[0].mac.replace(":", ""))
        frames = [f for v in vips for f in build_announcement(mac, ip_address(v))]
        with netns(cluster.hosts[host].netns), closing(FrameSender()) as sender:
            sender.send("eth0", frames)

    yield give
    for host, vip in made:
        ip(cluster, host, f"addr del {mask(vip)} dev eth0")


@pytest.mark.usefixtures("forget_duplicates")
def test_service_gets_another_address_if_a_host_has_the_first_one(
    cluster, make_service, claim, figure
):
    before = make_service()
    taken = addresses_of(cluster, before)
    cluster.api.delete(before)
    eventually(lambda: not leftovers(cluster), "withdrawal", seconds=30)
    claim("client", *taken)
    start, path = time.monotonic(), make_service()
    vips = eventually(
        lambda: not set(found := ingress(cluster.api.get(path))) & set(taken) and found,
        "other addresses",
        seconds=20,
    )
    figure(f"other addresses after {time.monotonic() - start:.1f} s")
    for vip in vips:
        eventually(lambda v=vip: answers(cluster, v), f"answer from {vip}", seconds=20)
    listed = set().union(*duplicates_in_leases(cluster).values())
    assert listed == set(map(ip_address, taken))
    events = [e for e in cluster.api.get(GROUP_EVENTS)["items"] if e["reason"] == "AddressSetAside"]
    assert all(any(vip in event["message"] for event in events) for vip in taken), events
    # The client has the others' addresses still, and who asks for one of them gets it.
    asking = make_service(annotations={"purelb.io/addresses": ",".join(taken)})
    assert addresses_of(cluster, asking) == taken


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["client", "node"])
@pytest.mark.usefixtures("forget_duplicates")
def test_host_with_our_address_is_reported_and_the_winner_keeps_it(
    cluster, make_service, claim, where, figure
):
    """An address with an unlimited lifetime belongs to the node: no agent removes it."""
    path = make_service()
    vips = addresses_of(cluster, path)
    keep_addresses(cluster, path, *vips)
    winners = {vip: holder(cluster, vip) for vip in vips}
    # Before that, duplicate address detection would disable the address.
    eventually(lambda: all(is_usable(cluster, winners[v], v) for v in vips), "usable addresses")
    host = next(n for n in cluster.nodes if n not in winners.values()) if where == "node" else where
    before = {node: metric_of(cluster, node, CONFLICTS) for node in winners.values()}
    uid, mac = cluster.api.get(path)["metadata"]["uid"], cluster.hosts[host].interfaces[0].mac
    claim(host, *vips)
    start = time.monotonic()
    events = eventually(
        lambda: len(found := events_of(cluster, uid, "AddressConflict")) == 2 and found,
        "event for each address",
        seconds=10,
    )
    figure(f"reported after {time.monotonic() - start:.2f} s")
    assert {event["type"] for event in events} == {"Warning"}
    for vip, event in zip(sorted(vips), sorted(events, key=lambda e: e["message"]), strict=True):
        text = f"{vip} is in use by another host, too: {mac} answers"
        if where == "node":
            text = f"Node {host} answers for {vip}, too ({mac} answers"
        assert text in event["message"]
        assert event["source"]["host"] == winners[vip]
        assert is_usable(cluster, winners[vip], vip)
    after = {node: metric_of(cluster, node, CONFLICTS) for node in before}
    assert sum(after.values()) == sum(before.values()) + 2
