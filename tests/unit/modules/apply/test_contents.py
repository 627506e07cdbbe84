# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a namespace contains, what is deleted, and why Pods cannot be made."""

from __future__ import annotations

from typing import Any

import pytest

from purelb.apply.contents import contents
from purelb.apply.objects import manage
from purelb.apply.refused_pods import refused_pods
from purelb.module.errors import ApiError
from purelb.module.kube import Kind

MARK = {"app.kubernetes.io/name": "purelb"}
LAB = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab"}}
EVENTS = Kind("", "v1", "events", namespaced=True)


def test_contents_without_what_is_in_each(cluster):
    cluster.kinds["v1", "Event"] = EVENTS
    cluster.put("configmaps", "kube-root-ca.crt", "lab")
    cluster.put("configmaps", "notes", "lab")
    cluster.put("configmaps", "others", "elsewhere")
    cluster.put("events", "something", "lab")
    cluster.put("pods", "owned", "lab", metadata={"ownerReferences": [{"uid": "1"}]})
    cluster.put("secrets", "registry", "lab")
    assert contents(cluster, "lab") == ["ConfigMap notes", "Secret registry"]


def test_what_is_not_known_may_be_something(cluster, monkeypatch: pytest.MonkeyPatch):
    cluster.forbidden = {"secrets"}
    assert contents(cluster, "lab") == ["Secret (not known: not allowed to list secrets)"]

    def down() -> None:
        raise ApiError("metrics.k8s.io is down", status=503)

    monkeypatch.setattr(cluster, "namespaced_kinds", down)
    assert contents(cluster, "lab") == ["(not known: metrics.k8s.io is down)"]


@pytest.mark.parametrize(("status", "expected"), [(404, []), (405, []), (500, None)])
def test_kinds_that_cannot_be_listed_have_no_objects(cluster, status, expected):
    def answer(*_args: Any, **_options: Any) -> None:
        raise ApiError("no", status=status)

    cluster.read_all = answer
    if expected is None:
        with pytest.raises(ApiError):
            contents(cluster, "lab")
    else:
        assert contents(cluster, "lab") == expected


def removed(cluster: Any, **options: Any) -> dict[str, Any]:
    params = {
        "objects": [LAB],
        "initial": [],
        "namespace": None,
        "state": "absent",
        "force_conflicts": False,
        "wait": False,
        "wait_timeout": 5,
        "only_labelled": MARK,
        "only_empty": True,
        **options,
    }
    result = manage(cluster, params, False)
    return {"changed": result["changed"], **result["results"][0]}


def test_only_what_has_the_labels_is_deleted(cluster):
    cluster.put("namespaces", "lab")
    kept = removed(cluster, wait=True)
    assert (kept["changed"], kept["action"]) == (False, "unchanged")
    assert kept["kept"].startswith("it has not the labels app.kubernetes.io/name=purelb")
    assert removed(cluster, only_labelled={})["action"] == "deleted"
    assert removed(cluster)["action"] == "absent"


def test_a_namespace_is_deleted_when_it_is_empty(cluster):
    cluster.put("namespaces", "lab", labels=MARK)
    cluster.put("configmaps", "notes", "lab")
    assert removed(cluster)["kept"] == "it contains ConfigMap notes"
    assert removed(cluster, only_empty=False)["action"] == "deleted"


def test_reasons_of_controllers_that_cannot_make_pods(cluster):
    owned = {"ownerReferences": [{"uid": "d"}]}
    cluster.put("replicasets", "allocator-1", "lab", metadata={"uid": "r", **owned})
    cluster.put("replicasets", "other", "lab", metadata={"uid": "o"})
    for number, (uid, name, text) in enumerate(
        (("r", "allocator-1", "old"), ("r", "allocator-1", "exceeded quota"), ("o", "other", "no"))
    ):
        involved = {"uid": uid, "name": name}
        event = {
            "involvedObject": involved,
            "message": text,
            "lastTimestamp": f"2026-01-0{number + 1}",
        }
        cluster.put("events", str(number), "lab", **event)
    cluster.read_all = _without_selector(cluster)
    deployment = {"kind": "Deployment", "metadata": {"uid": "d", "namespace": "lab"}}
    assert refused_pods(cluster, deployment) == ["FailedCreate: exceeded quota"]
    assert refused_pods(cluster, {**deployment, "kind": "DaemonSet"}) == []


@pytest.mark.parametrize("status", [403, 500])
def test_events_that_may_not_be_read_are_no_error(cluster, status):
    def answer(*_args: Any, **_options: Any) -> None:
        raise ApiError("no", status=status)

    cluster.read_all = answer
    workload = {"kind": "DaemonSet", "metadata": {"uid": "d", "namespace": "lab"}}
    if status == 403:
        assert refused_pods(cluster, workload) == []
    else:
        with pytest.raises(ApiError):
            refused_pods(cluster, workload)


def _without_selector(cluster: Any) -> Any:
    """The fake knows no selector of a field but the name; all its events are of this reason."""
    plain = cluster.read_all

    def read_all(kind: Kind, **options: Any) -> Any:
        options.pop("fieldSelector", "")
        return plain(kind, **options)

    return read_all
