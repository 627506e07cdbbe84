# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
import yaml

from purelb.apply import policies
from purelb.core import names
from purelb.module.errors import ApiError, ClusterError
from tests.support import ROOT

NAMESPACE = "purelb-system"
LEASES = f"lbnodeagent-leases.{NAMESPACE}.purelb.io"
SERVICES = f"allocator-services.{NAMESPACE}.purelb.io"
ANNOTATIONS = f"reserved-annotations.{NAMESPACE}.purelb.io"
EVENTS = f"eviction-events.{NAMESPACE}.purelb.io"
ALL = {
    f"{program}-{resource}.{NAMESPACE}.purelb.io"
    for program, resource in policies.POLICIES + policies.DRAINING_POLICIES
}


class FakeApiServer:
    """Refuses dry runs by the policies in force, and by `others` (text by policy, and status).

    `is_listed`: a policy names the module's own user as one that may write.
    """

    def __init__(self, in_force=ALL, others=None, nodes=("n1",), status=403, *, is_listed=False):
        self.in_force = set(in_force)
        self.others = others or {}
        self.status = status
        self.nodes = nodes
        self.is_listed = is_listed
        self.requests = 0

    def impersonate(self, user):
        return FakeAccount(self, user.rpartition(":")[2])

    def user(self):
        return "me"

    def items(self, _kind):
        return [{"metadata": {"name": name}} for name in self.nodes]

    def get(self, _kind, *, namespace, name):
        assert namespace is None
        assert name in (ANNOTATIONS, EVENTS)
        listed = '["me"]' if self.is_listed else '["another"]'
        condition = {"expression": f"!(request.userInfo.username in {listed})"}
        return {"spec": {"matchConditions": [condition]}}

    def patch(self, kind, *, namespace, name, patch, dry_run):
        assert dry_run
        assert (kind.plural, namespace, name) == ("services", "default", "kubernetes")
        assert patch == policies.MARK
        return patch if self.is_listed else self.admit(ANNOTATIONS, patch)

    def create(self, kind, body, *, dry_run):
        assert dry_run
        assert (kind.plural, body["metadata"]["namespace"]) == ("events", "default")
        assert (body["reason"], body["involvedObject"]["kind"]) == ("PreemptScheduled", "Node")
        return body if self.is_listed else self.admit(EVENTS, body)

    def admit(self, policy, body):
        self.requests += 1
        if policy in self.others:
            raise ApiError(self.others[policy], status=self.status)
        if policy in self.in_force:
            raise ApiError(f"ValidatingAdmissionPolicy '{policy}' denied request", status=403)
        return body


class FakeAccount:
    """The API server as one of the programs uses it."""

    def __init__(self, server, program):
        self.server, self.program = server, program

    def create(self, kind, body, *, dry_run):
        assert dry_run
        assert body["metadata"]["namespace"] == NAMESPACE
        return self._admit(kind, body)

    def patch(self, kind, *, namespace, name, patch, dry_run):
        assert dry_run
        assert (namespace, name) in [("default", "kubernetes"), (None, "n1")]
        return self._admit(kind, patch)

    def _admit(self, kind, body):
        policy = f"{self.program}-{kind.plural}.{NAMESPACE}.purelb.io"
        return self.server.admit(policy, body)


@pytest.fixture
def sleeps(monkeypatch):
    """Virtual time: the pauses, in seconds."""
    pauses = []
    monkeypatch.setattr(policies.time, "monotonic", lambda: sum(pauses))
    monkeypatch.setattr(policies.time, "sleep", pauses.append)
    return pauses


def info(server, *, check_mode=False, **params):
    defaults = {"namespace": NAMESPACE, "draining": True, "wait": True, "wait_timeout": 3}
    return policies.policies_info(server, {**defaults, **params}, check_mode)


def test_all_enforced_returns_at_once(sleeps):
    server = FakeApiServer()
    result = info(server)
    assert result["enforced"]
    assert {state["name"] for state in result["policies"]} == ALL
    assert not result["warnings"]
    assert not result["changed"]
    assert not sleeps


def test_policy_that_takes_effect_later_is_waited_for(monkeypatch, sleeps):
    server = FakeApiServer(ALL - {LEASES})

    def sleep(seconds):
        sleeps.append(seconds)
        server.in_force.add(LEASES)

    monkeypatch.setattr(policies.time, "sleep", sleep)
    assert info(server)["enforced"]
    assert len(sleeps) == 1
    assert server.requests == len(ALL) + 1  # only the pending one is sent again


def test_policy_that_never_takes_effect_is_an_error_that_names_it(sleeps):
    with pytest.raises(ClusterError, match=rf"does not enforce {LEASES} after 3 s"):
        info(FakeApiServer(ALL - {LEASES}))
    assert sum(sleeps) == pytest.approx(3, abs=policies.POLL_INTERVAL)


