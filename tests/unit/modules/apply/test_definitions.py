# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Definitions are installed, migrated to another storage version, and removed without losses."""

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
    """Returns a definition whose last version is the storage version."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "labels": OURS if labels is None else labels},
        "spec": {
            "group": "purelb.io",
            "scope": "Namespaced",
            "names": {"kind": "ServiceGroup", "plural": "servicegroups"},
            # v1 is not served, as the fake cluster does not serve it.
            "versions": [
                {"name": name, "served": name == "v2", "storage": name == versions[-1]}
                for name in versions
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
        storage = next(each["name"] for each in body["spec"]["versions"] if each["storage"])
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


def test_a_second_run_changes_nothing(cluster: Any):
    assert manage(cluster, definition("v2"))["changed"]
    again = manage(cluster, definition("v2"))
    assert not again["changed"]
    assert again["migrated"] == []
    assert again["diff"] == []


def test_objects_are_rewritten_and_old_versions_removed(cluster: Any):
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


def test_a_new_storage_version_migrates_after_the_apply(cluster: Any):
    installed(cluster, "v2", "v1", stored=["v1"])
    has_group(cluster, "a")
    result = manage(cluster, definition("v1", "v2"))
    assert cluster.writes == [f"apply {NAME}", "patch a", f"patch {NAME} status"]
    assert result["migrated"] == [{"name": NAME, "objects": 1}]


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_definition_that_would_drop_fields_is_refused(cluster: Any, check_mode: Any):
    installed(cluster, "v2", "v1", stored=["v1"])
    has_group(cluster, "a")
    wanted = definition("v1", "v2")
    wanted["spec"]["versions"][1]["schema"] = {"other": "fields"}
    with pytest.raises(ClusterError, match="may be stored as v1, and without conversion v2"):
        manage(cluster, wanted, check_mode=check_mode)
    assert cluster.writes == []
    wanted["spec"]["conversion"] = {"strategy": "Webhook"}
    assert manage(cluster, wanted, check_mode=check_mode)["changed"]


def test_a_version_leaves_stored_versions_before_it_is_removed(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])
    manage(cluster, definition("v2"))
    assert cluster.writes == [f"patch {NAME} status", f"apply {NAME}"]


def test_check_mode_reports_the_migration(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])
    has_group(cluster, "a")
    result = manage(cluster, definition("v1", "v2"), check_mode=True)
    assert cluster.writes == []
    assert result["changed"]
    assert result["migrated"] == [{"name": NAME, "objects": 1}]


def test_migration_can_be_switched_off(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])
    assert manage(cluster, definition("v1", "v2"), migrate=False)["migrated"] == []


def test_an_object_deleted_meanwhile_is_no_error(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])
    has_group(cluster, "a")
    patch = cluster.patch

    def gone(kind: Any, **rest: Any) -> Any:
        if kind.plural == "servicegroups":
            raise ApiError("gone", status=404)
        return patch(kind, **rest)

    cluster.patch = gone
    assert manage(cluster, definition("v1", "v2"))["changed"]


def test_a_definition_changed_meanwhile_is_an_error(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])

    def conflict(*_args: Any, **_rest: Any) -> Any:
        raise ApiError("the object has been modified", status=409)

    cluster.patch = conflict
    with pytest.raises(ClusterError, match=r"servicegroups.purelb.io changed while .* run again"):
        manage(cluster, definition("v1", "v2"))


def test_definitions_with_objects_are_not_removed(cluster: Any):
    installed(cluster, "v2")
    for number in range(12):
        has_group(cluster, f"g{number:02}")
    for check_mode in (True, False):
        with pytest.raises(ClusterError) as error:
            manage(cluster, definition("v2"), state="absent", check_mode=check_mode)
        assert "12 ServiceGroup (ServiceGroup lab/g00" in str(error.value)
        assert "lab/g09 and 2 more). Delete them first, or set remove_objects" in str(error.value)
    assert cluster.writes == []


def test_remove_objects_removes_definitions_with_objects(cluster: Any):
    installed(cluster, "v2")
    has_group(cluster, "a")
    result = manage(cluster, definition("v2"), state="absent", remove_objects=True)
    assert cluster.writes == [f"delete {NAME}"]
    assert result["changed"]


def test_removal_switches_the_conversion_off_first(cluster: Any):
    installed(cluster, "v1", "v2", stored=["v1", "v2"])
    there = cluster.stored["customresourcedefinitions", None, NAME]
    there["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {}}
    manage(cluster, definition("v2"), state="absent", remove_objects=True, check_mode=True)
    assert cluster.writes == []
    manage(cluster, definition("v2"), state="absent", remove_objects=True)
    assert cluster.writes == [f"patch {NAME}", f"delete {NAME}"]


def test_removing_a_missing_definition_changes_nothing(cluster: Any):
    assert not manage(cluster, definition("v2"), state="absent")["changed"]


def test_the_definition_of_another_installation_stays(cluster: Any):
    installed(cluster, "v2", labels={"app.kubernetes.io/managed-by": "Helm"})
    has_group(cluster, "a")
    result = manage(cluster, definition("v2"), state="absent")
    assert cluster.writes == []
    assert not result["changed"]
    (warning,) = result["warnings"]
    assert f"{NAME} stays: it has other labels, so another installation made it" in warning


def test_other_kinds_are_refused(cluster: Any, config_map: Any):
    with pytest.raises(ObjectError, match=r"definitions\[0\]: kind: must be Custom"):
        manage(cluster, config_map)


def test_an_empty_list_is_an_error_that_names_the_default(cluster: Any):
    with pytest.raises(ClusterError, match="omit the option"):
        manage(cluster)
