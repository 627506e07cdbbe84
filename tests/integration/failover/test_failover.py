# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A node goes, one way or the other: who has its addresses next, and what clients notice.

Each test prints its figures; they are facts about this machine, the limits are the contract's.
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

pytestmark = pytest.mark.timeout(150)
FAMILIES = pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
SETTLED = 3.0


@pytest.fixture
def vip(cluster, make_service, family):
    both = addresses_of(cluster, make_service())
    return both[0] if family == 4 else both[1]


def moved(lab, vip, loser, *, seconds):
    """Wait until another node has the address; how long that took."""
    start = time.monotonic()
    winner = eventually(lambda: lab.holders(vip) - {loser}, "next holder", seconds=seconds)
    return next(iter(winner)), time.monotonic() - start


@FAMILIES
def test_a_deleted_agent_pod_hands_over(cluster, vip, family, figure):
    loser = holder(cluster, vip)
    with Prober(cluster, vip) as prober, record_holders(cluster, vip) as holders:
        prober.wait_for_answer(vip, after=0, seconds=5)
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
    # Nobody waits for anybody: when the node is back, the other one lets go as it sees the Lease.
    assert doubled < 1


@FAMILIES
def test_a_node_cut_off_is_replaced_and_returns(cluster, vip, family, figure):
    loser = holder(cluster, vip)
    with Prober(cluster, vip) as prober:
        prober.wait_for_answer(vip, after=0, seconds=5)
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
def test_a_frozen_agent_loses_its_address_before_another_node_has_it(cluster, vip, family, figure):
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
def test_a_killed_agent_restarts_and_its_address_stays(cluster, vip, family, figure):
    delete_agent(cluster, holder(cluster, vip))
    time.sleep(SETTLED)
    eventually(lambda: agents_ready(cluster), "new agent", seconds=CRASH)
    node = holder(cluster, vip)
    with Prober(cluster, vip) as prober, record_holders(cluster, vip) as holders:
        prober.wait_for_answer(vip, after=0, seconds=5)
        start = time.monotonic()
        # A second restart of one container would wait for the kubelet's back-off.
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
def test_a_node_cut_off_from_the_api_lets_go_before_another_has_it(cluster, vip, family, figure):
    loser = holder(cluster, vip)
    with Prober(cluster, vip) as prober, record_holders(cluster, vip) as holders:
        prober.wait_for_answer(vip, after=0, seconds=5)
        start = time.monotonic()
        cluster.partition(loser)
        _winner, seconds = moved(cluster, vip, loser, seconds=CRASH)
        time.sleep(1)
        gap = prober.longest_gap(vip, since=start)
        cluster.heal(loser)
        eventually(lambda: cluster.holders(vip) == {loser}, "return", seconds=30)
    figure(f"moved after {seconds:.2f} s, client without answer {gap:.2f} s")
    # At the return the old holder lets go when it sees the Lease: up to a moment both may have it.
    assert holders.seconds_doubled(vip) < 1


@FAMILIES
def test_a_node_that_was_blind_for_a_while_takes_nothing_that_is_not_its(cluster, vip, family):
    winner = holder(cluster, vip)
    blind = next(node for node in cluster.nodes if node != winner)
    with record_holders(cluster, vip) as holders:
        cluster.partition(blind)
        time.sleep(14)  # by now every Lease has ended for it
        cluster.heal(blind)
        time.sleep(8)
    assert holders.sequence(vip) == [{winner}]


def test_a_deleted_node_takes_its_lease_with_it(cluster, make_service):
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
    # The web server's pod went with its Node, and kube-proxy learns of that in its own time.
    eventually(lambda: answers(cluster, vip6), "answer over IPv6")


def test_addresses_of_gone_services_are_cleaned_up_at_start(cluster, make_service):
    vips = addresses_of(cluster, make_service())
    strays = {"172.28.1.249/24": "n1", "fd28:0:0:1::2fe/64": "n2"}
    for address, node in strays.items():
        # As an agent that is gone may have left it: with a lifetime, in a pool, of no Service.
        life = ["valid_lft", "300", "preferred_lft", "300"]
        cluster.run_in(node, ["ip", "addr", "add", address, "dev", "eth0", *life, "noprefixroute"])
        delete_agent(cluster, node)
    for address in strays:
        plain = address.partition("/")[0]
        eventually(lambda a=plain: not cluster.holders(a), f"clean-up of {plain}", seconds=15)
    for vip in vips:
        holder(cluster, vip)
