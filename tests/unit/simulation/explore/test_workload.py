# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Clusters that are built in other ways: where their addresses are, and how they are judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.explore.able import Excuse
from simulation.explore.judge import SETTLED, Judge
from simulation.explore.trial import at_work
from simulation.explore.workload import CLUSTERS, shape_of, size_of
from simulation.manifests import NET4, NET6, OTHER4, OTHER6
from simulation.shape import AUTO, LONG, PLAIN, Fenced, Other, Shape

VARIED, LINK, RACK = 4, 22, 47
SINGLE = {4: 9, 6: 17}
pytestmark = pytest.mark.usefixtures("simulated_time")


@pytest.fixture
def cluster(request):
    number = request.param
    with at_work(number, [f"n{each + 1}" for each in range(size_of(number))]) as made:
        yield made


def built_as(*numbers):
    return pytest.mark.parametrize("cluster", numbers, indirect=True, ids=str)


def broken(judge):
    return {breach.invariant for breach in judge.breaches()}


def addresses_of(cluster, service):
    return [a for a, name in cluster.addresses().items() if name == service]


def test_most_clusters_are_plain_ones_of_two_to_five_nodes():
    shapes = [
        replace(shape_of(number), fenced=Fenced.ALL, timing=LONG) for number in range(CLUSTERS)
    ]
    assert 0.5 < shapes.count(PLAIN) / CLUSTERS < 0.8
    assert {shape.other for shape in shapes} == set(Other)
    assert {shape.versions for shape in shapes} == {(4, 6), (4,), (6,)}
    sizes = [size_of(number) for number in range(CLUSTERS)]
    assert set(sizes) == {1, 2, 3, 4, 5, 12}
    assert sizes.count(1) == 2
    assert sizes.count(12) == 1


def test_most_clusters_have_fences_and_some_have_them_on_some_nodes():
    fenced = [shape_of(number).fenced for number in range(CLUSTERS)]
    assert [fenced.count(which) for which in Fenced] == [34, 7, 7]


def test_in_most_clusters_leases_are_as_long_as_nodes_choose():
    timings = [shape_of(number).timing for number in range(CLUSTERS)]
    assert [timings.count(which) for which in (AUTO, LONG)] == [28, 20]


def test_every_second_node_has_the_other_segment():
    assert [Shape().is_second(name) for name in ("n1", "n2", "new3", "new4-2", "host")] == [
        False,
        True,
        False,
        True,
        True,
    ]


@built_as(VARIED, LINK, RACK, *SINGLE.values())
def test_a_cluster_at_work_breaks_nothing(cluster):
    judge = Judge(cluster)
    cluster.run(SETTLED)
    assert broken(judge) == set()


@built_as(LINK, RACK)
def test_addresses_are_on_nodes_of_their_segment(cluster):
    seconds = {"n2", "n4"}
    nodes = {False: set(), True: set()}
    for address in cluster.addresses():
        is_other = address in OTHER4 or address in OTHER6
        nodes[is_other] |= set(cluster.holders(address))
    assert nodes[True] <= seconds
    if cluster.shape.other is Other.RACK:
        assert not nodes[False] & seconds
    assert len(addresses_of(cluster, "s5")) == 2


@built_as(RACK)
def test_a_rack_without_agents_excuses_only_its_own_addresses(cluster):
    judge = Judge(cluster)
    for name in ("n2", "n4"):
        cluster.nodes[name].kubelet.end_pod()
        cluster.kill_agent(cluster.nodes[name])
    judge.troubles.note()
    first, other = judge.troubles.moments[-1].states
    assert (first.excuse, other.excuse) == (None, Excuse.DOWN)
    assert (first.members, other.members) == ({"n1", "n3", "n5"}, {"n2", "n4"})
    cluster.run(SETTLED)
    assert broken(judge) == set()


@built_as(LINK)
def test_nodes_with_both_segments_agree_with_all_others(cluster):
    judge = Judge(cluster)
    assert [state.members for state in judge.troubles.moments[-1].states] == [
        set(cluster.nodes)
    ] * 2


@built_as(VARIED)
def test_services_of_many_kinds(cluster):
    judge = Judge(cluster)
    assert [str(address) for address in addresses_of(cluster, "s2")] == [
        "172.28.1.240",
        "fd28::2f0",
    ]
    shared = [cluster.find("services", "default", name)["status"] for name in ("s3", "s4")]
    assert shared[0] == shared[1]
    remote = addresses_of(cluster, "s5")
    assert [cluster.number_of(address) for address in remote] == [None, None]
    kernel = cluster.nodes["n2"].kernel
    for address in remote:
        kernel.remove_address(next(place for place in kernel.held if place[1] == address))
    # Its agent has not noticed that yet.
    texts = [breach.text for breach in judge.breaches()]
    assert texts == [f"{address} of all nodes is not on n2 at the end" for address in remote]


@pytest.mark.parametrize("version", SINGLE)
def test_one_version_of_ip(version):
    number = SINGLE[version]
    names = [f"n{each + 1}" for each in range(size_of(number))]
    with at_work(number, names) as cluster:
        nets = {4: NET4, 6: NET6}
        assert all(node.nets == (nets[version],) for node in cluster.nodes.values())
        assert {address.version for address in cluster.addresses()} == {version}
        assert all(len(cluster.holders(address)) == 1 for address in cluster.addresses())