@pytest.mark.parametrize("how", [{"wait": False}, {"check_mode": True}])
def test_without_wait_the_present_state_is_returned(sleeps, how):
    result = info(FakeApiServer(ALL - {LEASES}), **how)
    assert not result["enforced"]
    states = {state["name"]: state["enforced"] for state in result["policies"]}
    assert states == dict.fromkeys(ALL, True) | {LEASES: False}
    assert not sleeps


def test_missing_right_to_impersonate_is_a_warning_at_once(sleeps):
    text = 'users "x" is forbidden: User "me" cannot impersonate resource "serviceaccounts"'
    result = info(FakeApiServer(others=dict.fromkeys(ALL, text)))
    assert not result["enforced"]
    assert len(result["warnings"]) == len(ALL)
    assert "the verb impersonate on serviceaccounts" in result["warnings"][0]
    assert not sleeps


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f'leases is forbidden: User "system:serviceaccount:{NAMESPACE}:lbnodeagent" cannot',
            f"system:serviceaccount:{NAMESPACE}:lbnodeagent has no permission for the write",
        ),
        ("a webhook said no", "a webhook said no"),
    ],
)
def test_refusal_by_another_program_is_a_warning_after_the_timeout(sleeps, text, reason):
    result = info(FakeApiServer(others={LEASES: text}))
    assert result["warnings"] == [f"cannot observe whether {LEASES} is enforced: {reason}"]
    assert sum(sleeps) == pytest.approx(3, abs=policies.POLL_INTERVAL)


def test_refusal_by_another_program_does_not_use_up_a_long_timeout(sleeps):
    others = {LEASES: "ValidatingAdmissionPolicy 'labels.example.com' denied request"}
    result = info(FakeApiServer(others=others), wait_timeout=180)
    assert len(result["warnings"]) == 1
    assert sum(sleeps) == pytest.approx(policies.FORBIDDEN_TIMEOUT, abs=policies.POLL_INTERVAL)


def test_busy_api_server_is_asked_until_the_timeout(sleeps):
    result = info(FakeApiServer(others={LEASES: "try again"}, status=503), wait_timeout=180)
    assert len(result["warnings"]) == 1
    assert sum(sleeps) == pytest.approx(180, abs=policies.POLL_INTERVAL)


def test_policy_not_enforced_is_an_error_next_to_an_unobservable_one(sleeps):
    server = FakeApiServer(ALL - {SERVICES}, others={LEASES: "denied by labels.example.com"})
    with pytest.raises(ClusterError, match=rf"does not enforce {SERVICES} after 180 s"):
        info(server, wait_timeout=180)


def test_without_draining_its_policies_are_not_checked(sleeps):
    result = info(FakeApiServer(nodes=()), draining=False)
    assert result["enforced"]
    names_of_draining = {f"allocator-nodes.{NAMESPACE}.purelb.io", EVENTS}
    assert {state["name"] for state in result["policies"]} == ALL - names_of_draining


def test_cluster_without_nodes_is_a_warning(sleeps):
    result = info(FakeApiServer(nodes=()))
    (warning,) = result["warnings"]
    assert f"allocator-nodes.{NAMESPACE}.purelb.io is enforced: the cluster has no Node" in warning


def test_user_who_may_write_what_others_may_not_cannot_observe_that(sleeps):
    result = info(FakeApiServer(ALL - {ANNOTATIONS, EVENTS}, is_listed=True))
    assert not result["enforced"]
    assert result["warnings"] == [
        f"cannot observe whether {policy} is enforced: me may write what it refuses to others"
        for policy in (ANNOTATIONS, EVENTS)
    ]
    assert not sleeps


def test_user_without_a_right_to_services_does_not_wait_for_it(sleeps):
    text = 'services "kubernetes" is forbidden: User "me" cannot patch resource "services"'
    result = info(FakeApiServer(others={ANNOTATIONS: text}))
    assert [w.rpartition(": ")[2] for w in result["warnings"]] == [
        "me has no permission for the write"
    ]
    assert not sleeps


def test_reserved_annotations_are_those_of_the_core():
    variables = yaml.safe_load((ROOT / "roles/purelb_install/vars/main.yml").read_text())
    assert set(variables["purelb_install_reserved_annotations"]) == {
        names.ALLOCATED_BY_ANNOTATION,
        names.ALLOCATED_FROM_ANNOTATION,
        names.POOL_TYPE_ANNOTATION,
        names.SKIP_DAD_ANNOTATION,
        names.MIGRATION_ANNOTATION,
        *names.ANNOUNCING_ANNOTATIONS.values(),
    }
