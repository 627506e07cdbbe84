# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from purelb.core.errors import ObjectError
from purelb.migrate import handover
from purelb.migrate.backup import take

ALLOCATED = {"purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "default"}
POOL_TYPE = {"purelb.io/pool-type": "local"}


def service(*addresses: str, name: str = "web", **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": "default",
            "name": name,
            "resourceVersion": "7",
            "annotations": {"example.com/a": "b", **ALLOCATED, **annotations},
        },
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"},
        "status": {"loadBalancer": {"ingress": [{"ip": address} for address in addresses]}},
    }


def changed(obj: dict[str, Any], **annotations: str | None) -> dict[str, Any]:
    other = deepcopy(obj)
    kept = {**other["metadata"]["annotations"], **annotations}
    other["metadata"]["annotations"] = {k: text for k, text in kept.items() if text is not None}
    return other


def of_class(obj: dict[str, Any], name: str) -> dict[str, Any]:
    return {**obj, "spec": {**obj["spec"], "loadBalancerClass": name}}


WEB = service("10.0.0.1", "fd00::1")


@pytest.mark.parametrize(
    ("obj", "is_of_v1"),
    [
        (WEB, True),
        (changed(WEB, **POOL_TYPE), False),
        (of_class(WEB, "purelb.io/purelb"), True),
        (of_class(changed(WEB, **POOL_TYPE), "purelb.io/purelb"), True),
        (of_class(WEB, "purelb.io/purelbv2"), False),
        (of_class(WEB, "purelb.io/purelb-v2"), False),
        (changed(WEB, **{"purelb.io/allocated-by": None}), False),
        ({**WEB, "spec": {"type": "NodePort"}}, False),
    ],
    ids=["v1", "handed over", "its class", "its class, marked", "v2", "v2 too", "foreign", "other"],
)
def test_services_of_v1_are_recognised(obj: Any, is_of_v1: object):
    assert handover.is_of_v1(obj) is is_of_v1


def groups(**kinds: str) -> Any:
    pools = {
        "near": {"v4pool": {"pool": "10.0.0.0/28", "subnet": "10.0.0.0/24"}},
        "near6": {"v6pool": {"pool": "fd00::/124", "subnet": "fd00::/64"}},
    }
    bodies = [
        {
            "apiVersion": "purelb.io/v2",
            "kind": "ServiceGroup",
            "metadata": {"name": name, "namespace": "purelb-system"},
            "spec": {kind: pools[name]},
        }
        for name, kind in kinds.items()
    ]
    garbled = {**bodies[0], "spec": {"local": {"v4pool": {"pool": "x", "subnet": "y"}}}}
    return handover.readable_groups([*bodies, garbled, {"kind": "LBNodeAgent"}])


@pytest.mark.parametrize(
    ("kinds", "address", "chosen"),
    [
        ({"near": "local"}, "10.0.0.1", "local"),
        ({"near": "remote"}, "10.0.0.1", "remote"),
        ({"near6": "local"}, "fd00::1", "local"),
        ({"near6": "remote"}, "fd00::1", "remote"),
        ({"near": "remote"}, "10.9.0.1", "local"),
    ],
    ids=["local", "remote", "local IPv6", "remote IPv6", "of no group"],
)
def test_the_pool_type_patch_follows_the_groups_of_the_address(
    kinds: dict[str, str], address: str, chosen: str
):
    patch = handover.pool_type_patch(service(address), groups(**kinds))
    assert patch == {"metadata": {"annotations": {"purelb.io/pool-type": chosen}}}


class TestMove:
    def test_a_moved_service_keeps_its_spec_status_and_annotations(self, merge: Any):
        left = merge(WEB, handover.release_patch(WEB))
        assert left["spec"]["type"] == "NodePort"
        assert handover.is_moving(left)
        # As the API server does when the type changes.
        del left["spec"]["externalTrafficPolicy"], left["status"]
        there = merge(left, handover.claim_patch(left, handover.CLASS))
        asked = there["metadata"]["annotations"]["purelb.io/addresses"]
        assert asked == "10.0.0.1,fd00::1"
        settled = merge({**there, "status": WEB["status"]}, handover.cleanup_patch(there))
        assert settled == of_class(WEB, "purelb.io/purelbv2")

    def test_addresses_requested_by_the_owner_stay_requested(self, merge: Any):
        own = service("10.0.0.1", **{"purelb.io/addresses": "10.0.0.1,10.0.0.9"})
        left = merge(own, handover.release_patch(own))
        assert merge(left, handover.cleanup_patch(left))["metadata"] == own["metadata"]

    def test_a_service_without_node_ports_gets_none(self, merge: Any):
        bare = {**WEB, "spec": {**WEB["spec"], "allocateLoadBalancerNodePorts": False}}
        left = merge(bare, handover.release_patch(bare))
        assert left["spec"]["type"] == "ClusterIP"
        arrived = handover.claim_patch(left, None)["spec"]
        assert arrived["allocateLoadBalancerNodePorts"] is False
        assert arrived["loadBalancerClass"] is None

    def test_a_service_without_addresses_requests_none(self):
        marks = handover.release_patch(service())["metadata"]["annotations"]
        assert marks.keys() == {"purelb.io/migration"}

    @pytest.mark.parametrize("text", ["", "x", "{}", "[]", '{"spec": 1, "addresses": null}'])
    def test_a_saved_spec_that_no_migration_wrote_is_refused(self, text: str):
        strange = changed(WEB, **{"purelb.io/migration": text})
        with pytest.raises(ObjectError, match=r"Service default/web.*by hand"):
            handover.claim_patch(strange, None)


class TestRestoring:
    def test_an_unchanged_service_needs_no_patch(self):
        other = changed(WEB, **{"example.com/a": "c"})
        assert handover.restore_patch(other, handover.for_backup(WEB)) == {}

    def test_added_fields_are_removed_and_removed_fields_restored(self):
        was = changed(WEB, **{"purelb.io/announcing-IPv4": "n1,eth0"})
        now = changed(WEB, **{**POOL_TYPE, "purelb.io/allocated-from": "other"})
        now["spec"]["externalTrafficPolicy"] = "Cluster"
        now["status"] = {"loadBalancer": {}}
        patch = handover.restore_patch(now, handover.for_backup(was))
        assert patch["metadata"]["annotations"] == {
            "purelb.io/pool-type": None,
            "purelb.io/allocated-from": "default",
            "purelb.io/announcing-IPv4": "n1,eth0",
        }
        assert patch["spec"] == {"externalTrafficPolicy": "Local"}
        assert patch["status"] == WEB["status"]

    def test_a_new_service_loses_the_addresses_of_v2(self):
        patch = handover.restore_patch(service("10.0.0.2"), None)
        assert patch["metadata"]["annotations"] == dict.fromkeys(ALLOCATED)
        assert patch["status"] == {"loadBalancer": {"ingress": None}}

    def test_a_service_of_another_type_gets_no_addresses(self):
        now = {**WEB, "spec": {"type": "ClusterIP"}, "status": {"loadBalancer": {}}}
        assert "status" not in handover.restore_patch(now, handover.for_backup(WEB))


def test_the_backup_of_a_service_contains_its_status():
    (kept,) = take([WEB], ()).before
    assert "resourceVersion" not in kept["metadata"]
    assert kept["status"] == WEB["status"]
