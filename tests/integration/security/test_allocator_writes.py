# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the allocator may write to ServiceGroups, Nodes and its Lease."""

from __future__ import annotations

import pytest

from purelb.core import names
from purelb.core.api.nodes import node_info_of
from purelb.core.election.draining import PreemptEvent, preempt
from tests.support.lab.accounts import objects_applied
from tests.support.lab.dry_runs import GROUPS, LEASES, NAMESPACE, TAINT, assert_refused, lease_named

pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]


class TestServiceGroup:
    """The allocator and ServiceGroups."""

    def test_write_of_the_status_passes(self, allocator):
        status = {"announce": "Remote", "allocatedIPv4": 1, "allocatedIPv6": 0}
        after = allocator.patch(f"{GROUPS}/pool/status", {"status": status})
        assert after["status"] == status

    @pytest.mark.parametrize(
        ("patch", "words"),
        [
            ({"spec": {"remote": {"multiPool": True}}}, "this part of a ServiceGroup: remote"),
            ({"metadata": {"labels": {"a": "b"}}}, "labels"),
            ({"metadata": {"annotations": {"a.b/c": "1"}}}, "annotation of a ServiceGroup: a.b/c"),
        ],
        ids=["spec", "label", "annotation"],
    )
    def test_other_changes_are_refused(self, allocator, patch, words):
        assert_refused(words, "allocator-groups", allocator, "PATCH", f"{GROUPS}/pool", patch)


class TestNode:
    """The allocator and Nodes; dry runs leave the node unchanged."""

    @pytest.fixture
    def node(self, lab):
        """A Node with a taint of another program."""
        path = "/api/v1/nodes/n3"
        own = {"key": "example.com/theirs", "effect": "PreferNoSchedule", "value": "x"}
        before = lab.api.get(path)["spec"].get("taints") or []
        lab.api.merge_patch(path, {"spec": {"taints": [*before, own]}})
        yield path
        lab.api.merge_patch(path, {"spec": {"taints": before}})

    def test_taint_of_a_leaving_node_passes(self, lab, allocator, node):
        known = node_info_of(lab.api.get(node))
        decision = preempt(
            known,
            [PreemptEvent("n3", "an-event", node_uid=known.uid)],
            evicted=frozenset(),
            limit=1,
        )
        after = allocator.patch(node, decision.patch)
        assert TAINT in after["spec"]["taints"]
        assert len(after["spec"]["taints"]) == len(known.taints) + 1

    @pytest.mark.parametrize(
        ("patch", "words"),
        [
            ({"metadata": {"labels": {"a": "b"}}}, "this part of a Node: labels"),
            ({"metadata": {"annotations": {"a.b/c": "1"}}}, "annotation of a Node: a.b/c"),
            ({"spec": {"unschedulable": True}}, "this part of a Node: unschedulable"),
            ({"spec": {"taints": None}}, "may not change or remove a taint"),
            ({"spec": {"taints": [TAINT]}}, "may not change or remove a taint"),
        ],
        ids=["label", "annotation", "cordon", "taints removed", "taint replaced"],
    )
    def test_other_changes_are_refused(self, allocator, node, patch, words):
        assert_refused(words, "allocator-nodes", allocator, "PATCH", node, patch)

    @pytest.mark.parametrize(
        "change",
        [{"key": "a.b/c"}, {"effect": "NoExecute"}, {"value": "other"}],
        ids=["key", "effect", "value"],
    )
    def test_other_taints_are_refused(self, lab, allocator, node, change):
        taints = lab.api.get(node)["spec"]["taints"]
        patch = {"spec": {"taints": [*taints, {**TAINT, **change}]}}
        words = "may add no taint to a Node but cloudprovider.azure.microsoft.com/draining"
        assert_refused(words, "allocator-nodes", allocator, "PATCH", node, patch)

    def test_longer_mark_than_an_event_has_is_refused(self, allocator, node):
        patch = {"metadata": {"annotations": {names.PREEMPTED_ANNOTATION: "x" * 4097}}}
        words = "allocator may write annotations of 4096 characters"
        assert_refused(words, "allocator-nodes", allocator, "PATCH", node, patch)

    def test_change_of_the_status_is_refused(self, allocator, node):
        patch = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}
        words = "allocator may not change the status of a Node"
        assert_refused(words, "allocator-nodes", allocator, "PATCH", f"{node}/status", patch)


class TestLeaseOfTheAllocator:
    """The allocator and Leases."""

    def test_own_lease_may_be_created_renewed_and_deleted(self, lab, allocator):
        body = lease_named("purelb-allocator")
        allocator.send("POST", LEASES, body)
        with objects_applied(lab, [body]):
            allocator.send("PUT", f"{LEASES}/purelb-allocator", body)
            allocator.send("DELETE", f"{LEASES}/purelb-allocator")

    def test_lock_for_ever_is_refused(self, allocator):
        body = lease_named("purelb-allocator")
        body["spec"]["leaseDurationSeconds"] = 2_147_483_647
        words = "may last 60 seconds at most"
        assert_refused(words, "allocator-leases", allocator, "POST", LEASES, body)

    @pytest.mark.parametrize(
        ("method", "name"), [("POST", "purelb-node-n3"), ("DELETE", "purelb-node-n1")]
    )
    def test_lease_of_another_name_is_refused(self, allocator, method, name):
        path = LEASES if method == "POST" else f"{LEASES}/{name}"
        body = lease_named(name) if method == "POST" else None
        words = f"may write no Lease but {NAMESPACE}/purelb-allocator"
        assert_refused(words, "allocator-leases", allocator, method, path, body)

    def test_lease_in_another_namespace_is_refused(self, allocator):
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        body = lease_named("purelb-allocator", "default")
        assert_refused("may write no Lease", "allocator-leases", allocator, "POST", path, body)
