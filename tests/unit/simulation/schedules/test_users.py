# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: users and operators change things while something fails."""

from __future__ import annotations

from functools import partial

import pytest

from purelb.core.election.election import rank
from purelb.core.holding.peer_keys import (
    SIGNING,
    PeerKeys,
    RotationStep,
    after_step,
    parse_keys,
)
from purelb.core.names import DRAINING_TAINTS
from purelb.core.settings import TimingChoice
from simulation import users
from simulation.api.way import Reach
from simulation.chance import stream
from simulation.history import History
from simulation.invariants import Leaks, given_twice, ownerless
from simulation.member import KEYS
from tests.unit.simulation.schedules.story import (
    DELIVERY,
    TAKEOVER,
    THREE,
    at_work,
    must,
    ways,
    won_by,
)

SLOW, FAST = TimingChoice(10.0, 7.0, 2.0), TimingChoice(5.0, 3.5, 1.0)
SEEDS = pytest.mark.parametrize("seed", range(1, 4))
NEW_KEY = b"the next key of all agents of it"
# Seconds in which the kubelets write what is new in a Secret.
KUBELETS = 30.0
BOTH = ("IPv4", "IPv6")


def all_in_order(cluster):
    return all(cluster.holders(a) == rank(THREE, a)[:1] for a in cluster.addresses())


def unheld(cluster):
    return [address for address in cluster.addresses() if not cluster.holders(address)]


def test_endpoints_that_move_quickly_take_no_address_from_a_frozen_node():
    with at_work(services=0) as (cluster, _history):
        for number in range(6):
            users.add_local_service(cluster, f"s{number}", ["n2"])
        cluster.run(5)
        chance, history = stream(1, "endpoints"), History(cluster)
        cluster.nodes["n2"].agent.freeze()
        for _move in range(40):
            users.move_endpoints(cluster, f"s{chance.randrange(6)}", [chance.choice(THREE)])
            cluster.run(chance.uniform(0.05, 0.5))
        cluster.nodes["n2"].agent.thaw()
        cluster.run(30)
        assert not given_twice(cluster)
        assert not ownerless(cluster)
        assert history.unheld() < TAKEOVER
        must(history.heard_twice() == 0, f"on two nodes for {history.heard_twice():.1f} s")


@SEEDS
def test_no_address_is_given_twice_when_an_allocator_dies_while_a_pool_moves(seed):
    with at_work(seed) as (cluster, history):
        before, leaks = cluster.addresses(), Leaks(2)
        users.put_group(
            cluster, "default", v4="172.28.1.100-172.28.1.120", v6="fd28::100-fd28::1ff"
        )
        cluster.run(1)
        for number in range(20):
            users.add_service(cluster, f"new{number}", families=BOTH)
        cluster.run(stream(seed, "death").uniform(0.01, 0.03))
        users.kill_leader(cluster)
        given = len(cluster.addresses()) - len(before)
        cluster.drop("services", "default", "s0")
        for _look in range(8):
            cluster.run(5)
            must(not given_twice(cluster), f"given twice: {given_twice(cluster)}")
            must(not leaks.look(cluster), f"of no Service: {leaks.look(cluster)}")
        assert 0 < given < 40
        kept = {a: name for a, name in cluster.addresses().items() if name in before.values()}
        assert kept == {a: name for a, name in before.items() if name != "s0"}
        must(len(cluster.addresses()) == 58, f"{len(cluster.addresses())} addresses are given")
        must(not unheld(cluster), f"{unheld(cluster)} are on no node")
        must(history.heard_twice() == 0, f"on two nodes for {history.heard_twice():.1f} s")


def crossed(seed):
    """A pool moves as Services are created; return how many of their addresses are nowhere."""
    with at_work(seed, services=3) as (cluster, _history):
        users.put_group(
            cluster, "default", v4="172.28.1.100-172.28.1.120", v6="fd28::100-fd28::1ff"
        )
        for number in range(10):
            users.add_service(cluster, f"new{number}", families=BOTH)
        cluster.run(60)
        assert len(cluster.addresses()) == 26
        return len(unheld(cluster))


