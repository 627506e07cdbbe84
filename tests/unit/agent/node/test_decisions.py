# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from purelb.core.node.decisions import decide_vips
from purelb_agent.node.decisions import DecisionRecorder
from purelb_agent.node.metrics import NodeMetrics
from tests.support.core.snapshots import NET4, NET6, VIP4, VIP6, service, snapshot

BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def note(registry):
    recorder, last = DecisionRecorder("n1", NodeMetrics(registry).election), [None]

    def note(made):
        last[0] = decide_vips(made, last[0])
        recorder.record(last[0])

    return note


def series(registry, name):
    samples = (sample for metric in registry.collect() for sample in metric.samples)
    return {tuple(s.labels.values()): s.value for s in samples if s.name == name}


@BOTH
def test_an_address_is_counted_as_announced_while_this_node_holds_it(note, registry, vip):
    note(snapshot(service(addresses=[vip])))
    announced = series(registry, "purelb_lbnodeagent_announced")
    assert announced == {("default/web", "n1", str(vip)): 1}
    note(snapshot())
    assert series(registry, "purelb_lbnodeagent_announced") == {}


@BOTH
def test_winner_changes_are_counted_until_the_address_is_released(note, registry, vip):
    web = service(addresses=[vip])
    note(snapshot(web, members=["n2"]))
    note(snapshot(web, members=["n1"]))
    changes = series(registry, "purelb_election_winner_changes_total")
    assert changes == {("default/web", str(vip), "n2", "n1"): 1}
    note(snapshot(members=["n1"]))
    assert series(registry, "purelb_election_winner_changes_total") == {}


@BOTH
def test_affinity_fallbacks_are_counted_until_the_service_is_deleted(note, registry, vip):
    note(snapshot(service(addresses=[vip], has_affinity=True)))
    name = "purelb_lbnodeagent_affinity_fallback_total"
    assert series(registry, name) == {("default/web",): 1}
    note(snapshot())
    assert series(registry, name) == {}


def test_candidates_are_counted_by_subnet(note, registry):
    note(snapshot(members=["n1", "n2", "n3"]))
    candidates = series(registry, "purelb_election_candidates")
    assert candidates == {(str(NET4),): 3, (str(NET6),): 3}


@BOTH
def test_a_shared_address_is_counted_once(note, registry, vip):
    shared = [service(name, [vip], sharing_key="k") for name in ("web", "shop")]
    note(snapshot(shared[0]))
    note(snapshot(*shared))
    announced = series(registry, "purelb_lbnodeagent_announced")
    assert list(announced) == [("default/shop,default/web", "n1", str(vip))]
