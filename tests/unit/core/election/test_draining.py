# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.api.nodes import node_info_of, preempt_event_of
from purelb.core.election.draining import (
    NodeInfo,
    NodeMarks,
    PreemptEvent,
    PreemptReason,
    Taint,
    draining_taint,
    marked_nodes,
    marks_of,
)
from purelb.core.election.draining import preempt as decide
from purelb.core.errors import SettingError
from purelb.core.model import Lease
from purelb.core.names import DRAINING_TAINTS, EXCLUDE_LABEL
from purelb.core.settings import EvictionLimit

CREATED = 1_767_225_600.0  # 2026-01-01T00:00:00Z
SPOT = "cloudprovider.azure.microsoft.com/draining"
NODE = NodeInfo("n1", uid="node-uid", version="7", created=CREATED)
EVENT = PreemptEvent("n1", "event-uid", time=CREATED + 60, node_uid="n1")
OURS = {"key": SPOT, "value": "spot-eviction", "effect": "NoSchedule"}
MARKED = {
    "metadata": {
        "resourceVersion": "7",
        "annotations": {"purelb.io/preempted-by": "event-uid@1"},
    }
}


def preempt(node, events, evicted=(), limit=1):
    return decide(node, events, evicted=frozenset(evicted), limit=limit)


class TestDrainingTaints:
    @pytest.mark.parametrize("key", DRAINING_TAINTS)
    @pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
    def test_who_has_one_of_the_taints_with_any_effect_and_value(self, key, effect):
        assert draining_taint([Taint("other"), Taint(key, "any", effect)]) == key

    def test_the_reason_does_not_depend_on_the_order_of_the_taints(self):
        orders = itertools.permutations(map(Taint, DRAINING_TAINTS))
        assert {draining_taint(order) for order in orders} == {DRAINING_TAINTS[0]}

    @pytest.mark.parametrize(
        "taints", [(), (Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),)]
    )
    def test_no_other_is_and_a_cordoned_node_neither(self, taints):
        assert draining_taint(taints) == ""

    TAINTED = replace(NODE, taints=(Taint("other"), Taint(SPOT)))
    LABELLED = replace(NODE, name="n2", labels={EXCLUDE_LABEL: "false"})

    def test_they_are_listed_by_name_with_uid_and_taint(self):
        found = marked_nodes([self.TAINTED, self.LABELLED, replace(NODE, name="n3")])
        assert found == {
            "n1": NodeMarks("node-uid", SPOT),
            "n2": NodeMarks("node-uid", is_excluded=True),
        }

    def test_without_draining_only_the_label_counts(self):
        found = marked_nodes([self.TAINTED, self.LABELLED], drains=False)
        assert set(found) == {"n2"}

    def test_a_lease_of_another_node_of_that_name_is_not_drained(self):
        marked = {node: NodeMarks(f"{node}-uid", f"taint of {node}") for node in "abc"}
        leases = (
            Lease("a", node_uid="old-uid"),
            Lease("b", node_uid="b-uid"),
            Lease("c"),
            Lease("d"),
        )
        found = {lease.node: marks_of(lease, marked).taint for lease in leases}
        assert found == {"a": "", "b": "taint of b", "c": "taint of c", "d": ""}


