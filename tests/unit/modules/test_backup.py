# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.backup import (
    backup_of,
    changed_addresses,
    digest_of,
    service_patches,
)

MINE = {"purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "default"}


def service(name: str = "web", *addresses: str, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": "default",
            "name": name,
            "resourceVersion": "7",
            "annotations": {"example.com/a": "b", **MINE, **annotations},
        },
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"},
        "status": {"loadBalancer": {"ingress": [{"ip": one} for one in addresses]}},
    }


def group(pool: str = "10.0.0.0/28") -> dict[str, Any]:
    meta = {"namespace": "purelb", "name": "default", "uid": "u"}
    return {"apiVersion": "purelb.io/v1", "kind": "ServiceGroup", "metadata": meta, "spec": pool}


def changed(obj: dict[str, Any], **annotations: str | None) -> dict[str, Any]:
    other = deepcopy(obj)
    kept = {**other["metadata"]["annotations"], **annotations}
    other["metadata"]["annotations"] = {k: text for k, text in kept.items() if text is not None}
    return other


WEB = service("web", "10.0.0.1", "fd00::1")
POOL_TYPE = {"purelb.io/pool-type": "local"}


def test_a_backup_has_an_order_and_only_services_of_purelb():
    foreign = changed(service("foreign", "10.9.0.1"), **{"purelb.io/allocated-by": None})
    backup = backup_of([WEB, foreign, group()])
    assert [one["metadata"]["name"] for one in backup] == ["web", "default"]
    assert "resourceVersion" not in backup[0]["metadata"]
    assert backup[0]["status"] == WEB["status"]


def test_what_does_not_count_leaves_the_digest_as_it_is():
    digest = digest_of(backup_of([group(), WEB]))
    again = changed(WEB, **{"purelb.io/announcing-IPv4": "n1,eth0", "example.com/a": "c"})
    again["metadata"]["resourceVersion"] = "8"
    renamed = {**group(), "metadata": {**group()["metadata"], "uid": "v"}}
    assert digest_of(backup_of([again, renamed])) == digest


@pytest.mark.parametrize(
    "objects",
    [
        [group("10.0.0.0/29"), WEB],
        [group(), changed(WEB, **POOL_TYPE)],
        [group(), service("web", "10.0.0.1")],
        [group(), service("web", "10.0.0.1", "fd00::2")],
        [group(), {**WEB, "spec": {"externalTrafficPolicy": "Cluster"}}],
        [group()],
    ],
    ids=["pool", "annotation", "one address less", "another address", "policy", "gone"],
)
def test_what_counts_changes_the_digest(objects: Any):
    assert digest_of(backup_of(objects)) != digest_of(backup_of([group(), WEB]))


class TestPatches:
    def test_a_service_that_is_as_before_needs_none(self):
        other = changed(WEB, **{"example.com/a": "c"})
        assert service_patches([other], backup_of([WEB])) == []

    def test_what_was_added_goes_and_what_was_taken_returns(self):
        was = changed(WEB, **{"purelb.io/announcing-IPv4": "n1,eth0"})
        now = changed(WEB, **{**POOL_TYPE, "purelb.io/allocated-from": "other"})
        now["spec"]["externalTrafficPolicy"] = "Cluster"
        now["status"] = {"loadBalancer": {}}
        (patch,) = service_patches([now], backup_of([was]))
        assert patch["metadata"] == {
            "namespace": "default",
            "name": "web",
            "annotations": {
                "purelb.io/pool-type": None,
                "purelb.io/allocated-from": "default",
                "purelb.io/announcing-IPv4": "n1,eth0",
            },
        }
        assert patch["spec"] == {"externalTrafficPolicy": "Local"}
        assert patch["status"] == WEB["status"]

    def test_a_service_that_is_new_gives_back_what_it_was_given(self):
        new = service("new", "10.0.0.2")
        (patch,) = service_patches([WEB, new], backup_of([WEB]))
        assert patch["metadata"]["annotations"] == dict.fromkeys(MINE)
        assert patch["status"] == {"loadBalancer": {"ingress": None}}

    def test_a_service_of_somebody_else_is_left_alone(self):
        foreign = changed(service("new", "10.0.0.2"), **{"purelb.io/allocated-by": None})
        assert service_patches([foreign], []) == []


@pytest.mark.parametrize(
    ("now", "names"),
    [
        ([WEB], []),
        ([], []),
        ([service("web", "fd00::1", "10.0.0.1"), service("new", "10.0.0.9")], []),
        ([service("web", "10.0.0.1")], ["default/web"]),
        ([service("web", "10.0.0.1", "fd00::9")], ["default/web"]),
    ],
    ids=["the same", "gone", "another order", "one less", "another"],
)
def test_changed_addresses_are_named(now: Any, names: list[str]):
    assert changed_addresses(now, backup_of([WEB])) == names
