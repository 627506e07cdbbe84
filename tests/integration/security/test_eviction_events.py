# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Who may say that a node is about to be taken away; all requests but one are dry runs.

A tenant has the role `edit` in the namespace of these events, and may create and change events.
"""

from __future__ import annotations

import pytest

from labkit.api import ApiError
from tests.support.lab.accounts import client, objects_applied
from tests.support.lab.dry_runs import NAMESPACE, Account, assert_refused, wait_until_enforced

pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]
RBAC = "rbac.authorization.k8s.io"
POLICY = "eviction-events"
WORDS = "only a node itself and the reporters that purelb_install_eviction_reporters lists"
EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
REASON = "PreemptScheduled"
NODE = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
POD = {"apiVersion": "v1", "kind": "Pod", "name": "n1", "namespace": "default"}
# One that exists.
OLD = "an-old-event"


def event(reason=REASON, name="an-event", **changes):
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": NODE,
        "reason": reason,
        "type": "Warning",
        **changes,
    }


def new_event(reason=REASON):
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "a-new-event", "namespace": "default"},
        "regarding": NODE,
        "reason": reason,
        "action": reason,
        "type": "Warning",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/anyone",
        "reportingInstance": "x",
    }


@pytest.fixture(scope="module")
def tenant(lab, objects):
    meta = {"name": "event-writer", "namespace": NAMESPACE}
    in_default = {"name": "event-writer", "namespace": "default"}
    verbs = ["create", "patch", "update", "get"]
    rule = {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": verbs}
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": in_default,
        "rules": [rule],
    }

    def binding(name, kind, role):
        return {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {**in_default, "name": name},
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", **meta}],
        }

    things = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        role,
        binding("event-writer", "Role", "event-writer"),
        binding("event-editor", "ClusterRole", "edit"),
        event("Rebooted", name=OLD),
    ]
    with objects_applied(lab, things):
        account = Account(client(lab, NAMESPACE, "event-writer"))
        wait_until_enforced(POLICY, account, "POST", EVENTS, event())
        yield account


def assert_no_one_is_let_through(account):
    assert_refused(WORDS, POLICY, account, "POST", EVENTS, event())
    assert_refused(WORDS, POLICY, account, "POST", NEW_EVENTS, new_event())
    # An event that another one wrote, and has another reason.
    assert_refused(WORDS, POLICY, account, "PATCH", f"{EVENTS}/{OLD}", {"reason": REASON})


def test_a_tenant_cannot_announce_an_eviction(tenant):
    assert_no_one_is_let_through(tenant)


def test_neither_the_programs_nor_an_account_with_all_rights_can(lab, tenant, agent, allocator):
    for account in (agent, allocator, Account(client(lab, NAMESPACE, "default"))):
        assert_no_one_is_let_through(account)


def test_without_a_token_nothing_can_be_written(lab, tenant):
    no_one = Account(lab.api.with_identity(""))
    with pytest.raises(ApiError) as refusal:
        no_one.send("POST", EVENTS, event())
    assert refusal.value.status in (401, 403)


def test_a_node_announces_its_own_eviction_and_no_other(lab, tenant):
    own = Account(lab.api.with_identity("n1"))
    own.send("POST", EVENTS, event())
    own.send("POST", NEW_EVENTS, new_event())
    other = Account(lab.api.with_identity("n2"))
    assert_refused(WORDS, POLICY, other, "POST", EVENTS, event())


def test_a_listed_reporter_may_and_no_one_else_repeats_its_event(lab, tenant):
    reporter = Account(lab.api)
    reporter.send("POST", EVENTS, event())
    reporter.send("POST", NEW_EVENTS, new_event())
    # About a node that does not exist: so that no running allocator taints one.
    announced = event(name="announced", involvedObject={**NODE, "name": "nowhere"})
    with objects_applied(lab, [announced]):
        path = f"{EVENTS}/announced"
        reporter.patch(path, {"count": 2})
        assert_refused(WORDS, POLICY, tenant, "PATCH", path, {"count": 2})
        tenant.patch(path, {"reason": "Rebooted"})


@pytest.mark.parametrize(
    "passing",
    [
        event("Rebooted"),
        event(f"{REASON} "),
        event(involvedObject=POD),
        event(name="elsewhere", metadata={"name": "elsewhere", "namespace": "default"}, reason=""),
    ],
    ids=["another reason", "spelled otherwise", "about a Pod", "no reason"],
)
def test_other_events_are_not_affected(tenant, passing):
    tenant.send("POST", EVENTS, passing)
