# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The model of the fence: what agents load drops frames, however long an address stays."""

from __future__ import annotations

from functools import partial

import pytest

from purelb.core.names import ANSWERING_ANNOTATION
from purelb.core.node.packets import build_announcement
from simulation.cluster import simulated
from simulation.history import History
from simulation.node.fence import GUARDS, OPENS
from simulation.node.netlink import Stop
from simulation.shape import Fenced, Shape

NAMES = ("n1", "n2")
BOTH = pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])


@pytest.fixture
def cluster(request):
    with simulated(7, NAMES, getattr(request, "param", Shape())) as made:
        made.start()
        made.run(25)
        made.add_service("web")
        made.run(100)
        yield made


def place_of(cluster, version):
    """The node that has the Service's address of a version, and the address.

    Its lifetime has just been refreshed: the fence keeps it silent for a little longer than that.
    """
    (vip,) = (address for address in cluster.addresses() if address.version == version)
    (holder,) = cluster.holders(vip)
    node = cluster.nodes[holder]
    before = ends_of(node, vip)
    while ends_of(node, vip) == before:
        cluster.run(0.5)
    return node, vip


def ends_of(node, vip):
    return next(held.valid_until for place, held in node.kernel.held.items() if place[1] == vip)


def keep(node, vip):
    """Let a node's kernel keep an address for ever, as one whose timers stand still."""
    place = next(place for place in node.kernel.held if place[1] == vip)
    node.kernel.held[place].valid_until = None


def freeze(node):
    node.agent.freeze()
    return node


def lease_says(cluster, node):
    lease = cluster.find("leases", "purelb-system", f"purelb-node-{node.name}")
    return lease["metadata"]["annotations"]["purelb.io/fence"]


@BOTH
class TestSilence:
    def test_begins_before_another_node_has_the_address(self, cluster, version):
        node, vip = place_of(cluster, version)
        history = History(cluster)
        freeze(node)
        keep(node, vip)
        cluster.run(25)
        assert any(vip == address for _link, address in node.kernel.held)
        (other,) = cluster.holders(vip)
        assert other != node.name
        (_first, away, _other) = [seconds for seconds, _holders in history.spans(vip)]
        assert 0.02 <= away < 2
        assert history.twice() == 0

    def test_is_none_without_the_filters(self, cluster, version):
        node, vip = place_of(cluster, version)
        freeze(node)
        keep(node, vip)
        cluster.run(25)
        node.kernel.fence.clear()
        assert len(cluster.holders(vip)) == 2

    def test_ends_with_the_fence_and_not_during_sleep(self, cluster, version):
        node, vip = place_of(cluster, version)
        freeze(node)
        cluster.run(0.01)
        keep(node, vip)
        cluster.suspend(node)
        cluster.run(100)
        cluster.resume(node)
        assert node.name not in cluster.holders(vip)
        cluster.run(30)
        assert node.name not in cluster.holders(vip)
        cluster.run(20)
        assert node.name in cluster.holders(vip)

    def test_concerns_announcements(self, cluster, version):
        node, vip = place_of(cluster, version)
        freeze(node)
        keep(node, vip)
        cluster.run(25)
        cluster.segment.ask(cluster.host, vip)
        frames = build_announcement(node.eth0.mac, vip)
        cluster.segment.send(node.kernel, "eth0", frames)
        cluster.run(0.01)
        assert cluster.host.neighbors[vip] != node.eth0.mac
        node.kernel.fence.clear()
        cluster.segment.send(node.kernel, "eth0", frames)
        cluster.run(0.01)
        assert cluster.host.neighbors[vip] == node.eth0.mac


def test_filters_that_are_taken_away_are_put_back(cluster):
    node, _vip = place_of(cluster, 4)
    before = {hook: len(filters) for hook, filters in node.kernel.fence.hooks.items() if filters}
    assert before
    node.kernel.fence.clear()
    cluster.run(2)
    after = {hook: len(filters) for hook, filters in node.kernel.fence.hooks.items() if filters}
    assert after == before


def test_an_agent_that_ends_leaves_none(cluster):
    node, _vip = place_of(cluster, 4)
    cluster.stop_agent(node)
    cluster.run(5)
    assert not any(node.kernel.fence.hooks.values())


def test_a_machine_without_power_has_none(cluster):
    node, _vip = place_of(cluster, 4)
    cluster.power_off(node)
    assert not node.kernel.fence.hooks


@pytest.mark.parametrize(
    ("cluster", "answers"),
    [(Shape(versions=(4,)), False), (Shape(versions=(4,), fenced=Fenced.NONE), True)],
    indirect=["cluster"],
    ids=["fenced", "not fenced"],
)
def test_who_is_to_have_no_address_does_not_answer_for_its_copy(cluster, answers):
    """As with kube-proxy in IPVS mode, which gives each node each address."""
    node, vip = place_of(cluster, 4)
    (other,) = (made for made in cluster.nodes.values() if made is not node)
    cluster.segment.is_everywhere = lambda address: address == vip
    cluster.run(120)
    lease = cluster.find("leases", "purelb-system", f"purelb-node-{node.name}")
    assert (other.name in lease["metadata"]["annotations"].get(ANSWERING_ANNOTATION, "")) == answers


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (Shape(), {"n1": "exact", "n2": "exact"}),
        (Shape(fenced=Fenced.SECONDS), {"n1": "forbidden", "n2": "exact"}),
        (Shape(fenced=Fenced.NONE), {"n1": "forbidden", "n2": "forbidden"}),
    ],
    indirect=["cluster"],
    ids=["all", "every second one", "none"],
)
def test_each_agent_says_which_fence_its_node_has(cluster, said):
    assert {name: lease_says(cluster, node) for name, node in cluster.nodes.items()} == said


@pytest.mark.parametrize("kind", [GUARDS, OPENS], ids=["guards", "opens"])
def test_an_agent_is_stopped_in_the_middle(cluster, kind):
    node, _vip = place_of(cluster, 4)
    moments = []
    noted = partial(moments.append, True)
    node.kernel.stop = Stop(1, kind, 30, noted)
    for number in range(4):
        cluster.add_service(f"more{number}")
    cluster.run(60)
    assert node.kernel.stop is None
    assert len(moments) == 2
