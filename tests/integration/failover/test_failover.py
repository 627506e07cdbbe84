# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A node or its agent fails: the next holder of its addresses, and the interruption of clients.

Each test prints figures of this machine; the asserted limits are the contract's.
"""

from __future__ import annotations

import time

import pytest

from labkit.probe.prober import Prober
from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import (
    CRASH,
    GRACEFUL,
    LEASES,
    addresses_of,
    agent_pod,
    agents_ready,
    answers,
    delete_agent,
    eventually,
    holder,
)
from tests.support.lab.faults import replace_agents, wait_until_returned

pytestmark = pytest.mark.timeout(150)
FAMILIES = pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
SETTLED = 3.0


@pytest.fixture
def vip(cluster, make_service, family):
    both = addresses_of(cluster, make_service())
    return both[0] if family == 4 else both[1]


def moved(lab, vip, loser, *, seconds):
    """Wait until another node has the address; return the seconds that this took."""
    start = time.monotonic()
    winner = eventually(lambda: lab.holders(vip) - {loser}, "next holder", seconds=seconds)
    return next(iter(winner)), time.monotonic() - start


@FAMILIES
def test_deleted_agent_pod_hands_over(cluster, vip, family, figure):
    loser = holder(cluster, vip)
    with Prober(cluster, vip) as prober, record_holders(cluster, vip) as holders:
        prober.wait_for_answer(vip, after=0, seconds=15)
        start = time.monotonic()
        delete_agent(cluster, loser)
        _winner, seconds = moved(cluster, vip, loser, seconds=GRACEFUL)
        time.sleep(SETTLED)
        gap = prober.longest_gap(vip, since=start)
    doubled = holders.seconds_doubled(vip)
    figure(
        f"moved after {seconds:.2f} s, client without answer {gap:.2f} s, on two {doubled:.2f} s"
    )
    assert gap < GRACEFUL
    # At the return the other node releases the address when it sees the Lease, without a handshake.
    assert doubled < 1


@FAMILIES
def test_node_cut_off_is_replaced_and_returns(cluster, vip, family, figure):
    loser = holder(cluster, vip)
    with Prober(cluster, vip) as prober:
        prober.wait_for_answer(vip, after=0, seconds=15)
        start = time.monotonic()
        cluster.cut(loser)
        winner, seconds = moved(cluster, vip, loser, seconds=CRASH)
        prober.wait_for_answer(vip, after=start + seconds, seconds=CRASH)
        gap = prober.longest_gap(vip, since=start)
        assert winner != loser
        assert loser not in cluster.holders(vip)
        cluster.mend(loser)
        back = time.monotonic()
        eventually(lambda: cluster.holders(vip) == {loser}, "return", seconds=30)
        time.sleep(SETTLED)
        returned = prober.longest_gap(vip, since=back)
    figure(f"client without answer {gap:.2f} s, and {returned:.2f} s at the return")
    assert gap < CRASH
    assert returned < GRACEFUL


@FAMILIES
def test_frozen_agents_address_expires_before_the_takeover(cluster, vip, family, figure):
    loser = holder(cluster, vip)
    cluster.kill(loser, "lbnodeagent", "STOP")
    start = time.monotonic()
    try:
        with record_holders(cluster, vip) as holders:
            others = eventually(lambda: holders.now[vip] - {loser}, "next holder", seconds=CRASH)
        (gone, _nobody), (taken, _winner) = holders.samples[1:3]
        figure(f"gone after {gone - start:.2f} s, taken after {taken - start:.2f} s")
        assert holders.seconds_doubled(vip) == 0
        assert holders.sequence(vip)[:3] == [{loser}, frozenset(), others]
        assert gone - start < 11
    finally:
        cluster.kill(loser, "lbnodeagent", "CONT")


@FAMILIES
def test_killed_agent_restarts_and_keeps_its_address(cluster, vip, family, figure):
    node = holder(cluster, vip)
    # Not only `agents_ready`: the old agent stays 2 s, and counts as ready for a while.
    replace_agents(cluster, node)
    wait_until_returned(cluster, node, [vip], seconds=CRASH)
    time.sleep(SETTLED)
    with Prober(cluster, vip) as prober, record_holders(cluster, vip) as holders:
        prober.wait_for_answer(vip, after=0, seconds=15)
        start = time.monotonic()
        # A second restart of the same container would wait for the kubelet's backoff.
        assert agent_pod(cluster, node)["status"]["containerStatuses"][0]["restartCount"] == 0
        old = cluster.kill(node, "lbnodeagent")
        eventually(lambda: agents_ready(cluster), "restart", seconds=CRASH)
        time.sleep(10)  # as long as the Lease of the killed agent could have lasted
        gap = prober.longest_gap(vip, since=start)
    figure(f"client without answer {gap:.2f} s")
    assert cluster.pod_pid(node, "lbnodeagent") != old
    assert holders.sequence(vip) == [{node}]
    assert gap < 1


@FAMILIES
def test_node_cut_off_from_the_api_releases_before_the_takeover(cluster, vip, family, figure):
    loser = holder(cluster, vip)
    with Prober(cluster, vip) as prober, record_holders(cluster, vip) as holders:
        prober.wait_for_answer(vip, after=0, seconds=15)
        start = time.monotonic()
        cluster.partition(loser)
        _winner, seconds = moved(cluster, vip, loser, seconds=CRASH)
        time.sleep(1)
        gap = prober.longest_gap(vip, since=start)
        cluster.heal(loser)
        eventually(lambda: cluster.holders(vip) == {loser}, "return", seconds=30)
    figure(f"moved after {seconds:.2f} s, client without answer {gap:.2f} s")
    # At the return both may have the address briefly, until the old holder sees the Lease.
    assert holders.seconds_doubled(vip) < 1


@FAMILIES
def test_node_that_saw_all_leases_expire_takes_no_other_address(cluster, vip, family):
    winner = holder(cluster, vip)
    blind = next(node for node in cluster.nodes if node != winner)
    with record_holders(cluster, vip) as holders:
        cluster.partition(blind)
        time.sleep(14)  # from its view every Lease has expired
        cluster.heal(blind)
        time.sleep(8)
    assert holders.sequence(vip) == [{winner}]


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
            lambda: cluster.holders(vip4) and node not in cluster.holders(vip4),
            "takeover",
            seconds=CRASH,
        )
    finally:
        cluster.start(node, "kubelet")
    eventually(lambda: agents_ready(cluster), "return of the node", seconds=60)
    # The web server's pod was deleted with its Node; kube-proxy learns this later.
    eventually(lambda: answers(cluster, vip6), "answer over IPv6")


def test_addresses_of_deleted_services_are_removed_at_start(cluster, make_service):
    vips = addresses_of(cluster, make_service())
    strays = {"172.28.1.249/24": "n1", "fd28:0:0:1::2fe/64": "n2"}
    for address, node in strays.items():
        # As left by an earlier agent: with a lifetime, in a pool, of no Service.
        life = ["valid_lft", "300", "preferred_lft", "300"]
        cluster.run_in(node, ["ip", "addr", "add", address, "dev", "eth0", *life, "noprefixroute"])
        delete_agent(cluster, node)
    for address in strays:
        plain = address.partition("/")[0]
        eventually(lambda a=plain: not cluster.holders(a), f"clean-up of {plain}", seconds=60)
    for vip in vips:
        holder(cluster, vip)
