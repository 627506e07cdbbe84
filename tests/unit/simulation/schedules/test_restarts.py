# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: containers that are started again, and Nodes that are deleted."""

from __future__ import annotations

import pytest

from purelb.core.names import (
    DEFAULT_NAMESPACE,
    EPOCH_ANNOTATION,
    SUBNETS_ANNOTATION,
    lease_name,
)
from purelb.core.times import format_time
from simulation.api.way import Reach
from simulation.manifests import KINDS, NET4, NET6
from simulation.time.timeline import MICROSECONDS
from tests.unit.simulation.schedules.story import (
    ASKED,
    TAKEOVER,
    THREE,
    at_work,
    must,
    won_by,
)


def on(cluster, name):
    return [address for address in cluster.addresses() if name in cluster.holders(address)]


# Containers


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("names", [("n1",), THREE], ids=["one", "all"])
def test_a_container_that_is_started_again_at_once_keeps_its_addresses(seed, names):
    with at_work(seed) as (cluster, history):
        won_by(cluster, "n1", THREE)
        before = [cluster.nodes[name].agent for name in names]
        for name in names:
            cluster.restart_container(cluster.nodes[name])
        cluster.run(40)
        assert not any(cluster.nodes[n].agent in before for n in names)
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
        must(history.unheld() == 0, f"unheld for {history.unheld():.1f} s")


@pytest.mark.parametrize("seed", range(1, 4))
def test_all_agents_that_are_killed_at_one_moment_keep_their_addresses(seed):
    with at_work(seed) as (cluster, history):
        cluster.run_kubelets()
        for node in cluster.nodes.values():
            cluster.kill_agent(node)
        cluster.run(60)
        assert all(len(node.kubelet.ended) == 1 for node in cluster.nodes.values())
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
        must(history.unheld() == 0, f"unheld for {history.unheld():.1f} s")


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("reach", [Reach.REFUSED, Reach.DROPPED])
def test_an_agent_that_is_started_again_in_an_outage_for_all_takes_nothing_from_the_others(
    seed, reach
):
    with at_work(seed) as (cluster, history):
        kept = won_by(cluster, "n1", THREE) + won_by(cluster, "n2", THREE)
        for name in THREE:
            cluster.way(f"agent/{name}").set_reach(reach)
        cluster.run(12)
        cluster.restart_container(cluster.nodes["n3"])
        cluster.run(60)
        assert not on(cluster, "n3")
        must(not set(kept) - {*on(cluster, "n1"), *on(cluster, "n2")}, "a node has given up")
        for name in THREE:
            cluster.way(f"agent/{name}").set_reach(Reach.WHOLE)
        cluster.run(20)
        must(on(cluster, "n3") == won_by(cluster, "n3", THREE), "n3 has not returned")
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_agent_that_is_killed_three_times_in_a_row_is_replaced_and_returns(seed):
    with at_work(seed) as (cluster, history):
        cluster.run_kubelets()
        node, won = cluster.nodes["n1"], won_by(cluster, "n1", THREE)
        # Each time right after it was started, by when the kubelet waits longer.
        for back_off in (0, 10, 20):
            cluster.kill_agent(node)
            cluster.run(back_off + 1.5)
        assert len(node.kubelet.ended) == 3
        cluster.run(40)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")
        must(on(cluster, "n1") == won, "n1 has not returned")


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("after", [0.0, 0.1, 0.3, 0.6, 1.5])
def test_an_agent_that_ends_before_it_knows_what_is_there_hands_over_no_address(seed, after):
    with at_work(seed) as (cluster, history):
        node, won = cluster.nodes["n1"], won_by(cluster, "n1", THREE)
        cluster.way("agent/n1").set_reach(Reach.REFUSED)
        cluster.restart_container(node)
        cluster.run(1)
        cluster.way("agent/n1").set_reach(Reach.WHOLE)
        cluster.run(after)
        assert on(cluster, "n1") == won
        cluster.stop_agent(node)
        cluster.run(30)
        assert not on(cluster, "n1")
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_agent_that_ends_by_an_error_hands_over_and_returns(seed):
    with at_work(seed) as (cluster, history):
        cluster.run_kubelets()
        node, won = cluster.nodes["n1"], won_by(cluster, "n1", THREE)
        node.kernel.is_unreadable = True
        while not node.kubelet.ended:
            cluster.run(0.1)
        node.kernel.is_unreadable = False
        cluster.run(60)
        assert [p.error is not None for p in node.kubelet.ended] == [True]
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")
        must(history.unheld() < ASKED, f"unheld for {history.unheld():.2f} s")
        must(on(cluster, "n1") == won, "n1 has not returned")


