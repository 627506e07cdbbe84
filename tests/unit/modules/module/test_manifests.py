# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from typing import Any

import pytest

from purelb.core.errors import ObjectError
from purelb.module import manifests
from purelb.module.manifests import Object


def test_fields_of_the_api_server_are_no_change(config_map: Object):
    stored = {
        **config_map,
        "status": {"anything": 1},
        "metadata": {
            **config_map["metadata"],
            "uid": "1",
            "resourceVersion": "7",
            "generation": 3,
            "managedFields": [{}],
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"deployment.kubernetes.io/revision": "4"},
        },
    }
    assert manifests.clean(stored) == manifests.clean(config_map)


def test_other_annotations_are_compared(config_map: Object):
    noted = {**config_map, "metadata": {**config_map["metadata"], "annotations": {"by": "me"}}}
    assert manifests.clean(noted) != manifests.clean(config_map)


def test_clean_does_not_change_its_argument(config_map: Object):
    before = json.dumps(config_map)
    manifests.clean(config_map)["data"]["colour"] = "red"
    assert json.dumps(config_map) == before


def test_a_difference_shows_both_sides(config_map: Object):
    red = {**config_map, "data": {"colour": "red"}}
    shown = manifests.difference(config_map, red)
    assert shown["before"]["data"] == {"colour": "green"}
    assert shown["after"]["data"] == {"colour": "red"}
    assert shown["after_header"] == "ConfigMap lab/settings"


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_missing_side_of_a_difference_is_empty(config_map: Object, side: str):
    pair = {"before": config_map, "after": config_map, side: None}
    assert manifests.difference(pair["before"], pair["after"])[side] == {}


def test_the_difference_of_a_secret_hides_its_values(secret: Object):
    annotation = "kubectl.kubernetes.io/last-applied-configuration"
    secret["metadata"]["annotations"] = {annotation: json.dumps(secret)}
    secret["data"]["same"] = "c2FtZQ=="
    after = {**secret, "data": {"user-token": "b3RoZXI=", "same": "c2FtZQ=="}}
    shown = manifests.difference(secret, after)
    assert shown["after"]["data"] == {
        "user-token": manifests.HIDDEN_CHANGED,
        "same": manifests.HIDDEN,
    }
    for text in ("c2VjcmV0", "b3RoZXI=", "c2FtZQ=="):
        assert text not in json.dumps(shown)


def test_a_changed_secret_counts_as_changed(secret: Object):
    after = {**secret, "data": {"user-token": "b3RoZXI="}}
    assert manifests.clean(secret) != manifests.clean(after)


def test_secrets_yields_the_values_of_secrets_only(secret: Object, config_map: Object):
    secret["stringData"] = {"plain": "open sesame", "empty": ""}
    assert set(manifests.secrets([secret, config_map])) == {"c2VjcmV0", "open sesame"}


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        pytest.param({}, "apiVersion: missing", id="nothing"),
        pytest.param({"apiVersion": "v1"}, "kind: missing", id="no kind"),
        pytest.param({"apiVersion": "v1", "kind": "A"}, "metadata.name: missing", id="no name"),
    ],
)
def test_an_incomplete_object_is_named_by_its_position(obj: Any, words: str):
    with pytest.raises(ObjectError, match=rf"objects\[2\]: {words}"):
        manifests.check(obj, where="objects[2]")
