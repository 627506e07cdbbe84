# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

from purelb.apply import objects
from purelb.core.errors import ObjectError
from purelb.module.errors import ApiError, ClusterError
from purelb.module.manifests import Object

CUSTOM = {"apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": {"name": "default"}}


@pytest.fixture
def key() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "key", "namespace": "lab"},
        "stringData": {"key": "first"},
    }


def manage(cluster: Any, *wanted: Object, check_mode: bool = False, **params: Any) -> Any:
    defaults = {
        "state": "present",
        "initial": [],
        "namespace": None,
        "force_conflicts": False,
        "wait": True,
        "wait_timeout": 0,
    }
    return objects.manage(cluster, {"objects": list(wanted), **defaults, **params}, check_mode)


def read(cluster: Any, **asked: Any) -> Any:
    defaults = {"api_version": "v1", "namespace": None, "names": [], "labels": {}}
    return objects.info(cluster, {**defaults, **asked}, check_mode=True)


def actions(result: Object) -> list[str]:
    return [entry["action"] for entry in result["results"]]


def test_missing_objects_are_created_in_order(cluster: Any, namespace: Object, config_map: Object):
    result = manage(cluster, namespace, config_map)
    assert actions(result) == ["created", "created"]
    assert cluster.writes == ["apply lab", "apply settings"]
    assert result["changed"]


def test_a_second_run_changes_nothing(cluster: Any, namespace: Object, config_map: Object):
    manage(cluster, namespace, config_map)
    result = manage(cluster, namespace, config_map)
    assert actions(result) == ["unchanged", "unchanged"]
    assert not result["changed"]
    assert result["diff"] == []


def test_a_change_is_shown(cluster: Any, namespace: Object, config_map: Object):
    manage(cluster, namespace, config_map)
    result = manage(cluster, {**config_map, "data": {"colour": "red"}})
    assert actions(result) == ["changed"]
    assert result["diff"][0]["before"]["data"] == {"colour": "green"}


def test_check_mode_writes_nothing(cluster: Any, namespace: Object, config_map: Object):
    result = manage(cluster, namespace, config_map, CUSTOM, check_mode=True)
    assert actions(result) == ["created", "created", "created"]
    assert cluster.writes == []


def test_conflicts_are_forced_only_with_the_option(cluster: Any, namespace: Object):
    manage(cluster, namespace)
    assert not cluster.forced
    manage(cluster, namespace, force_conflicts=True)
    assert cluster.forced


def test_a_missing_namespace_is_an_error_outside_check_mode(cluster: Any, config_map: Object):
    with pytest.raises(ApiError, match="not found"):
        manage(cluster, config_map)


def test_an_unknown_kind_is_an_error_with_a_remediation(cluster: Any):
    with pytest.raises(ClusterError, match="apply its CustomResourceDefinition first"):
        manage(cluster, CUSTOM)


class TestInitial:
    def test_missing_objects_are_created_after_the_namespace(
        self, cluster: Any, namespace: Object, config_map: Object, key: Object
    ):
        result = manage(cluster, namespace, config_map, initial=[key])
        assert cluster.writes == ["apply lab", "apply key", "apply settings"]
        assert actions(result) == ["created", "created", "created"]

    def test_existing_objects_stay_unchanged(self, cluster: Any, namespace: Object, key: Object):
        manage(cluster, namespace, initial=[key])
        other = {**key, "stringData": {"key": "another"}}
        result = manage(cluster, namespace, initial=[other], force_conflicts=True)
        assert actions(result) == ["unchanged", "unchanged"]
        assert not result["changed"]
        assert cluster.stored["secrets", "lab", "key"]["stringData"] == {"key": "first"}

    def test_check_mode_creates_nothing(self, cluster: Any, namespace: Object, key: Object):
        result = manage(cluster, namespace, initial=[key, CUSTOM], check_mode=True)
        assert actions(result) == ["created", "created", "created"]
        assert cluster.writes == []

    def test_the_diff_of_a_secret_hides_its_value(
        self, cluster: Any, namespace: Object, key: Object
    ):
        assert "first" not in str(manage(cluster, namespace, initial=[key])["diff"])

    def test_initial_is_refused_with_deletion(self, cluster: Any, key: Object):
        with pytest.raises(ClusterError, match="initial requires state=present"):
            manage(cluster, initial=[key], state="absent")

    def test_an_invalid_object_is_named_by_its_position(self, cluster: Any, key: Object):
        with pytest.raises(ObjectError, match=r"initial\[1\].*kind: missing"):
            manage(cluster, initial=[key, {"apiVersion": "v1"}])