# Nodes


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_node_that_is_deleted_while_its_agent_runs_hands_over_and_returns(seed):
    with at_work(seed) as (cluster, history):
        node, won = cluster.nodes["n2"], won_by(cluster, "n2", THREE)
        cluster.drop("nodes", "", "n2")
        cluster.run(30)
        # Its agent cannot make another Lease, which would need the Node's UID.
        assert cluster.find("leases", "purelb-system", "purelb-node-n2") is None
        must(not on(cluster, "n2"), "n2 still holds")
        cluster.register(node)
        cluster.run(20)
        must(on(cluster, "n2") == won, "n2 has not returned")
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")
        must(history.unheld() < ASKED, f"unheld for {history.unheld():.2f} s")


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_node_that_is_created_again_gets_another_lease(seed):
    with at_work(seed) as (cluster, history):
        node, won = cluster.nodes["n2"], won_by(cluster, "n2", THREE)
        before = cluster.find("leases", "purelb-system", "purelb-node-n2")["metadata"]
        cluster.drop("nodes", "", "n2")
        cluster.register(node)
        cluster.run(30)
        after = cluster.find("leases", "purelb-system", "purelb-node-n2")["metadata"]
        assert after["uid"] != before["uid"]
        owner = cluster.find("nodes", "", "n2")["metadata"]["uid"]
        must(after["ownerReferences"][0]["uid"] == owner, "the Lease belongs to the Node that went")
        must(on(cluster, "n2") == won, "n2 has not returned")
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")
        must(history.unheld() < ASKED, f"unheld for {history.unheld():.2f} s")


def deleted(seed, fault):
    """The Node of an agent that does not see it is deleted; return the worst double holding."""
    with at_work(seed) as (cluster, history):
        node, way = cluster.nodes["n2"], cluster.way("agent/n2")
        won_by(cluster, "n2", THREE)
        faults = {
            "killed": lambda: cluster.kill_agent(node),
            "frozen": node.agent.freeze,
            "cut off": lambda: way.set_reach(Reach.DROPPED),
            "stalled": lambda: way.stall(KINDS["leases"]),
        }
        faults[fault]()
        cluster.run(0.5)
        cluster.drop("nodes", "", "n2")
        cluster.run(40)
        assert cluster.find("leases", "purelb-system", "purelb-node-n2") is None
        return history.twice()


@pytest.mark.parametrize("fault", ["killed", "frozen", "cut off", "stalled"])
def test_the_addresses_of_a_deleted_node_stay_until_it_has_given_them_up(fault):
    worst = max(deleted(seed, fault) for seed in range(1, 4))
    must(worst == 0, f"on two nodes for {worst:.1f} s")


def put_old_lease(cluster, *, minutes, epoch=""):
    """The Lease of a node that is gone; without an epoch, of an agent that knows none."""
    written = format_time(cluster.timeline.true_time() - 60 * minutes)
    annotations = {
        SUBNETS_ANNOTATION: f"{NET4},{NET6}",
        **({EPOCH_ANNOTATION: epoch} if epoch else {}),
    }
    spec = {"holderIdentity": "old", "leaseDurationSeconds": 10, "renewTime": written}
    metadata = {"annotations": annotations, "managedFields": [{"time": written}]}
    cluster.put(
        "leases", DEFAULT_NAMESPACE, lease_name("old"), {"metadata": metadata, "spec": spec}
    )


def seconds_until_held(seed, **old):
    """How long addresses are on no node after a power failure, with or without an old Lease."""
    with at_work(seed) as (cluster, history):
        if old:
            put_old_lease(cluster, **old)
            cluster.run(2)
            must(history.unheld() == 0, "an address has moved before")
        for node in cluster.nodes.values():
            cluster.power_off(node)
        cluster.run(30)
        began = (cluster.timeline.now - history.began) / MICROSECONDS
        for node in cluster.nodes.values():
            cluster.power_on(node)
            cluster.start_agent(node)
        cluster.run(40)
        assert all(cluster.holders(address) for address in cluster.addresses())
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")
        return history.unheld(began)


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("epoch", ["", "0123abcd.7"], ids=["no epoch", "epoch"])
def test_a_lease_that_ended_long_ago_is_not_elected_at_a_start(seed, epoch):
    usual = seconds_until_held(seed)
    found = seconds_until_held(seed, minutes=6, epoch=epoch)
    must(found < usual + 1.5, f"on no node for {found:.1f} s, without the Lease {usual:.1f} s")
