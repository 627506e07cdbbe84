# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Each invariant is seen to be broken, on a cluster in which it is broken by hand."""

from __future__ import annotations

from functools import partial
from ipaddress import ip_address

import pytest

from purelb.core.election.election import rank
from purelb.core.model import InterfaceAddress
from purelb.core.names import DEFAULT_NAMESPACE, lease_name
from purelb.core.node import rtnetlink
from purelb_agent.runtime.probes import BACKLOG
from simulation.api.way import Reach
from simulation.crowd import Crowd
from simulation.explore import changes
from simulation.explore.able import STARTS, Excuse
from simulation.explore.fault import Fault
from simulation.explore.judge import SETTLED, Judge
from simulation.explore.presence import TAKEOVER
from simulation.explore.troubles import BELIEF, FENCED, LIFETIME
from simulation.explore.ways import writes_act_late
from simulation.manifests import KINDS
from simulation.member import ETH0
from simulation.time.timeline import MICROSECONDS

_ETH0 = 2
# Seconds: longer than what remains of every right.
PAUSED = 2.5


def broken(judge):
    return {breach.invariant for breach in judge.breaches()}


def a_vip(cluster, version=4):
    return next(a for a in cluster.addresses() if a.version == version)


def end(cluster, node):
    node.kubelet.end_pod()
    cluster.kill_agent(node)


def end_with_fence(cluster, node):
    """End an agent, and its fence, so that its kernel answers for what a test puts there."""
    end(cluster, node)
    node.kernel.fence.clear()


def other_than(cluster, address):
    return next(n for n in cluster.nodes.values() if n.name not in cluster.holders(address))