def test_services_that_are_created_while_a_pool_moves_are_served():
    worst = max(map(crossed, range(1, 4)))
    must(worst == 0, f"{worst} addresses are on no node")


@pytest.mark.parametrize("lost_after", [3, 8])
@SEEDS
def test_a_node_that_is_lost_during_a_roll_out_of_other_timings_is_replaced(seed, lost_after):
    with at_work(seed) as (cluster, history):
        won_by(cluster, "n3", THREE)
        users.roll_out(cluster, FAST)
        cluster.run(lost_after)
        assert not cluster.nodes["n3"].agent.has_ended
        cluster.power_off(cluster.nodes["n3"])
        cluster.run(40)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        first = history.unheld()
        users.roll_out(cluster, SLOW)
        cluster.run(40)
        assert [cluster.nodes[name].pods for name in THREE] == [3, 3, 1]
        must(history.unheld() < first + 0.1, f"unheld for {history.unheld() - first:.1f} s more")
        must(history.heard_twice() == 0, f"on two nodes for {history.heard_twice():.2f} s")


def rotated(seed, versions):
    """The Secret gets these versions while no node reaches the API; see the result."""
    with at_work(seed) as (cluster, history):
        for way in ways(cluster):
            way.set_reach(Reach.REFUSED)
        cluster.run(10)
        kubelets = stream(seed, "kubelets")
        for keys in versions:
            for node in cluster.nodes.values():
                moment = kubelets.uniform(0, KUBELETS)
                cluster.timeline.after(moment, partial(users.give_keys, node, keys))
            cluster.run(KUBELETS)
        for way in ways(cluster):
            way.set_reach(Reach.WHOLE)
        cluster.run(30)
        must(history.heard_twice() == 0, f"on two nodes for {history.heard_twice():.1f} s")
        assert all_in_order(cluster)
        return history.unheld()


@SEEDS
def test_a_rotation_of_the_peers_keys_lets_agents_hold_through_an_outage(seed):
    data, versions = {SIGNING: KEYS.signing}, []
    for step in (RotationStep.ADD, RotationStep.SWITCH, RotationStep.REMOVE):
        data = after_step(data, step, new=NEW_KEY)
        versions.append(parse_keys(data))
    gone = rotated(seed, versions)
    must(gone == 0, f"unheld for {gone:.1f} s")


@pytest.mark.parametrize(
    "first", [PeerKeys(NEW_KEY), PeerKeys(NEW_KEY, (KEYS.signing,))], ids=["replaced", "not added"]
)
def test_keys_in_the_wrong_order_let_addresses_go_and_give_none_to_two_nodes(first):
    gone = [rotated(seed, (first, PeerKeys(NEW_KEY))) for seed in (1, 2)]
    assert max(gone) > 10


@SEEDS
def test_an_agent_without_the_peers_keys_withdraws_in_an_outage_and_all_others_hold(seed):
    with at_work(seed) as (cluster, _history):
        node = cluster.nodes["n2"]
        cluster.kill_agent(node)
        users.give_keys(node, None)
        users.restart_agent(cluster, node)
        cluster.run(30)
        assert all_in_order(cluster)
        history, held = History(cluster), won_by(cluster, "n2", THREE)
        for way in ways(cluster):
            way.set_reach(Reach.REFUSED)
        cluster.run(60)
        assert set(unheld(cluster)) == set(held)
        for way in ways(cluster):
            way.set_reach(Reach.WHOLE)
        cluster.run(30)
        must(history.heard_twice() == 0, f"on two nodes for {history.heard_twice():.2f} s")
        must(all_in_order(cluster), "addresses are not where they belong")


@SEEDS
def test_a_taint_that_is_on_and_off_within_a_second_moves_in_order(seed):
    with at_work(seed) as (cluster, history):
        chance, moved = stream(seed, "taints"), 0
        for _time in range(20):
            node, key = cluster.nodes[chance.choice(THREE)], chance.choice(DRAINING_TAINTS)
            users.taint(cluster, node, key)
            cluster.run(chance.uniform(0.001, 0.5))
            moved += not all_in_order(cluster)
            users.untaint(cluster, node, key)
            cluster.run(chance.uniform(0.001, 0.5))
        cluster.run(5)
        assert moved > 10
        # Twenty times there and back.
        must(history.heard_twice() == 0, f"two for {history.heard_twice():.2f} s")
        must(history.unheld() < 20 * DELIVERY, f"unheld for {history.unheld():.2f} s")
        must(all_in_order(cluster), "addresses are not where they belong")


