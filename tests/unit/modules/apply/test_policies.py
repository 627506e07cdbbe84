# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from purelb.apply import policies
from purelb.module.errors import ApiError, ClusterError

NAMESPACE = "purelb-system"
LEASES = f"lbnodeagent-leases.{NAMESPACE}.purelb.io"
SERVICES = f"allocator-services.{NAMESPACE}.purelb.io"
ALL = {
    f"{program}-{resource}.{NAMESPACE}.purelb.io"
    for program, resource in policies.POLICIES + policies.DRAINING_POLICIES
}


class FakeApiServer:
    """Refuses dry runs by the policies in force, and by `others` (text by policy, and status)."""

    def __init__(self, in_force=ALL, others=None, nodes=("n1",), status=403):
        self.in_force = set(in_force)
        self.others = others or {}
        self.status = status
        self.nodes = nodes
        self.user = ""
        self.requests = 0

    def impersonate(self, user):
        self.user = user
        return self

    def items(self, _kind):
        return [{"metadata": {"name": name}} for name in self.nodes]

    def create(self, kind, body, *, dry_run):
        assert dry_run
        assert body["metadata"]["namespace"] == NAMESPACE
        return self._admit(kind, body)

    def patch(self, kind, *, namespace, name, patch, dry_run):
        assert dry_run
        assert (namespace, name) in [("default", "kubernetes"), (None, "n1")]
        return self._admit(kind, patch)

    def _admit(self, kind, body):
        self.requests += 1
        program = self.user.rpartition(":")[2]
        policy = f"{program}-{kind.plural}.{NAMESPACE}.purelb.io"
        if policy in self.others:
            raise ApiError(self.others[policy], status=self.status)
        if policy in self.in_force:
            raise ApiError(f"ValidatingAdmissionPolicy '{policy}' denied request", status=403)
        return body


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
def test_refusal_by_somebody_else_is_a_warning_after_the_timeout(sleeps, text, reason):
    result = info(FakeApiServer(others={LEASES: text}))
    assert result["warnings"] == [f"cannot observe whether {LEASES} is enforced: {reason}"]
    assert sum(sleeps) == pytest.approx(3, abs=policies.POLL_INTERVAL)


def test_refusal_by_somebody_else_does_not_use_up_a_long_timeout(sleeps):
    others = {LEASES: "ValidatingAdmissionPolicy 'labels.example.com' denied request"}
    result = info(FakeApiServer(others=others), wait_timeout=180)
    assert len(result["warnings"]) == 1
    assert sum(sleeps) == pytest.approx(policies.FORBIDDEN_TIMEOUT, abs=policies.POLL_INTERVAL)


def test_busy_api_server_is_asked_until_the_timeout(sleeps):
    result = info(FakeApiServer(others={LEASES: "try again"}, status=503), wait_timeout=180)
    assert len(result["warnings"]) == 1
    assert sum(sleeps) == pytest.approx(180, abs=policies.POLL_INTERVAL)


def test_policy_not_enforced_is_an_error_beside_an_unobservable_one(sleeps):
    server = FakeApiServer(ALL - {SERVICES}, others={LEASES: "denied by labels.example.com"})
    with pytest.raises(ClusterError, match=rf"does not enforce {SERVICES} after 180 s"):
        info(server, wait_timeout=180)


def test_without_draining_the_policy_on_nodes_is_not_checked(sleeps):
    result = info(FakeApiServer(nodes=()), draining=False)
    assert result["enforced"]
    assert f"allocator-nodes.{NAMESPACE}.purelb.io" not in {s["name"] for s in result["policies"]}


def test_cluster_without_nodes_is_a_warning(sleeps):
    result = info(FakeApiServer(nodes=()))
    (warning,) = result["warnings"]
    assert f"allocator-nodes.{NAMESPACE}.purelb.io is enforced: the cluster has no Node" in warning