def test_a_cluster_at_work_breaks_nothing(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        cluster.run(SETTLED)
        assert broken(judge) == set()

    in_a_copy(work)


@pytest.mark.parametrize("version", [4, 6])
def test_an_address_on_two_nodes(cluster, in_a_copy, version):
    def work():
        judge = Judge(cluster)
        address = a_vip(cluster, version)
        other = other_than(cluster, address)
        end_with_fence(cluster, other)
        other.kernel.add_address(_ETH0, address, 32)
        cluster.run(1)
        assert broken(judge) >= {"twice", "settled"}

    in_a_copy(work)


def test_a_node_whose_agent_runs_believes_in_its_right_for_no_longer_than_that_lasts(
    cluster, in_a_copy
):
    def work():
        judge = Judge(cluster)
        resume = judge.troubles.pause(cluster.nodes["n1"], is_asleep=False)
        cluster.run(PAUSED)
        resume()
        cluster.run(LIFETIME)
        ((begin, end),) = judge.troubles.unaware["n1"]
        assert BELIEF <= (end - begin) / MICROSECONDS < BELIEF + 1

    in_a_copy(work)


@pytest.mark.parametrize(("seconds", "is_excused"), [(LIFETIME - 1, True), (LIFETIME + 1, False)])
def test_an_address_on_two_nodes_after_a_pause(cluster, in_a_copy, seconds, is_excused):
    def work():
        judge = Judge(cluster)
        address = a_vip(cluster)
        other = other_than(cluster, address)
        resume = judge.troubles.pause(other, is_asleep=False)
        cluster.run(PAUSED)
        resume()
        end_with_fence(cluster, other)
        other.kernel.add_address(_ETH0, address, 32)
        cluster.run(seconds)
        assert ("twice" not in broken(judge)) is is_excused

    in_a_copy(work)


@pytest.mark.parametrize(("runs", "is_excused"), [(True, False), (False, True)])
@pytest.mark.parametrize("is_asleep", [True, False], ids=["slept", "paused"])
def test_a_short_pause_makes_no_agent_late_that_runs(
    cluster, in_a_copy, runs, is_excused, is_asleep
):
    def work():
        judge = Judge(cluster)
        node = cluster.nodes["n1"]
        if not runs:
            node.agent.freeze()
        resume = judge.troubles.pause(node, is_asleep=is_asleep)
        cluster.run(1.9)
        resume()
        assert bool(judge.troubles.unaware["n1"]) is is_excused

    in_a_copy(work)


@pytest.mark.parametrize(
    ("seconds", "runs", "is_excused"),
    [(LIFETIME - 1, False, True), (LIFETIME + 1, False, False), (LIFETIME - 1, True, False)],
)
def test_an_address_on_two_nodes_after_a_sleep(cluster, in_a_copy, seconds, runs, is_excused):
    def work():
        judge = Judge(cluster)
        address = a_vip(cluster)
        other = other_than(cluster, address)
        other.agent.freeze()
        other.kernel.fence.clear()
        judge.troubles.pause(other, is_asleep=True)()
        other.kernel.add_address(_ETH0, address, 32)
        if runs:
            other.agent.thaw()
        cluster.run(seconds)
        assert ("twice" not in broken(judge)) is is_excused

    in_a_copy(work)


@pytest.mark.parametrize("first", [True, False], ids=["slept first", "paused first"])
def test_a_machine_that_was_paused_and_slept_is_one_that_was_paused(cluster, in_a_copy, first):
    def work():
        judge = Judge(cluster)
        node = cluster.nodes["n1"]
        ends = [judge.troubles.pause(node, is_asleep=is_asleep) for is_asleep in (first, not first)]
        for end in ends:
            cluster.run(PAUSED / 2)
            end()
        ((begin, end),) = judge.troubles.unaware["n1"]
        assert end - begin > BELIEF * MICROSECONDS

    in_a_copy(work)


@pytest.mark.parametrize(("runs_for", "is_long"), [(0.5, True), (5, False)])
def test_a_machine_that_slept_while_its_agent_started(cluster, in_a_copy, runs_for, is_long):
    def work():
        judge = Judge(cluster)
        node = cluster.nodes["n1"]
        cluster.kill_agent(node)
        cluster.start_agent(node)
        cluster.run(runs_for)
        end = judge.troubles.pause(node, is_asleep=True)
        cluster.run(8)
        end()
        cluster.run(1)
        ((begin, ends),) = judge.troubles.unaware["n1"]
        assert (ends - begin == LIFETIME * MICROSECONDS) is is_long

    in_a_copy(work)


@pytest.mark.parametrize(("what", "lasts"), [("runs", 0.5), ("starts", 1.5), ("frozen", FENCED)])
def test_filters_that_go_while_no_agent_puts_them_back(cluster, in_a_copy, what, lasts):
    def work():
        judge = Judge(cluster)
        node = cluster.nodes["n1"]
        if what == "frozen":
            node.agent.freeze()
        elif what == "starts":
            cluster.kill_agent(node)
        judge.troubles.unfence(node)
        cluster.run(60)
        ((begin, end),) = judge.troubles.unaware["n1"]
        assert lasts - 1 < (end - begin) / MICROSECONDS <= lasts + 1
        judge.troubles.unfence(node)
        assert len(judge.troubles.unaware["n1"]) == (1 if what == "frozen" else 2)

    in_a_copy(work)


@pytest.mark.parametrize("knows", ["no one", "holder", "promiser"])
def test_an_address_that_a_node_takes_from_one_out_of_its_reach(cluster, in_a_copy, knows):
    def work():
        judge = Judge(cluster)
        address = a_vip(cluster)
        (holder,) = cluster.holders(address)
        taker, promiser = (name for name in cluster.nodes if name != holder)
        reached = {"holder": holder, "promiser": promiser}.get(knows)
        for name in (holder, promiser):
            begin = partial(judge.troubles.reach, f"agent/{name}", Reach.DROPPED)
            judge.troubles.later(0, 60, begin)
            cluster.network.cut.add(frozenset({name, taker}))
        cluster.run(7)
        if reached:
            cluster.network.cut.discard(frozenset({reached, taker}))
        assert cluster.holders(address) == [holder]
        cluster.nodes[taker].kernel.add_address(_ETH0, address, 32)
        cluster.run(1)
        assert holder in cluster.holders(address)
        assert ("twice" not in broken(judge)) is (knows == "no one")

    in_a_copy(work)


@pytest.mark.parametrize("starts", ["before", "meanwhile", "after"])
def test_an_address_that_a_node_takes_from_one_whose_lease_was_deleted(cluster, in_a_copy, starts):
    def work():
        judge = Judge(cluster)
        names = (*cluster.nodes, "new")
        wins = starts == "meanwhile"
        address = next(a for a in cluster.addresses() if (rank(names, a)[0] == "new") is wins)
        (holder,) = cluster.holders(address)
        taker = other_than(cluster, address)
        if starts != "before":
            taker = cluster.add_node("new")
            judge.history.follow(taker)
        # It does not write it again while it is frozen.
        if starts != "after":
            cluster.nodes[holder].agent.freeze()
        cluster.drop("leases", DEFAULT_NAMESPACE, lease_name(holder))
        if starts == "after":
            cluster.run(3)
        if starts != "before":
            cluster.start_agent(taker)
        cluster.run(3)
        if not wins:
            taker.kernel.add_address(_ETH0, address, 32)
        cluster.run(2)
        assert {holder, taker.name} <= set(cluster.holders(address))
        assert ("twice" not in broken(judge)) is wins

    in_a_copy(work)


def test_an_address_without_a_right(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        address = a_vip(cluster)
        (name,) = cluster.holders(address)
        end_with_fence(cluster, cluster.nodes[name])
        place = (_ETH0, address)
        cluster.run(1)
        cluster.nodes[name].kernel.held[place].valid_until = None
        cluster.run(10.5)
        assert "rightless" in broken(judge)

    in_a_copy(work)


@pytest.mark.parametrize("others_run", [False, True], ids=["ended", "no-nodes"])
def test_a_node_whose_lease_is_the_only_one_needs_no_other_right(cluster, in_a_copy, others_run):
    def work():
        holder, *others = cluster.nodes.values()
        for node in others:
            if others_run:
                cluster.drop("nodes", "", node.name)
            else:
                end(cluster, node)
            cluster.drop("leases", "purelb-system", f"purelb-node-{node.name}")
        judge = Judge(cluster)
        cluster.run(20)
        for name in cluster.nodes:
            cluster.way(f"agent/{name}").set_reach(Reach.REFUSED)
        cluster.run(25)
        assert all(cluster.holders(a) == [holder.name] for a in cluster.addresses())
        assert "rightless" not in broken(judge)

    in_a_copy(work)


def test_a_node_becomes_the_only_one_when_others_lose_their_subnets(cluster, in_a_copy):
    def work():
        holder, *others = cluster.nodes.values()
        held = [a for a in cluster.addresses() if holder.name in cluster.holders(a)]
        judge = Judge(cluster)
        for node in others:
            name = f"purelb-node-{node.name}"
            end(cluster, node)
            lease = cluster.find("leases", "purelb-system", name)
            lease["metadata"]["annotations"]["purelb.io/subnets"] = ""
            cluster.put("leases", "purelb-system", name, lease)
        cluster.run(0.5)
        cluster.way(f"agent/{holder.name}").set_reach(Reach.REFUSED)
        cluster.run(25)
        assert held
        assert all(holder.name in cluster.holders(a) for a in held)
        assert "rightless" not in broken(judge)

    in_a_copy(work)


def test_an_address_that_two_services_have(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        first, second = (cluster.find("services", "default", name) for name in ("s0", "s1"))
        cluster.put("services", "default", "s1", {**second, "status": first["status"]})
        # What the second one had belongs to no one now.
        assert broken(judge) == {"given twice", "lost", "leaked"}

    in_a_copy(work)


def test_an_address_that_no_node_has(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        for node in cluster.nodes.values():
            end(cluster, node)
        cluster.run(12 + TAKEOVER)
        assert "unheld" in broken(judge)

    in_a_copy(work)


def begin_watches_again(cluster):
    """Let no watch end by itself for a minute."""
    for node in cluster.nodes.values():
        cluster.way(f"agent/{node.name}").set_reach(Reach.REFUSED)
        cluster.way(f"agent/{node.name}").set_reach(Reach.WHOLE)
    cluster.run(3)


def test_an_address_that_no_node_ever_had(cluster, in_a_copy):
    def work():
        begin_watches_again(cluster)
        judge = Judge(cluster)
        for node in cluster.nodes.values():
            cluster.way(f"agent/{node.name}").stall(KINDS["services"])
        cluster.add_service("late")
        cluster.run(2 + TAKEOVER)
        assert broken(judge) == {"unheld", "settled"}

    in_a_copy(work)


def test_while_no_node_can_none_has_to_hold_an_address(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        for node in cluster.nodes.values():
            end(cluster, node)
        judge.troubles.note()
        cluster.run(12 + TAKEOVER)
        assert "unheld" not in broken(judge)

    in_a_copy(work)


def test_until_a_silent_watch_must_be_noticed_no_node_has_to_hold_an_address(cluster, in_a_copy):
    def work():
        begin_watches_again(cluster)
        judge = Judge(cluster)
        for node in cluster.nodes.values():
            end = judge.troubles.silence(f"agent/{node.name}", [KINDS["services"]])
        judge.troubles.note()
        cluster.add_service("late")
        cluster.run(2 + TAKEOVER)
        assert broken(judge) == {"settled"}
        for _node in cluster.nodes:
            end()
        judge.troubles.note()
        cluster.run(1 + TAKEOVER)
        assert broken(judge) == {"settled", "unheld"}

    in_a_copy(work)


@pytest.mark.parametrize(
    ("seconds", "excuse"), [(3.0, None), (10.0, Excuse.SLOW_START)], ids=["in time", "too late"]
)
def test_nodes_need_hold_nothing_that_start_while_writes_take_as_long_as_a_right(
    cluster, in_a_copy, seconds, excuse
):
    def excused(judge):
        return judge.troubles.able.now(is_unnoticed=False).states[0].excuse

    def work():
        judge = Judge(cluster)
        for user in judge.troubles.users:
            judge.troubles.slow(user, writes_act_late(seconds))
        cluster.run(5)
        assert excused(judge) is None
        for node in cluster.nodes.values():
            end(cluster, node)
            cluster.start_agent(node)
        cluster.run(1 + STARTS)
        assert excused(judge) is excuse

    in_a_copy(work)


def test_a_taint_counts_until_the_end_of_it_can_be_seen(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        nodes = cluster.nodes.values()
        untaint = changes.taint(judge.troubles, Fault("taint", 0, 0, tuple(cluster.nodes)))
        judge.troubles.note()
        cluster.run(5)
        still = [judge.troubles.stall(f"agent/{node.name}", [KINDS["nodes"]]) for node in nodes]
        untaint()
        judge.troubles.note()
        cluster.run(1 + TAKEOVER)
        assert "unheld" not in broken(judge)
        for resume in still:
            resume()
        judge.troubles.note()
        cluster.run(1 + TAKEOVER)
        assert broken(judge) == set()

    in_a_copy(work)


def test_an_address_that_is_on_another_node_than_its_winner(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        address = a_vip(cluster)
        (winner,) = cluster.holders(address)
        cluster.nodes[winner].kernel.remove_address((_ETH0, address))
        second = cluster.nodes[rank(list(cluster.nodes), address)[1]]
        second.kernel.fence.clear()
        second.kernel.add_address(_ETH0, address, 32)
        assert broken(judge) == {"settled", "known"}

    in_a_copy(work)


def test_an_address_that_belongs_to_no_service(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        node = cluster.nodes["n1"]
        node.kernel.add_address(_ETH0, ip_address("172.28.1.240"), 32)
        assert broken(judge) == {"leaked"}

    in_a_copy(work)


def test_too_many_writes_and_requests(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        lease = cluster.find("leases", "purelb-system", "purelb-node-n1")
        for number in range(40):
            labels = {**lease["metadata"], "labels": {"n": str(number)}}
            cluster.put("leases", "purelb-system", "purelb-node-n1", {**lease, "metadata": labels})
        cluster.way("agent/n2").asked += 100
        assert broken(judge) == {"writes", "requests"}

    in_a_copy(work)


def test_an_address_that_is_used_as_a_source(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        for node in cluster.nodes.values():
            for held in node.kernel.held.values():
                held.flags &= ~0x20
        assert broken(judge) == {"source"}

    in_a_copy(work)


def test_an_address_before_the_nodes_own(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        node = cluster.nodes["n1"]
        own = node.kernel.held.pop((ETH0, node.addresses[0]))
        node.kernel.held[own.place] = own
        assert broken(judge) == {"source"}

    in_a_copy(work)


def test_addresses_that_go_with_one_that_is_removed(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        node = cluster.nodes["n2"]
        request = rtnetlink.build_remove(InterfaceAddress(ETH0, node.addresses[0], 24), 1)
        node.kernel.add_address(ETH0, node.addresses[0] + 100, 24)
        node.kernel.answer(*rtnetlink.parse_messages(request))
        assert broken(judge) == {"harmed"}

    in_a_copy(work)


def test_an_agent_that_turns_questions_away(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        node = cluster.nodes["n1"]
        # One that is frozen may.
        node.agent.freeze()
        Crowd(cluster, 2 * BACKLOG).ask(node)
        cluster.run(1)
        node.agent.thaw()
        cluster.run(1)
        assert broken(judge) == set()
        node.agent.pass_seconds = 0.02
        Crowd(cluster, BACKLOG + 2).ask(node)
        cluster.run(1)
        assert broken(judge) == {"turned away"}

    in_a_copy(work)


def test_a_program_that_ended(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        cluster.nodes["n1"].kernel.is_unreadable = True
        let_it_look(cluster)
        assert "ended" in broken(judge)

    in_a_copy(work)


def test_an_agent_that_ended_as_it_could_not_read_its_kernel(cluster, in_a_copy):
    def work():
        judge = Judge(cluster)
        judge.troubles.blindfold(cluster.nodes["n1"])
        let_it_look(cluster)
        assert cluster.nodes["n1"].agent.has_ended
        assert "ended" not in broken(judge)

    in_a_copy(work)


def let_it_look(cluster):
    """Change the Node n1, so that its agent reads its kernel."""
    found = cluster.find("nodes", "", "n1")
    cluster.put("nodes", "", "n1", {**found, "metadata": {"labels": {"x": "1"}}})
    cluster.timeline.run(cluster.timeline.now + 40_000_000)