@pytest.mark.parametrize("seconds", [3, 40])
@SEEDS
def test_a_node_that_was_cut_off_when_it_was_selected_no_more_withdraws(seed, seconds):
    with at_work(seed) as (cluster, history):
        for name in ("n1", "n3"):
            users.label(cluster, cluster.nodes[name], rack="a")
        won_by(cluster, "n2", THREE)
        cluster.way("agent/n2").set_reach(Reach.DROPPED)
        users.configure(cluster, "rack-a", local={}, labels={"rack": "a"})
        cluster.run(seconds)
        cluster.way("agent/n2").set_reach(Reach.WHOLE)
        cluster.run(30)
        assert not any("n2" in cluster.holders(a) for a in cluster.addresses())
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.heard_twice() == 0, f"on two nodes for {history.heard_twice():.2f} s")


@pytest.mark.parametrize("seconds", [1, 40])
def test_a_node_that_was_cut_off_when_an_interface_was_taken_away_withdraws_there(seconds):
    with at_work() as (cluster, _history):
        users.connect_other_segment(cluster, *cluster.nodes.values())
        users.put_group(cluster, "other", other4="172.28.2.200-172.28.2.220")
        users.configure(cluster, "default", local={"interfaces": ["eth1"]})
        cluster.run(5)
        for number in range(6):
            users.add_service(cluster, f"other{number}")
            users.change_group(cluster, f"other{number}", "other")
        cluster.run(5)
        other = [a for a, name in cluster.addresses().items() if name.startswith("other")]
        assert all_in_order(cluster)
        assert ["n2"] in [cluster.holders(a) for a in other]
        cluster.way("agent/n2").set_reach(Reach.DROPPED)
        users.configure(cluster, "default", local={"localInterface": "eth0"})
        cluster.run(seconds)
        left = {name for a in other for name in cluster.holders(a)}
        assert left == ({"n2"} if seconds == 1 else set())
        cluster.way("agent/n2").set_reach(Reach.WHOLE)
        cluster.run(30)
        must(not any(map(cluster.holders, other)), "addresses are left on the interface")
        rest = set(cluster.addresses()) - set(other)
        must(all(cluster.holders(a) == rank(THREE, a)[:1] for a in rest), "others have moved")


@pytest.mark.parametrize("away", [1, 15])
@SEEDS
def test_a_node_that_is_deleted_and_created_again_hands_over_and_takes_back(seed, away):
    with at_work(seed) as (cluster, history):
        node = cluster.nodes["n3"]
        moved = won_by(cluster, "n3", THREE)
        users.delete_node(cluster, node)
        cluster.run(away)
        assert not any("n3" in cluster.holders(a) for a in moved)
        users.create_node(cluster, node)
        cluster.run(30)
        must(all_in_order(cluster), "addresses are not where they belong")
        must(history.unheld() < 2 * DELIVERY, f"unheld for {history.unheld():.2f} s")
        must(history.heard_twice() == 0, f"on two nodes for {history.heard_twice():.2f} s")


@SEEDS
def test_services_that_change_all_the_time_lose_and_leak_nothing(seed):
    with at_work(seed) as (cluster, history):
        chance, leaks = stream(seed, "users"), Leaks(2)
        for _change in range(60):
            name = f"s{chance.randrange(10)}"
            kind = chance.choice(("ClusterIP", "LoadBalancer", "LoadBalancer"))
            users.change_type(cluster, name, kind)
            cluster.run(chance.uniform(0.001, 1))
            must(not given_twice(cluster), f"given twice: {given_twice(cluster)}")
            must(not leaks.look(cluster), f"of no Service: {leaks.look(cluster)}")
        cluster.run(5)
        must(all_in_order(cluster), "addresses are not where they belong")
        must(history.heard_twice() == 0, f"on two nodes for {history.heard_twice():.2f} s")
