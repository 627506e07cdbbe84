# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

from purelb.apply.readiness import conditions, progress


def daemon_set(generation: int = 2, **status: Any):
    status = {
        "observedGeneration": 2,
        "desiredNumberScheduled": 3,
        "currentNumberScheduled": 3,
        "updatedNumberScheduled": 3,
        "numberAvailable": 3,
        **status,
    }
    return {"kind": "DaemonSet", "metadata": {"generation": generation}, "status": status}


def deployment(**status: Any):
    status = {
        "observedGeneration": 1,
        "replicas": 1,
        "updatedReplicas": 1,
        "availableReplicas": 1,
        **status,
    }
    return {
        "kind": "Deployment",
        "metadata": {"generation": 1},
        "spec": {"replicas": 1},
        "status": status,
    }


def definition(*states: tuple[str, str]):
    found = [{"type": kind, "status": value} for kind, value in states]
    return {"kind": "CustomResourceDefinition", "metadata": {}, "status": {"conditions": found}}


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(daemon_set(), id="daemon set"),
        pytest.param(
            daemon_set(
                desiredNumberScheduled=0,
                currentNumberScheduled=0,
                updatedNumberScheduled=0,
                numberAvailable=0,
            ),
            id="daemon set without nodes",
        ),
        pytest.param(deployment(), id="deployment"),
        pytest.param(definition(("Established", "True")), id="definition"),
        pytest.param({"kind": "Namespace", "status": {"phase": "Active"}}, id="namespace"),
        pytest.param({"kind": "ConfigMap"}, id="a kind without progress"),
    ],
)
def test_a_ready_object_is_done(obj: Any):
    assert progress(obj).done


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        pytest.param(None, "it does not exist", id="gone"),
        pytest.param(daemon_set(generation=3), "has not observed the change", id="unobserved"),
        pytest.param(daemon_set(updatedNumberScheduled=1), "1 of 3 Pods run the new", id="old"),
        pytest.param(daemon_set(numberAvailable=2), "2 of 3 Pods are available", id="unavailable"),
        pytest.param(deployment(replicas=2), "1 old Pods are still there", id="surplus"),
        pytest.param(deployment(availableReplicas=0), "0 of 1 Pods are available", id="no replica"),
        pytest.param(
            {"kind": "DaemonSet", "metadata": {"generation": 1}}, "has not observed", id="no status"
        ),
        pytest.param(definition(("Established", "False")), "not established", id="definition"),
        pytest.param(definition(), "not established", id="new definition"),
        pytest.param({"kind": "Namespace", "status": {"phase": "Terminating"}}, "Termin", id="ns"),
    ],
)
def test_an_unready_object_has_a_reason(obj: Any, reason: str):
    state = progress(obj)
    assert not state.done
    assert reason in state.reason


def test_conditions_are_one_text_each():
    obj = definition(("Established", "False"))
    obj["status"]["conditions"][0]["message"] = "the kind is taken"
    assert conditions(obj) == ["Established=False (the kind is taken)"]
