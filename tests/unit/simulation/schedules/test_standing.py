# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: nodes that shall not serve by their label, or cannot without kube-proxy."""

from __future__ import annotations

import pytest

from purelb.core.election.election import rank
from purelb.core.names import EXCLUDE_LABEL
from purelb.core.node.service_proxy import Answer
from simulation import users
from tests.unit.simulation.schedules.story import ASKED, THREE, at_work, must, won_by

# Seconds, at most: four questions and what the last one takes.
FOUND = 25.0


def label(cluster, *names):
    for name in names:
        users.label(cluster, cluster.nodes[name], **{EXCLUDE_LABEL: ""})


def unlabel(cluster, *names):
    for name in names:
        users.unlabel(cluster, cluster.nodes[name], EXCLUDE_LABEL)


def end_proxies(cluster, *names):
    for name in names:
        cluster.nodes[name].service_proxy = Answer.NONE


def held_by(cluster):
    return {address: cluster.holders(address) for address in cluster.addresses()}


def among(cluster, names):
    return {address: rank(names, address)[:1] for address in cluster.addresses()}


def moved_in_order(history):
    must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")
    must(history.unheld() <= 2 * ASKED, f"on no node for {history.unheld():.2f} s")


def test_a_label_moves_the_addresses_at_once_and_back():
    with at_work() as (cluster, history):
        assert won_by(cluster, "n1", THREE)
        label(cluster, "n1")
        cluster.run(2)
        must(held_by(cluster) == among(cluster, ["n2", "n3"]), "n1 has the label and addresses")
        unlabel(cluster, "n1")
        cluster.run(2)
        must(held_by(cluster) == among(cluster, THREE), "not all addresses are back")
        moved_in_order(history)


def test_nodes_that_all_have_the_label_keep_their_addresses():
    with at_work() as (cluster, history):
        label(cluster, *THREE)
        cluster.run(5)
        must(held_by(cluster) == among(cluster, THREE), "a label took addresses away")
        moved_in_order(history)


def test_a_dead_service_proxy_moves_the_addresses_and_back():
    with at_work() as (cluster, history):
        end_proxies(cluster, "n1")
        cluster.run(FOUND)
        must(held_by(cluster) == among(cluster, ["n2", "n3"]), "n1 has addresses")
        cluster.nodes["n1"].service_proxy = Answer.GOOD
        cluster.run(FOUND)
        must(held_by(cluster) == among(cluster, THREE), "not all addresses are back")
        moved_in_order(history)


@pytest.mark.parametrize("apart", [0.0, 1.7, 4.0])
def test_service_proxies_that_all_end_move_nothing(apart):
    with at_work() as (cluster, history):
        before = held_by(cluster)
        for name in THREE:
            end_proxies(cluster, name)
            cluster.run(apart)
        for _second in range(60):
            cluster.run(1)
            must(held_by(cluster) == before, "an address has moved")
        moved_in_order(history)


def test_a_service_proxy_that_restarts_moves_nothing():
    with at_work() as (cluster, history):
        before = held_by(cluster)
        end_proxies(cluster, "n1")
        cluster.run(12)
        cluster.nodes["n1"].service_proxy = Answer.GOOD
        cluster.run(30)
        must(held_by(cluster) == before, "an address has moved")
        moved_in_order(history)


def test_an_agent_that_restarts_beside_a_dead_service_proxy_gets_nothing():
    with at_work() as (cluster, _history):
        end_proxies(cluster, "n1")
        cluster.run(FOUND)
        cluster.nodes["n1"].agent.kill()
        cluster.start_container(cluster.nodes["n1"])
        for _tenth in range(100):
            cluster.run(0.1)
            must(held_by(cluster) == among(cluster, ["n2", "n3"]), "n1 has addresses")
