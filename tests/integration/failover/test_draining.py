# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Draining: an eviction event taints the node, and a taint moves the node's addresses."""

from __future__ import annotations

import functools
import itertools
import json
import time
from datetime import UTC, datetime

import pytest
import yaml

from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import AGENTS, GRACEFUL, eventually, leader
from tests.support.lab.faults import (
    OUT_OF_SERVICE,
    agents_with,
    events_of,
    is_ready,
    node_with_both_families,
    serve_addresses,
    set_variable,
    wait_until_moved,
    wait_until_returned,
)

pytestmark = [pytest.mark.timeout(90), pytest.mark.safety]
NODE = "n3"
OTHER = "n2"
PATH = f"/api/v1/nodes/{NODE}"
EVENTS = "/api/v1/namespaces/default/events"
SPOT = "cloudprovider.azure.microsoft.com/draining"
MARK = "purelb.io/preempted-by"
# Seconds in which a taint that must not come would have come.
SETTLED = 2
TAINT = {"key": SPOT, "value": "spot-eviction", "effect": "NoSchedule"}

_numbers = itertools.count(1)


@pytest.fixture
def announce(cluster):
    """Creates eviction events of a node; returns their paths. Undone after the test."""
    made = []
    # One that the allocator sent after the end of the test before.
    forget_news(cluster)

    def send(uid="", node=NODE):
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{node}.preempt-{next(_numbers)}", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid},
            "reason": "PreemptScheduled",
            "message": "the machine will be taken away",
            "type": "Warning",
            "source": {"component": "test", "host": NODE},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        made.append(cluster.api.path_of(event))
        cluster.api.create(event)
        return made[-1]

    yield send
    for path in made:
        cluster.api.delete(path)
    forget_news(cluster)
    for node in (NODE, OTHER):
        remove_taint(cluster, node)
        cluster.api.merge_patch(path_of(node), {"metadata": {"annotations": {MARK: None}}})


def path_of(node):
    return f"/api/v1/nodes/{node}"


def spot_taints(lab, node=NODE):
    taints = lab.api.get(path_of(node))["spec"].get("taints") or []
    return [(t.get("value"), t["effect"]) for t in taints if t["key"] == SPOT]


def remove_taint(lab, node=NODE):
    taints = lab.api.get(path_of(node))["spec"].get("taints") or []
    kept = [taint for taint in taints if taint["key"] != SPOT]
    lab.api.merge_patch(path_of(node), {"spec": {"taints": kept}})


def news(lab):
    about = f"involvedObject.kind=Node,involvedObject.name={NODE},reason=NodeDraining"
    return lab.api.items(EVENTS, fieldSelector=about)


def forget_news(lab):
    for event in news(lab):
        lab.api.delete(f"{EVENTS}/{event['metadata']['name']}")


def writes(lab):
    """Return how often the allocator wrote to a Node."""
    entries = map(json.loads, lab.audit_log.read_text().splitlines())
    return sum(
        entry["verb"] == "patch" and entry["objectRef"]["resource"] == "nodes"
        for entry in entries
        if entry["user"]["username"].endswith(":allocator")
    )


def tainted(lab):
    eventually(lambda: spot_taints(lab), "taint", seconds=GRACEFUL)
    assert spot_taints(lab) == [("spot-eviction", "NoSchedule")]


def allocators(lab):
    """Return the names of the allocator's ready pods."""
    pods = lab.api.items(AGENTS, labelSelector="component=allocator")
    return {pod["metadata"]["name"] for pod in pods if is_ready(pod)}


def restart_allocator(lab):
    old = allocators(lab)
    for name in old:
        lab.api.delete(f"{AGENTS}/{name}")
    eventually(lambda: len(allocators(lab) - old) == len(old), "new allocators", seconds=30)
    # A standby is ready, too; without a leader no allocator would taint anything.
    eventually(
        lambda: (pod := leader(lab)) and pod["metadata"]["name"] not in old, "leader", seconds=30
    )


@pytest.mark.parametrize("by", ["name", pytest.param("uid", marks=pytest.mark.thorough)])
def test_eviction_event_taints_the_node_once_and_creates_an_event(cluster, announce, by):
    before = writes(cluster)
    announce(cluster.api.get(PATH)["metadata"][by])
    tainted(cluster)
    (event,) = eventually(lambda: news(cluster), "event")
    assert event["type"] == "Normal"
    assert f"remove the taint: kubectl taint node {NODE} {SPOT}-" in event["message"]
    assert event["involvedObject"]["uid"] == cluster.api.get(PATH)["metadata"]["uid"]
    time.sleep(SETTLED)
    assert (writes(cluster), len(news(cluster))) == (before + 1, 1)


def test_taint_removed_by_hand_returns_only_with_a_new_occurrence(cluster, announce):
    event = announce()
    tainted(cluster)
    remove_taint(cluster)
    time.sleep(SETTLED)
    assert spot_taints(cluster) == []
    restart_allocator(cluster)
    time.sleep(SETTLED)
    assert spot_taints(cluster) == []
    cluster.api.merge_patch(event, {"count": 2})
    tainted(cluster)


@pytest.mark.thorough
def test_other_taints_are_kept(cluster, announce):
    other = {"key": "example.com/other", "value": "x", "effect": "PreferNoSchedule"}
    taints = cluster.api.get(PATH)["spec"].get("taints") or []
    cluster.api.merge_patch(PATH, {"spec": {"taints": [*taints, other]}})
    try:
        announce()
        tainted(cluster)
        assert other in cluster.api.get(PATH)["spec"]["taints"]
    finally:
        cluster.api.merge_patch(PATH, {"spec": {"taints": taints}})