def test_objects_without_a_namespace_get_that_of_the_option(
    cluster: Any, namespace: Object, config_map: Object
):
    del config_map["metadata"]["namespace"]
    result = manage(cluster, namespace, config_map, namespace="lab")
    assert result["results"][1]["namespace"] == "lab"


def test_a_missing_namespace_is_an_error_that_names_the_option(cluster: Any, config_map: Object):
    del config_map["metadata"]["namespace"]
    with pytest.raises(ClusterError, match="or set the option namespace"):
        manage(cluster, config_map)


def test_objects_are_deleted_in_reverse_order(cluster: Any, namespace: Object, config_map: Object):
    manage(cluster, namespace, config_map)
    cluster.writes.clear()
    result = manage(cluster, namespace, config_map, state="absent")
    assert cluster.writes == ["delete settings", "delete lab"]
    assert actions(result) == ["deleted", "deleted"]


def test_deleting_a_missing_object_changes_nothing(cluster: Any, config_map: Object):
    result = manage(cluster, config_map, CUSTOM, state="absent")
    assert actions(result) == ["absent", "absent"]
    assert not result["changed"]


def test_deletion_in_check_mode_writes_nothing(cluster: Any, namespace: Object, config_map: Object):
    manage(cluster, namespace, config_map)
    cluster.writes.clear()
    result = manage(cluster, config_map, state="absent", check_mode=True)
    assert actions(result) == ["deleted"]
    assert cluster.writes == []


def test_a_timeout_names_the_object_and_the_problems_of_its_pods(cluster: Any, namespace: Object):
    manage(cluster, namespace)
    agent = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "lbnodeagent", "namespace": "lab", "generation": 1},
        "spec": {"selector": {"matchLabels": {"component": "lbnodeagent"}}},
    }
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    cluster.stored["pods", "lab", "a"] = {
        "metadata": {"name": "a"},
        "status": {"containerStatuses": [{"name": "main", "state": {"waiting": waiting}}]},
    }
    with pytest.raises(ClusterError) as error:
        manage(cluster, agent)
    assert "DaemonSet lab/lbnodeagent is not ready after 0 s" in str(error.value)
    assert "Pod a, container main: ErrImagePull: not found" in str(error.value)


def test_progress_restarts_the_timeout(
    cluster: Any, namespace: Object, monkeypatch: pytest.MonkeyPatch
):
    manage(cluster, namespace)
    agent = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "lbnodeagent", "namespace": "lab"},
    }
    stored = cluster.get
    pauses: list[float] = []
    monkeypatch.setattr(objects.time, "monotonic", lambda: sum(pauses))
    monkeypatch.setattr(objects.time, "sleep", pauses.append)

    def get(kind: Any, **where: Any) -> Any:
        found = stored(kind, **where)
        if found and found["kind"] == "DaemonSet":
            updated = min(5, int(sum(pauses) / 40))
            status = {"desiredNumberScheduled": 5, "currentNumberScheduled": 5}
            found["status"] = {**status, "updatedNumberScheduled": updated, "numberAvailable": 5}
        return found

    monkeypatch.setattr(cluster, "get", get)
    manage(cluster, agent, wait_timeout=100)
    assert sum(pauses) >= 200


@pytest.mark.parametrize(
    ("api_version", "kind", "served"),
    [("v1", "ConfigMap", True), ("v1", "Gone", False), ("x.example/v1", "ConfigMap", False)],
    ids=["served", "no such kind", "no such group"],
)
def test_the_result_states_whether_the_kind_is_served(
    cluster: Any, api_version: str, kind: str, *, served: bool
):
    found = read(cluster, api_version=api_version, kind=kind)
    assert (found["served"], found["objects"]) == (served, [])


@pytest.mark.parametrize(
    ("names", "found"),
    [([], ["settings", "tables"]), (["tables"], ["tables"]), (["tables", "gone"], ["tables"])],
    ids=["all", "one", "missing"],
)
def test_objects_can_be_read_by_name(
    cluster: Any, namespace: Object, config_map: Object, names: list[str], found: list[str]
):
    other = {**config_map, "metadata": {**config_map["metadata"], "name": "tables"}}
    manage(cluster, namespace, config_map, other)
    answer = read(cluster, kind="ConfigMap", names=names)
    assert [obj["metadata"]["name"] for obj in answer["objects"]] == found
