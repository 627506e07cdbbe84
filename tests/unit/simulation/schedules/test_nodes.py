# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: clocks, kernels, links, stopped programs and crowds."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from purelb.core.node.rtnetlink import IFA_F_DEPRECATED, RTM_NEWADDR
from simulation.api.way import Reach
from simulation.crowd import Crowd
from simulation.dhcp import deprecate, readdress
from simulation.first_address import list_first
from simulation.node.addresses import ordered
from simulation.node.netlink import Stop
from tests.unit.simulation.schedules.story import (
    ASKED,
    TAKEOVER,
    THREE,
    at_work,
    join,
    must,
    ways,
    won_by,
)


def test_an_ipv6_address_is_never_a_source():
    with at_work() as (cluster, _history):
        held = [
            found
            for address in cluster.addresses()
            if address.version == 6
            for name in cluster.holders(address)
            for place, found in cluster.nodes[name].kernel.held.items()
            if place[1] == address
        ]
        assert held
        must(all(found.flags & IFA_F_DEPRECATED for found in held), "an address is preferred")


@pytest.mark.parametrize("name", ["n1", "n2"], ids=["promotes", "does not promote"])
@pytest.mark.parametrize("gap", [0.0, 0.1, 2.5])
def test_own_addresses_that_are_replaced_stay_before_those_of_services(name, gap):
    with at_work() as (cluster, history):
        node = cluster.nodes[name]
        won_by(cluster, name, THREE)
        readdress(cluster, node, gap=gap)
        cluster.run(gap + 1)
        held = [found.place[1] for found in ordered(node.kernel.held)]
        order = [address for address in held if address.version == 4]
        must(order[0] == node.addresses[0], f"{order[0]} comes first")
        must(len(order) > 1, "the addresses of Services are gone")
        must(history.unheld() < ASKED, f"unheld for {history.unheld():.2f} s")
        must(not node.kernel.taken_along, f"lost {node.kernel.taken_along}")


def test_addresses_stay_in_subnets_that_the_network_replaces_and_move_in_them():
    with at_work() as (cluster, history):
        for node in cluster.nodes.values():
            deprecate(node)
        cluster.run(60)
        must(history.unheld() == 0, f"unheld for {history.unheld():.2f} s")
        held = {name: won_by(cluster, name, THREE) for name in cluster.nodes}
        loser = max(held, key=lambda name: len(held[name]))
        cluster.power_off(cluster.nodes[loser])
        cluster.run(TAKEOVER)
        lost = [a for a in cluster.addresses() if not cluster.holders(a)]
        must(not lost, f"{lost} are on no node")


def listed(cluster):
    """The addresses of Services in the status of Nodes."""
    bodies = [cluster.find("nodes", "", name) for name in cluster.nodes]
    found = {ip_address(a["address"]) for body in bodies for a in body["status"]["addresses"]}
    return found & set(cluster.addresses())


def test_an_address_that_kubelets_take_for_the_nodes_stays():
    with at_work() as (cluster, history):
        for node in cluster.nodes.values():
            list_first(cluster, node)
        assert len(listed(cluster)) == len(cluster.nodes)
        cluster.run(60)
        must(history.unheld() == 0, f"unheld for {history.unheld():.2f} s")


@pytest.mark.parametrize("others", ["run on", "start again"])
def test_such_an_address_of_a_lost_node_is_taken_over(others):
    with at_work() as (cluster, history):
        lost, *rest = cluster.nodes.values()
        list_first(cluster, lost)
        (address,) = listed(cluster)
        assert cluster.holders(address) == [lost.name]
        cluster.run(1)
        cluster.stop_agent(lost)
        cluster.run(5)
        cluster.power_off(lost)
        cluster.run(30)
        assert listed(cluster) == {address}
        if others == "start again":
            # One after the other, as in a roll-out.
            for node in rest:
                cluster.stop_agent(node)
                cluster.run(5)
                cluster.start_agent(node)
                cluster.run(10)
        must(len(cluster.holders(address)) == 1, f"{address} is on {cluster.holders(address)}")
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")


def test_a_node_whose_clock_is_ahead_takes_nothing_from_healthy_nodes():
    worst = 0.0
    for seed in range(1, 5):
        with at_work(seed) as (cluster, history):
            join(cluster, history, "n4", clock_ahead=310.0)
            cluster.run(60)
            worst = max(worst, history.twice())
    must(worst == 0, f"on two nodes for {worst:.1f} s")