@pytest.mark.thorough
def test_event_with_another_node_uid_is_ignored(cluster, announce):
    before = writes(cluster)
    announce("00000000-0000-0000-0000-000000000000")
    time.sleep(SETTLED)
    assert spot_taints(cluster) == []
    assert writes(cluster) == before


def test_without_the_feature_the_role_requests_no_permission(playbook, tmp_path):
    playbook(
        "purelb.purelb.install",
        *("-e", f"purelb_install_manifests_dir={tmp_path}", "-e", "purelb_install_draining=false"),
    )
    roles = {
        role["metadata"]["name"].rpartition(":")[2]: role["rules"]
        for role in yaml.safe_load_all((tmp_path / "clusterroles.yaml").read_text())
    }
    (nodes,) = (rule for rule in roles["allocator"] if "nodes" in rule["resources"])
    assert nodes["verbs"] == ["list", "watch"]
    (events,) = (rule for rule in roles["allocator"] if "events" in rule["resources"])
    assert events["verbs"] == ["create"]
    of_events = {
        role["metadata"]["namespace"]: role["rules"]
        for role in yaml.safe_load_all((tmp_path / "roles.yaml").read_text())
    }
    assert of_events["default"] == []
    for name in ("daemonset", "deployment"):
        workload = yaml.safe_load((tmp_path / f"{name}.yaml").read_text())
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        assert {"name": "PURELB_DRAINING", "value": "off"} in container["env"]


def drained_and_restored(lab, node):
    """Return the numbers of the node's events for draining and its end."""
    uid = lab.api.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    return [len(events_of(lab, uid, f"Addresses{what}")) for what in ("Drained", "Restored")]


def test_addresses_leave_a_tainted_node_and_return_without_the_taint(
    cluster, make_service, mark, figure
):
    vips = serve_addresses(cluster, make_service)
    node, own = node_with_both_families(cluster, vips)
    drained, restored = drained_and_restored(cluster, node)
    with record_holders(cluster, *vips) as holders:
        mark(node, taints=[OUT_OF_SERVICE])
        start = time.monotonic()
        wait_until_moved(cluster, node, own, seconds=GRACEFUL)
        away = time.monotonic() - start
        eventually(lambda: drained_and_restored(cluster, node) == [drained + 1, restored], "event")
        time.sleep(3)
        wait_until_moved(cluster, node, own, seconds=0)
        mark(node, taints=None)
        start = time.monotonic()
        wait_until_returned(cluster, node, own, seconds=GRACEFUL)
        returned = time.monotonic() - start
        eventually(
            lambda: drained_and_restored(cluster, node) == [drained + 1, restored + 1], "event"
        )
    doubled = max(holders.longest_doubled(vip) for vip in vips)
    figure(
        f"{len(own)} addresses away after {away:.2f} s, back after {returned:.2f} s, "
        f"on two {doubled:.2f} s"
    )
    assert doubled < 1
    assert all(holders.sequence(vip) == [holders.sequence(vip)[0]] for vip in set(vips) - {*own})


def test_eviction_of_all_nodes_leaves_every_address_where_it_is(cluster, make_service, mark):
    vips = serve_addresses(cluster, make_service)
    with record_holders(cluster, *vips) as holders:
        for node in cluster.nodes:
            mark(node, taints=[TAINT])
        node, own = node_with_both_families(cluster, vips)
        uid = cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]

        def names_all():
            said = [e["message"] for e in events_of(cluster, uid, "AddressesNotDrained")]
            return any(all(vip in message for vip in own) for message in said)

        eventually(names_all, "event that names what stays")
        time.sleep(3)
    # The taints come one after the other, so an address may move until every node has one.
    for vip in vips:
        assert len(holders.now[vip]) == 1
        assert holders.longest_doubled(vip) < 1
        assert holders.longest_unheld(vip) < GRACEFUL


@pytest.mark.thorough
def test_no_more_nodes_than_the_limit_are_tainted(cluster, announce):
    announce()
    tainted(cluster)
    announce(node=OTHER)
    about = cluster.api.get(path_of(OTHER))["metadata"]["uid"]
    event = eventually(
        lambda: events_of(cluster, about, "NodeDrainingFailed"), "event about the limit"
    )[-1]
    assert "purelb_install_eviction_limit" in event["message"]
    time.sleep(SETTLED)
    assert spot_taints(cluster, OTHER) == []
    remove_taint(cluster)
    eventually(lambda: spot_taints(cluster, OTHER), "taint of the next", seconds=GRACEFUL)


@pytest.mark.thorough
def test_cordon_alone_moves_nothing(cluster, make_service, mark):
    vips = serve_addresses(cluster, make_service)
    node, _own = node_with_both_families(cluster, vips)
    before = drained_and_restored(cluster, node)
    with record_holders(cluster, *vips) as holders:
        mark(node, unschedulable=True)
        time.sleep(3)
        mark(node, unschedulable=None)
    assert all(len(holders.sequence(vip)) == 1 for vip in vips)
    assert drained_and_restored(cluster, node) == before


@pytest.mark.thorough
def test_without_the_feature_a_taint_moves_nothing(cluster, make_service, mark):
    vips = serve_addresses(cluster, make_service)
    off = functools.partial(set_variable, name="PURELB_DRAINING", value="off")
    with agents_with(cluster, *cluster.nodes, change=off):
        node, own = node_with_both_families(cluster, vips)
        before = drained_and_restored(cluster, node)
        with record_holders(cluster, *own) as holders:
            mark(node, taints=[OUT_OF_SERVICE | {"effect": "NoSchedule"}])
            time.sleep(3)
            mark(node, taints=None)
        assert all(holders.sequence(vip) == [{node}] for vip in own)
        assert drained_and_restored(cluster, node) == before
