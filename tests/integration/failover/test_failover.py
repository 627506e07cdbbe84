# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A node or its agent fails: the next holder of its addresses, and the interruption of clients.

Each test prints figures of this machine; the asserted limits are the contract's.
"""

from __future__ import annotations

import time
from functools import partial

import pytest

from labkit.probe.addresses import nodes_with
from labkit.probe.prober import Prober
from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import (
    CRASH,
    GRACEFUL,
    LEASE_END,
    LEASES,
    addresses_of,
    agent_pod,
    agents_ready,
    answers,
    delete_agent,
    eventually,
    holder,
    unready_agents,
)
from tests.support.lab.faults import (
    ip,
    leave_marked,
    node_with_both_families,
    replace_agents,
    serve_addresses,
    wait_until_moved,
    wait_until_returned,
)

pytestmark = [pytest.mark.timeout(150), pytest.mark.safety]
# Seconds until others answer for the addresses of a lost node.
LOST = 5.0
SETTLED = 3.0


@pytest.fixture
def held(cluster, make_service):
    """A node, and an address of each family that it holds."""
    node, own = node_with_both_families(cluster, serve_addresses(cluster, make_service))
    return node, [next(v for v in own if ":" not in v), next(v for v in own if ":" in v)]


def wait_for_answers(prober, vips, *, after=0.0, seconds=15):
    for vip in vips:
        prober.wait_for_answer(vip, after=after, seconds=seconds)


def gaps(prober, vips, since):
    """Return the longest time without an answer of each address."""
    return [prober.longest_gap(vip, since=since) for vip in vips]


def shown(seconds):
    """Return the seconds of an IPv4 and an IPv6 address for a figure."""
    return "{:.2f} s (IPv4), {:.2f} s (IPv6)".format(*seconds)


def test_deleted_agent_pod_hands_over(cluster, held, figure):
    loser, vips = held
    with Prober(cluster, *vips) as prober, record_holders(cluster, *vips) as holders:
        wait_for_answers(prober, vips)
        start = time.monotonic()
        delete_agent(cluster, loser)
        wait_until_moved(cluster, loser, vips, seconds=GRACEFUL)
        seconds = time.monotonic() - start
        time.sleep(SETTLED)
        unanswered = gaps(prober, vips, start)
    doubled = [holders.seconds_doubled(vip) for vip in vips]
    figure(
        f"moved after {seconds:.2f} s, client without answer {shown(unanswered)}, "
        f"on two {shown(doubled)}"
    )
    assert max(unanswered) < GRACEFUL
    # At the return the other node releases the address when it sees the Lease, without a handshake.
    assert max(doubled) < 1


def test_node_cut_off_is_replaced_and_returns(cluster, held, figure):
    loser, vips = held
    with Prober(cluster, *vips) as prober:
        wait_for_answers(prober, vips)
        start = time.monotonic()
        cluster.cut(loser)
        wait_until_moved(cluster, loser, vips, seconds=CRASH)
        wait_for_answers(prober, vips, after=time.monotonic(), seconds=CRASH)
        unanswered = gaps(prober, vips, start)
        cluster.mend(loser)
        back = time.monotonic()
        wait_until_returned(cluster, loser, vips, seconds=30)
        time.sleep(SETTLED)
        returned = gaps(prober, vips, back)
    figure(f"client without answer {shown(unanswered)}, at the return {shown(returned)}")
    assert max(unanswered) < LOST
    assert max(returned) < GRACEFUL


def test_frozen_agents_addresses_expire_before_the_takeover(cluster, held, figure):
    loser, vips = held
    cluster.kill(loser, "lbnodeagent", "STOP")
    start = time.monotonic()
    try:
        with record_holders(cluster, *vips) as holders:
            wait_until_moved(cluster, loser, vips, seconds=CRASH)
        gone = [left(holders, vip, loser) - start for vip in vips]
        figure(f"gone after {shown(gone)}")
        for vip in vips:
            assert holders.seconds_doubled(vip) == 0
            (other,) = holders.now[vip]
            assert holders.sequence(vip)[:3] == [{loser}, frozenset(), {other}]
        assert max(gone) < LEASE_END
    finally:
        cluster.kill(loser, "lbnodeagent", "CONT")


def left(holders, vip, node):
    """Return when a node no longer had an address."""
    return next(when for when, held in holders.samples if node not in held[vip])


@pytest.mark.thorough
def test_killed_agent_restarts_and_keeps_its_addresses(cluster, held, figure):
    node, vips = held
    # Not only `agents_ready`: the old agent stays 2 s, and counts as ready for a while.
    replace_agents(cluster, node)
    wait_until_returned(cluster, node, vips, seconds=CRASH)
    time.sleep(SETTLED)
    with Prober(cluster, *vips) as prober, record_holders(cluster, *vips) as holders:
        wait_for_answers(prober, vips)
        start = time.monotonic()
        # A second restart of the same container would wait for the kubelet's backoff.
        assert agent_pod(cluster, node)["status"]["containerStatuses"][0]["restartCount"] == 0
        old = cluster.kill(node, "lbnodeagent")
        eventually(lambda: agents_ready(cluster), "restart", seconds=CRASH)
        time.sleep(LEASE_END)  # as long as the Lease of the killed agent could have lasted
        unanswered = gaps(prober, vips, start)
    figure(f"client without answer {shown(unanswered)}")
    assert cluster.pod_pid(node, "lbnodeagent") != old
    assert [holders.sequence(vip) for vip in vips] == [[{node}], [{node}]]
    assert max(unanswered) < 1


def test_node_cut_off_from_the_api_releases_before_the_takeover(cluster, held, figure):
    loser, vips = held
    with Prober(cluster, *vips) as prober, record_holders(cluster, *vips) as holders:
        wait_for_answers(prober, vips)
        start = time.monotonic()
        cluster.partition(loser)
        wait_until_moved(cluster, loser, vips, seconds=CRASH)
        seconds = time.monotonic() - start
        time.sleep(1)
        unanswered = gaps(prober, vips, start)
        cluster.heal(loser)
        wait_until_returned(cluster, loser, vips, seconds=30)
    figure(f"moved after {seconds:.2f} s, client without answer {shown(unanswered)}")
    # At the return both may have the address briefly, until the old holder sees the Lease.
    assert max(holders.seconds_doubled(vip) for vip in vips) < 1


@pytest.mark.thorough
def test_node_that_saw_all_leases_expire_takes_no_other_address(cluster, held):
    winner, vips = held
    blind = next(node for node in cluster.nodes if node != winner)
    with record_holders(cluster, *vips) as holders:
        cluster.partition(blind)
        time.sleep(2 * LEASE_END)  # from its view every Lease has expired
        cluster.heal(blind)
        time.sleep(8)
    assert [holders.sequence(vip) for vip in vips] == [[{winner}], [{winner}]]


def test_lease_of_a_deleted_node_is_deleted(cluster, make_service):
    vip4, vip6 = addresses_of(cluster, make_service())
    node = holder(cluster, vip4)
    cluster.kill(node, "kubelet")
    try:
        cluster.api.delete(f"/api/v1/nodes/{node}")
        eventually(
            lambda: not cluster.api.exists(f"{LEASES}/purelb-node-{node}"),
            "collection of the Lease",
            seconds=30,
        )
        eventually(
            lambda: nodes_with(cluster, vip4) and node not in nodes_with(cluster, vip4),
            "takeover",
            seconds=CRASH,
        )
    finally:
        cluster.start(node, "kubelet")
    eventually(lambda: agents_ready(cluster), partial(unready_agents, cluster), seconds=60)
    # The web server's pod was deleted with its Node; kube-proxy learns this later.
    eventually(lambda: answers(cluster, vip6), "answer over IPv6")


def test_addresses_of_deleted_services_are_removed_at_start(cluster, make_service):
    vips = addresses_of(cluster, make_service())
    strays = {"172.28.1.249/24": "n1", "fd28:0:0:1::2fe/64": "n2"}
    # In a pool as well, and of no Service, but of the node itself: such as DHCP gives.
    own = {"172.28.1.248/24": "n1", "fd28:0:0:1::2fd/64": "n2"}
    for address, node in own.items():
        life = "valid_lft 300 preferred_lft 300 noprefixroute"
        ip(cluster, node, f"addr add {address} dev eth0 {life}")
    for address, node in strays.items():
        leave_marked(cluster, node, address)
        delete_agent(cluster, node)
    for address in strays:
        plain = address.partition("/")[0]
        eventually(lambda a=plain: not nodes_with(cluster, a), f"clean-up of {plain}", seconds=60)
    for address, node in own.items():
        assert nodes_with(cluster, address.partition("/")[0]) == {node}
        ip(cluster, node, f"addr del {address} dev eth0")
    for vip in vips:
        holder(cluster, vip)
