# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json

import pytest

from purelb.module.errors import Request, refusal, unreachable

LEASES = Request("list", "coordination.k8s.io", "leases", "purelb-system")
HOST = "https://api:6443"


def status(message: str) -> bytes:
    return json.dumps({"kind": "Status", "message": message}).encode()


def test_a_missing_permission_names_the_rule_to_add():
    message = 'leases.coordination.k8s.io is forbidden: User "ci" cannot list resource "leases"'
    text = str(refusal(LEASES, host=HOST, status=403, body=status(message)))
    assert "list leases.coordination.k8s.io in namespace purelb-system" in text
    rule = '{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]}'
    assert rule in text
    assert "Role in namespace purelb-system" in text
    assert 'User "ci"' in text


def test_a_missing_cluster_wide_permission_names_a_cluster_role():
    message = 'services is forbidden: User "ci" cannot list resource "services"'
    error = refusal(Request("list", "", "services"), host=HOST, status=403, body=status(message))
    assert '{"apiGroups": [""], "resources": ["services"]' in str(error)
    assert "ClusterRole of this user" in str(error)


@pytest.mark.parametrize(
    "message",
    [
        'users "jane" is forbidden: User "ci" cannot impersonate resource "users" in API group ""',
        'forbidden: User "ci" cannot impersonate-on:user-info:get path "/api/v1"',
    ],
    ids=["before 1.36", "constrained"],
)
def test_a_missing_right_to_act_as_another_user_is_no_missing_rule(message: str):
    text = str(refusal(LEASES, host=HOST, status=403, body=status(message)))
    assert text.startswith("not allowed to act as another user for list leases")
    assert 'User "ci" cannot impersonate' in text
    assert "add the rule" not in text


def test_a_refusal_by_a_policy_is_no_missing_permission():
    message = 'pods "a" is forbidden: violates PodSecurity "restricted:latest"'
    error = refusal(Request("patch", "", "pods"), host=HOST, status=403, body=status(message))
    assert "add the rule" not in str(error)
    assert "violates PodSecurity" in str(error)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        pytest.param(401, "does not accept the credentials", id="unauthorized"),
        pytest.param(409, "set force_conflicts", id="conflict"),
        pytest.param(422, "cannot list leases.coordination.k8s.io", id="invalid"),
        pytest.param(429, "try again later", id="busy"),
        pytest.param(503, "try again later", id="down"),
    ],
)
def test_every_error_has_a_remediation(code: int, words: str):
    error = refusal(LEASES, host=HOST, status=code, body=status("because"))
    assert words in str(error)
    assert error.status == code
    assert "\n" not in str(error)


def test_a_schema_mismatch_does_not_suggest_a_retry():
    message = 'failed to create typed patch object: .spec.interfaces: duplicate entries for key "a"'
    error = refusal(LEASES, host=HOST, status=500, body=status(message))
    assert "duplicate entries" in str(error)
    assert "try again" not in str(error)


def test_a_body_that_is_no_status_is_shown_on_one_line():
    error = refusal(LEASES, host=HOST, status=502, body=b"<html>\n<h1>Bad Gateway</h1>\n")
    assert "<html> <h1>Bad Gateway</h1>" in str(error)


def test_an_unreachable_server_is_named():
    assert "cannot reach the API server at https://api:6443" in str(
        unreachable(HOST, cause="connection refused")
    )


def test_an_untrusted_certificate_has_its_own_text():
    error = unreachable(HOST, cause="[SSL: CERTIFICATE_VERIFY_FAILED] self-signed")
    assert "is not trusted: give ca_cert" in str(error)