class TestEvictionEvent:
    def test_taints_the_node_and_marks_the_occurrence_on_this_version_only(self):
        decision = preempt(NODE, [EVENT])
        assert (decision.reason, decision.mark) == (PreemptReason.SPOT_EVICTION, "event-uid@1")
        assert decision.patch == {**MARKED, "spec": {"taints": [OURS]}}

    def test_leaves_the_other_taints_as_they_are(self):
        others = [
            {"key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
            {"key": "b", "value": "c", "effect": "NoSchedule"},
        ]
        body = {"metadata": {"name": "n1"}, "spec": {"taints": others}}
        decision = preempt(node_info_of(body), [EVENT])
        assert decision.patch["spec"]["taints"] == [*others, OURS]

    def test_is_acted_upon_once_also_after_the_taint_was_taken_away(self):
        decision = preempt(replace(NODE, preempted_by="event-uid@1"), [EVENT])
        assert (decision.reason, decision.patch) == (PreemptReason.ALREADY_ACTED_UPON, None)

    @pytest.mark.parametrize(
        "again",
        [replace(EVENT, count=2), replace(EVENT, uid="next", time=CREATED + 90)],
        ids=["repeated event", "new event"],
    )
    def test_acts_again_when_it_is_announced_again(self, again):
        decision = preempt(replace(NODE, preempted_by="event-uid@1"), [again])
        assert decision.patch["spec"] == {"taints": [OURS]}
        assert decision.patch["metadata"]["annotations"]["purelb.io/preempted-by"] == again.mark

    @pytest.mark.parametrize("taint", [Taint(SPOT), Taint(SPOT, "by-hand", "NoExecute")])
    def test_only_leaves_its_mark_where_the_taint_is_there_already(self, taint):
        decision = preempt(replace(NODE, taints=(taint,)), [EVENT])
        assert (decision.reason, decision.patch) == (PreemptReason.ALREADY_DRAINING, MARKED)

    def test_adds_its_taint_next_to_another_one_that_drains(self):
        other = Taint("node.kubernetes.io/out-of-service", "", "NoExecute")
        decision = preempt(replace(NODE, taints=(other,)), [EVENT])
        assert decision.reason is PreemptReason.SPOT_EVICTION

    def test_counts_by_its_latest_occurrence(self):
        later = replace(EVENT, uid="later", time=EVENT.time + 1)
        events = [EVENT, later, replace(EVENT, uid="timeless", time=None)]
        marks = {preempt(NODE, order).mark for order in itertools.permutations(events)}
        assert marks == {"later@1"}

    def test_of_two_at_the_same_time_always_the_same_one_counts(self):
        events = [EVENT, replace(EVENT, count=2), replace(EVENT, uid="a", count=2)]
        marks = {preempt(NODE, order).mark for order in itertools.permutations(events)}
        assert marks == {"event-uid@2"}


class TestLimit:
    @pytest.mark.parametrize(
        ("limit", "nodes"),
        [
            (EvictionLimit(), {1: 1, 2: 1, 3: 1, 5: 1, 6: 2, 9: 3, 50: 17}),
            (EvictionLimit(100), {1: 1, 50: 50}),
            (EvictionLimit(2, is_percent=False), {1: 2, 50: 2}),
        ],
        ids=str,
    )
    def test_part_of_the_nodes_is_rounded_down_and_at_least_one(self, limit, nodes):
        assert {count: limit.nodes(count) for count in nodes} == nodes

    @pytest.mark.parametrize(
        ("text", "limit"),
        [
            (None, EvictionLimit()),
            ("", EvictionLimit()),
            (" 50% ", EvictionLimit(50)),
            ("3", EvictionLimit(3, is_percent=False)),
        ],
    )
    def test_is_read_from_the_settings(self, text, limit):
        settings = {} if text is None else {"PURELB_EVICTION_LIMIT": text}
        assert EvictionLimit.parse(settings) == limit

    @pytest.mark.parametrize("text", ["0", "0%", "-1", "a third", "1.5", "1 %", "9" * 10])
    def test_what_is_no_limit_is_refused_with_an_example(self, text):
        with pytest.raises(SettingError, match=r"PURELB_EVICTION_LIMIT=.*; write for example 34%"):
            EvictionLimit.parse({"PURELB_EVICTION_LIMIT": text})

    def test_node_over_the_limit_is_not_tainted_and_the_occurrence_not_marked(self):
        decision = preempt(NODE, [EVENT], evicted=["n2"])
        assert (decision.reason, decision.patch) == (PreemptReason.TOO_MANY_EVICTED, None)
        assert preempt(NODE, [EVENT], evicted=["n2"], limit=2).patch

    def test_its_own_taint_does_not_count(self):
        assert preempt(NODE, [EVENT], evicted=["n1"]).patch

    def test_taint_that_is_there_is_marked_regardless(self):
        node = replace(NODE, taints=(Taint(SPOT),))
        decision = preempt(node, [EVENT], evicted=["n1", "n2"])
        assert decision.patch == MARKED


class TestEventNode:
    @pytest.mark.parametrize("uid", ["", "n1", "node-uid"], ids=["none", "name", "UID"])
    def test_it_is_this_one(self, uid):
        assert preempt(NODE, [replace(EVENT, node_uid=uid)]).patch

    @pytest.mark.parametrize(
        "event",
        [
            replace(EVENT, node="n2", node_uid="n2"),
            replace(EVENT, node_uid="another-uid"),
            replace(EVENT, time=CREATED - 1),
        ],
        ids=["another name", "another UID", "older than the Node"],
    )
    def test_it_is_another_one(self, event):
        decision = preempt(NODE, [event])
        assert decision.reason is PreemptReason.NO_EVENT
        assert (decision.mark, decision.patch) == ("", None)

    def test_one_about_another_node_hides_none_about_this_one(self):
        other = replace(EVENT, uid="other", node_uid="another-uid", time=EVENT.time + 30)
        assert preempt(NODE, [EVENT, other]).mark == EVENT.mark

    @pytest.mark.parametrize(
        ("node", "event"),
        [
            (NODE, replace(EVENT, time=CREATED)),
            (NODE, replace(EVENT, time=None)),
            (replace(NODE, created=None), EVENT),
        ],
        ids=["same second", "event without a time", "Node without a time"],
    )
    def test_where_times_do_not_speak_against_it_it_is_this_one(self, node, event):
        assert preempt(node, [event]).patch


class TestReading:
    def test_a_node_is_read(self):
        body = {
            "metadata": {
                "name": "n1",
                "uid": "node-uid",
                "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"zone": "a"},
                "annotations": {"purelb.io/preempted-by": "event-uid@1"},
            },
            "spec": {"taints": [OURS]},
            "status": {"addresses": [{"address": "172.28.1.11"}, {"address": "fd28::11"}]},
        }
        assert node_info_of(body) == NodeInfo(
            "n1",
            uid="node-uid",
            version="7",
            labels={"zone": "a"},
            addresses=frozenset({ip_address("172.28.1.11"), ip_address("fd28::11")}),
            taints=(Taint(SPOT, "spot-eviction", "NoSchedule"),),
            created=CREATED,
            preempted_by="event-uid@1",
        )

    def test_a_bare_node_is_read(self):
        assert node_info_of({"metadata": {"name": "n1"}}) == NodeInfo("n1")

    def test_an_event_of_the_old_kind_is_read(self):
        body = {
            "metadata": {"uid": "event-uid", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"},
            "count": 3,
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:01:00Z",
            "eventTime": None,
        }
        assert preempt_event_of(body) == replace(EVENT, count=3)

    def test_an_event_of_the_new_kind_is_read(self):
        body = {
            "metadata": {"uid": "event-uid"},
            "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"},
        }
        assert preempt_event_of(body) == replace(EVENT, count=2)

    def test_a_reporters_clock_that_is_behind_makes_no_event_older(self):
        body = {
            "metadata": {"uid": "event-uid", "creationTimestamp": "2026-01-01T00:01:00Z"},
            "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"},
            "lastTimestamp": "2025-12-31T00:00:00Z",
        }
        assert preempt_event_of(body) == EVENT

    def test_a_bare_event_is_read(self):
        assert preempt_event_of({"metadata": {}}) == PreemptEvent("", "")