def test_a_link_without_carrier_is_no_place_for_addresses():
    with at_work() as (cluster, history):
        node = cluster.nodes["n1"]
        won_by(cluster, "n1", THREE)
        node.eth0.has_carrier = False
        node.kernel.add_link(node.eth0)
        cluster.run(60)
        # A node without a carrier counts as no holder: no host hears it.
        must(history.unheld() < 2 + ASKED, f"unheld for {history.unheld():.1f} s")


def test_hosts_know_the_holder_after_a_double_holding_has_healed():
    with at_work() as (cluster, history):
        for address in cluster.addresses():
            cluster.segment.ask(cluster.host, address)
        for way in ways(cluster):
            way.set_reach(Reach.REFUSED)
        cluster.run(2)
        join(cluster, history, "new")
        cluster.run(58)
        for way in ways(cluster):
            way.set_reach(Reach.WHOLE)
        cluster.run(60)
        known = {
            address: [n.name for n in cluster.nodes.values() if n.eth0.mac == mac]
            for address, mac in cluster.host.neighbors.items()
        }
        wrong = [a for a, names in known.items() if names != cluster.holders(a)]
        must(not wrong, f"{len(wrong)} addresses are looked for at another node")


def thawed(seed):
    """n4 is frozen until it is lost, returns first after an outage, and n1 is frozen then."""
    with at_work(seed, ("n1", "n2", "n3", "n4")) as (cluster, history):
        cluster.nodes["n4"].agent.freeze()
        cluster.run(2)
        for way in ways(cluster):
            way.set_reach(Reach.REFUSED)
        cluster.run(15)
        cluster.nodes["n4"].agent.thaw()
        cluster.run(16)
        cluster.way("agent/n4").set_reach(Reach.WHOLE)
        cluster.run(0.01)
        cluster.nodes["n1"].agent.freeze()
        cluster.run(10)
        for name in ("n2", "n3"):
            cluster.way(f"agent/{name}").set_reach(Reach.WHOLE)
        cluster.run(30)
        return history.twice()


def test_a_node_that_was_frozen_until_it_was_lost_waits_for_those_that_hold():
    worst = max(map(thawed, range(1, 5)))
    must(worst == 0, f"on two nodes for {worst:.1f} s")


def test_an_agent_that_is_stopped_while_it_adds_addresses_adds_no_more_after_its_right():
    with at_work(names=("n1",), services=0) as (cluster, _history):
        came, kernel = [], cluster.nodes["n1"].kernel
        kernel.changed = lambda place: came.append((cluster.timeline.now, place in kernel.held))
        kernel.stop = Stop(1, RTM_NEWADDR, 30)
        cluster.add_service("web")
        cluster.run(1)
        assert kernel.stop is None
        late = [is_held for moment, is_held in came if is_held and moment > came[0][0]]
        must(not late, f"{len(late)} addresses were added 20 s after the end of the Lease")


def test_a_late_answer_of_the_kernel_does_not_end_the_agent():
    with at_work() as (cluster, _history):
        node = cluster.nodes["n1"]
        node.kernel.late_answers = 1
        cluster.timeline.run(cluster.timeline.now + 20_000_000)
        assert node.kernel.late_answers == 0
        must(not node.agent.has_ended, "the agent has ended")


def test_an_agent_that_cannot_read_the_kernel_deletes_its_lease():
    with at_work() as (cluster, _history):
        node = cluster.nodes["n1"]
        node.kernel.is_unreadable = True
        cluster.timeline.run(cluster.timeline.now + 20_000_000)
        assert node.agent.has_ended
        lease = cluster.find("leases", "purelb-system", "purelb-node-n1")
        must(lease is None, "the Lease stays until its end")


def test_an_agent_that_249_nodes_ask_at_once_answers_all():
    with at_work(services=0) as (cluster, _history):
        asked, crowd = cluster.nodes["n1"], Crowd(cluster, 249)
        # For some milliseconds it is busy with something else.
        asked.agent.freeze()
        crowd.ask(asked)
        cluster.run(0.05)
        asked.agent.thaw()
        cluster.run(2)
        assert crowd.answered >= 128
        must(crowd.answered == 249, f"{249 - crowd.answered} are silent")
