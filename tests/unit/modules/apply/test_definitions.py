# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Definitions that come, change their stored version, and go only if nobody loses anything."""

from __future__ import annotations

from typing import Any

import pytest

from purelb.apply import definitions
from purelb.core.errors import ObjectError
from purelb.module.errors import ApiError, ClusterError

PLURAL = "customresourcedefinitions"
NAME = "servicegroups.purelb.io"
OURS = {"app.kubernetes.io/managed-by": "purelb.purelb"}


def definition(*versions: str, labels: Any = None) -> dict[str, Any]:
    """The last version is the stored one."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "labels": OURS if labels is None else labels},
        "spec": {
            "group": "purelb.io",
            "scope": "Namespaced",
            "names": {"kind": "ServiceGroup", "plural": "servicegroups"},
            # v1 is not served, as the cluster of these tests knows nothing of it.
            "versions": [
                {"name": one, "served": one == "v2", "storage": one == versions[-1]}
                for one in versions
            ],
        },
    }


def installed(cluster: Any, *versions: str, stored: Any = ("v2",), labels: Any = None) -> None:
    body = definition(*versions, labels=labels)
    body["metadata"]["resourceVersion"] = "7"
    established = {"type": "Established", "status": "True"}
    body["status"] = {"storedVersions": list(stored), "conditions": [established]}
    cluster.stored[PLURAL, None, NAME] = body


@pytest.fixture
def cluster(purelb_cluster: Any) -> Any:
    """A cluster that keeps the status of a definition when it is applied."""
    cluster = purelb_cluster
    apply = cluster.apply

    def keep(kind: Any, body: Any, *, dry_run: bool, force: bool) -> Any:
        before = cluster.get(kind, namespace=None, name=NAME) or {}
        established = {"conditions": [{"type": "Established", "status": "True"}]}
        stored = before.get("status", {}).get("storedVersions", [])
        storage = next(one["name"] for one in body["spec"]["versions"] if one["storage"])
        versions = stored if storage in stored else [*stored, storage]
        status = {**established, "storedVersions": versions}
        return apply(kind, {**body, "status": status}, dry_run=dry_run, force=force)

    cluster.apply = keep
    return cluster


def has_group(cluster: Any, name: str) -> None:
    cluster.stored["servicegroups", "lab", name] = {"metadata": {"namespace": "lab", "name": name}}


def manage(cluster: Any, *wanted: Any, check_mode: bool = False, **params: Any) -> Any:
    defaults = {
        "definitions": list(wanted),
        "state": "present",
        "force_conflicts": False,
        "migrate": True,
        "remove_objects": False,
        "wait_timeout": 0,
    }
    return definitions.manage(cluster, {**defaults, **params}, check_mode)


def test_the_second_time_nothing_changes(cluster: Any):
    assert manage(cluster, definition("v2"))["changed"]
    again = manage(cluster, definition("v2"))
    assert not again["changed"]
    assert again["migrated"] == []
    assert again["diff"] == []


def test_objects_are_written_anew_and_old_versions_forgotten(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])
    has_group(cluster, "a")
    has_group(cluster, "b")
    result = manage(cluster, definition("v1", "v2"))
    assert cluster.writes == ["patch a", "patch b", f"patch {NAME} status", f"apply {NAME}"]
    assert cluster.stored[PLURAL, None, NAME]["status"]["storedVersions"] == ["v2"]
    assert result["changed"]
    assert result["migrated"] == [{"name": NAME, "objects": 2}]
    assert result["diff"][0]["before"] == {"storedVersions": ["v1", "v2"]}
    assert result["diff"][0]["after"] == {"storedVersions": ["v2"]}


def test_an_upgrade_that_stores_another_version_migrates_after_it(cluster: Any):
    installed(cluster, "v2", "v1", stored=["v1"])
    has_group(cluster, "a")
    result = manage(cluster, definition("v1", "v2"))
    assert cluster.writes == [f"apply {NAME}", "patch a", f"patch {NAME} status"]
    assert result["migrated"] == [{"name": NAME, "objects": 1}]


@pytest.mark.parametrize("check_mode", [True, False])
def test_what_nothing_would_convert_is_not_made_unreadable(cluster: Any, check_mode: Any):
    installed(cluster, "v2", "v1", stored=["v1"])
    has_group(cluster, "a")
    wanted = definition("v1", "v2")
    wanted["spec"]["versions"][1]["schema"] = {"other": "fields"}
    with pytest.raises(ClusterError, match="may be stored as v1, and without conversion v2"):
        manage(cluster, wanted, check_mode=check_mode)
    assert cluster.writes == []
    wanted["spec"]["conversion"] = {"strategy": "Webhook"}
    assert manage(cluster, wanted, check_mode=check_mode)["changed"]


def test_a_version_is_forgotten_before_it_is_taken_away(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])
    manage(cluster, definition("v2"))
    assert cluster.writes == [f"patch {NAME} status", f"apply {NAME}"]


def test_migration_is_foretold_in_check_mode(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])
    has_group(cluster, "a")
    result = manage(cluster, definition("v1", "v2"), check_mode=True)
    assert cluster.writes == []
    assert result["changed"]
    assert result["migrated"] == [{"name": NAME, "objects": 1}]


def test_migration_can_be_left_to_a_later_run(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])
    assert manage(cluster, definition("v1", "v2"), migrate=False)["migrated"] == []


def test_an_object_that_went_meanwhile_is_no_error(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])
    has_group(cluster, "a")
    patch = cluster.patch

    def gone(kind: Any, **rest: Any) -> Any:
        if kind.plural == "servicegroups":
            raise ApiError("gone", status=404)
        return patch(kind, **rest)

    cluster.patch = gone
    assert manage(cluster, definition("v1", "v2"))["changed"]


def test_a_definition_that_changed_meanwhile_says_to_run_again(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])

    def conflict(*_args: Any, **_rest: Any) -> Any:
        raise ApiError("the object has been modified", status=409)

    cluster.patch = conflict
    with pytest.raises(ClusterError, match=r"servicegroups.purelb.io changed while .* run again"):
        manage(cluster, definition("v1", "v2"))


def test_definitions_with_objects_stay_and_the_objects_are_counted_and_named(cluster: Any):
    installed(cluster, "v2")
    for number in range(12):
        has_group(cluster, f"g{number:02}")
    for check_mode in (True, False):
        with pytest.raises(ClusterError) as error:
            manage(cluster, definition("v2"), state="absent", check_mode=check_mode)
        assert "12 ServiceGroup (ServiceGroup lab/g00" in str(error.value)
        assert "lab/g09 and 2 more). Delete them first, or set remove_objects" in str(error.value)
    assert cluster.writes == []


def test_definitions_go_with_their_objects_if_asked_for(cluster: Any):
    installed(cluster, "v2")
    has_group(cluster, "a")
    result = manage(cluster, definition("v2"), state="absent", remove_objects=True)
    assert cluster.writes == [f"delete {NAME}"]
    assert result["changed"]


def test_objects_go_without_whoever_converted_them(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])
    there = cluster.stored["customresourcedefinitions", None, NAME]
    there["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {}}
    manage(cluster, definition("v2"), state="absent", remove_objects=True, check_mode=True)
    assert cluster.writes == []
    manage(cluster, definition("v2"), state="absent", remove_objects=True)
    assert cluster.writes == [f"patch {NAME}", f"delete {NAME}"]


def test_what_is_gone_stays_gone_without_a_change(cluster: Any):
    assert not manage(cluster, definition("v2"), state="absent")["changed"]


def test_the_definition_of_another_installation_stays(cluster: Any):
    installed(cluster, "v2", labels={"app.kubernetes.io/managed-by": "Helm"})
    has_group(cluster, "a")
    result = manage(cluster, definition("v2"), state="absent")
    assert cluster.writes == []
    assert not result["changed"]
    (warning,) = result["warnings"]
    assert f"{NAME} stays: it has other labels, so another installation made it" in warning


def test_only_definitions_are_taken(cluster: Any, config_map: Any):
    with pytest.raises(ObjectError, match=r"definitions\[0\]: kind: must be Custom"):
        manage(cluster, config_map)


def test_an_empty_list_says_how_to_get_those_of_the_collection(cluster: Any):
    with pytest.raises(ClusterError, match="leave the option out"):
        manage(cluster)
