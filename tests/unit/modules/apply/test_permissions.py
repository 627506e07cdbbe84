# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.purelb.purelb.plugins.filter.permissions import FilterModule
from purelb.apply.permissions import permissions

BOTH = pytest.mark.parametrize("draining", [True, False])


def named(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == kind}


def allowed(role: dict[str, Any], resource: str) -> set[str]:
    return {
        verb for rule in role["rules"] if resource in rule["resources"] for verb in rule["verbs"]
    }


@BOTH
def test_no_rule_contains_a_wildcard(draining: Any):
    for obj in permissions("lab", draining=draining):
        for rule in obj.get("rules", ()):
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}


@BOTH
def test_each_binding_refers_to_an_existing_role_and_account(draining: Any):
    objects = permissions("lab", draining=draining)
    accounts = named(objects, "ServiceAccount")
    for kind in ("Role", "ClusterRole"):
        roles, bindings = named(objects, kind), named(objects, f"{kind}Binding")
        assert roles.keys() == bindings.keys()
        for binding in bindings.values():
            assert binding["roleRef"]["name"] in roles
            (subject,) = binding["subjects"]
            assert subject["name"] in accounts
            assert subject["namespace"] == "lab"


def test_two_installations_share_no_cluster_role():
    first, second = (
        named(permissions(namespace, draining=True), "ClusterRole").keys()
        for namespace in ("one", "other")
    )
    assert not first & second


def test_only_draining_lets_the_allocator_change_nodes():
    for draining in (True, False):
        watching = {"list", "watch"}
        objects = permissions("lab", draining=draining)
        role = named(objects, "ClusterRole")["purelb:lab:allocator"]
        assert allowed(role, "nodes") == watching | ({"patch"} if draining else set())
        assert allowed(role, "events") == {"create"}
        # Events about Nodes are in this namespace; others are tenants'.
        role = named(objects, "Role")["purelb:lab:allocator"]
        assert role["metadata"]["namespace"] == "default"
        assert allowed(role, "events") == (watching if draining else set())


@BOTH
def test_names_are_unique_in_each_namespace_also_in_default(draining: Any):
    objects = permissions("default", draining=draining)
    keys = [
        (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in objects
    ]
    assert len(set(keys)) == len(keys)


def test_the_filter_returns_the_same_objects():
    answer = FilterModule().filters()["permissions"]("lab", draining=False)
    assert answer == permissions("lab", draining=False)
