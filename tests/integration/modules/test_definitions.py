# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The module purelb_crd: definitions are created and removed, stored objects are migrated."""

from __future__ import annotations

from contextlib import suppress

import pytest

from labkit.api import ApiError
from tests.support.lab.cluster_queries import eventually

pytestmark = pytest.mark.timeout(120)
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def version(name, *, stored, served=True):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "name": name,
        "served": served,
        "storage": stored,
        "schema": {"openAPIV3Schema": schema},
    }


def definition(*versions):
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com", "labels": {"made-by": "test"}},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": list(versions),
        },
    }


OLD = definition(version("v1", stored=True))
BOTH = definition(version("v1", stored=False), version("v2", stored=True))
NEW = definition(version("v2", stored=True))


@pytest.fixture
def things(cluster):
    """Creates objects of the test's definition; deletes the definition after the test."""

    def make(*names):
        for name in names:
            meta = {"name": name, "namespace": "default"}
            cluster.api.create({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta})

    yield make
    cluster.api.delete(f"{CRDS}/things.example.com")
    cluster.api.wait(f"{CRDS}/things.example.com", lambda seen: seen is None, what="things gone")


def resource_versions(lab):
    def read():
        # After a change of a definition its objects are unavailable for a moment.
        with suppress(ApiError):
            return lab.api.items("/apis/example.com/v2/namespaces/default/things")

    things = eventually(read, "things after the change")
    return {thing["metadata"]["name"]: thing["metadata"]["resourceVersion"] for thing in things}


def test_stored_objects_are_migrated_to_the_version_of_an_upgrade(cluster, play, things):
    old = {"definitions": [OLD]}
    assert play("purelb_crd", {**old, "check": True}, old, old).changed == [True, True, False]
    things("a", "b")
    late = {"definitions": [BOTH], "migrate": False}
    assert play("purelb_crd", late, late).changed == [True, False]
    before = resource_versions(cluster)
    both = {"definitions": [BOTH]}
    done = play("purelb_crd", {**both, "check": True}, both, both)
    assert done.changed == [True, True, False]
    moved = [{"name": "things.example.com", "objects": 2}]
    assert [result["migrated"] for result in done.results] == [moved, moved, []]
    assert done.results[1]["diff"][0]["before"] == {"storedVersions": ["v1", "v2"]}
    # Rewritten, which the API server does only for objects stored in another version.
    after = resource_versions(cluster)
    assert not set(before.values()) & set(after.values())
    assert cluster.api.get(f"{CRDS}/things.example.com")["status"]["storedVersions"] == ["v2"]
    new = {"definitions": [NEW]}
    assert play("purelb_crd", {**new, "check": True}, new, new).changed == [True, True, False]
    assert resource_versions(cluster) == after


@pytest.mark.thorough
def test_objects_are_migrated_before_an_upgrade_removes_their_version(cluster, play, things):
    play("purelb_crd", {"definitions": [OLD]})
    things("a")
    play("purelb_crd", {"definitions": [BOTH], "migrate": False})
    done = play("purelb_crd", {"definitions": [NEW]})
    assert done.results[0]["migrated"] == [{"name": "things.example.com", "objects": 1}]


@pytest.mark.thorough
def test_definitions_with_objects_are_kept_unless_objects_may_be_deleted(cluster, play, things):
    play("purelb_crd", {"definitions": [OLD]})
    things("a", "b")
    gone = {"definitions": [OLD], "state": "absent"}
    foreign = {**OLD, "metadata": {**OLD["metadata"], "labels": {"made-by": "another-tool"}}}
    done = play(
        "purelb_crd",
        gone,
        {**gone, "check": True},
        {**gone, "definitions": [foreign]},
        {**gone, "remove_objects": True},
        gone,
    )
    assert done.changed == [False, False, False, True, False]
    for message in done.messages[:2]:
        assert "2 Thing (Thing default/a, Thing default/b)" in message
        assert "set remove_objects" in message
    assert "things.example.com stays: it has other labels" in done.output


@pytest.mark.thorough
def test_definitions_of_the_collection_are_the_default(cluster, play):
    done = play("purelb_crd", {}, {"state": "absent", "check": True})
    assert not done.changed[0]
    assert {result["name"] for result in done.results[0]["results"]} == {
        "servicegroups.purelb.io",
        "lbnodeagents.purelb.io",
    }
    assert "ServiceGroup purelb-system/default" in done.messages[1]
