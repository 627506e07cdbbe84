# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Services while their ServiceGroups change, and the status of ServiceGroups."""

from __future__ import annotations

import pytest

from purelb.core.names import ANNOUNCING_ANNOTATIONS
from tests.support.lab.cluster_queries import allocator_metric, eventually
from tests.support.lab.faults import holders_of
from tests.support.lab.grants import (
    GROUPS,
    both,
    condition,
    entry,
    pools,
    status_of,
    wait_for_addresses,
    wait_for_event,
)

pytestmark = pytest.mark.timeout(60)


def is_announced(cluster, path):
    """Whether nodes have said for both families that they have an address of the Service."""
    annotations = cluster.api.get(path)["metadata"].get("annotations", {})
    return annotations.keys() >= set(ANNOUNCING_ANNOTATIONS.values())


class TestChangedGroups:
    def test_addresses_outside_a_reduced_pool_are_kept_until_reevaluated(
        self, cluster, make_group, ask
    ):
        group = make_group(pools(entry(100, 105)))
        path = ask(group)
        wait_for_addresses(cluster, path, *both(100))
        eventually(lambda: all(holders_of(cluster, *both(100)).values()), "addresses on nodes")
        # What no node announces yet is replaced.
        eventually(lambda: is_announced(cluster, path), "announcing annotations")
        holders = holders_of(cluster, *both(100))
        shrunk = {"spec": {"local": pools(entry(103, 105))}}
        cluster.api.merge_patch(f"{GROUPS}/{group}", shrunk)
        keeps = f"Keeps {', '.join(both(100))}, which"
        assert "put the range back" in wait_for_event(cluster, path, "AddressOutsidePool", keeps)
        wait_for_addresses(cluster, path, *both(100))
        # The agents knew them in the pool.
        assert holders_of(cluster, *both(100)) == holders
        kept = eventually(
            lambda: (
                condition(cluster, group, "AddressesOutsidePool").get("status") == "True"
                and condition(cluster, group, "AddressesOutsidePool")
            ),
            "condition of the group",
        )
        assert ", ".join(both(100)) in kept["message"]
        again = {"metadata": {"annotations": {"purelb.io/re-evaluate": "true"}}}
        cluster.api.merge_patch(path, again)
        wait_for_addresses(cluster, path, *both(103))
        assert "purelb.io/re-evaluate" not in cluster.api.get(path)["metadata"]["annotations"]

    def test_addresses_of_nodes_in_a_pool_are_not_allocated(self, cluster, make_group, ask):
        # The last two nodes of the lab, and one address that is free.
        group = make_group(pools(entry(12, 14)))
        wait_for_addresses(cluster, ask(group), *both(14))

    @pytest.mark.thorough
    def test_addresses_of_a_deleted_group_are_kept(self, cluster, make_group, ask):
        group = make_group(pools(entry(100, 105)))
        path = ask(group)
        wait_for_addresses(cluster, path, *both(100))
        cluster.api.delete(f"{GROUPS}/{group}")
        keeps = f"Keeps {', '.join(both(100))}, which ServiceGroup {group}"
        wait_for_event(cluster, path, "AddressOutsidePool", keeps)
        wait_for_addresses(cluster, path, *both(100))

    @pytest.mark.thorough
    def test_service_with_a_new_group_gets_new_addresses(self, cluster, make_group, ask):
        one = make_group(pools(entry(100, 105)))
        other = make_group(pools(entry(110, 115)))
        path = ask(one)
        wait_for_addresses(cluster, path, *both(100))
        named = {"metadata": {"annotations": {"purelb.io/service-group": other}}}
        cluster.api.merge_patch(path, named)
        wait_for_addresses(cluster, path, *both(110))
        wait_for_addresses(cluster, ask(one), *both(100))

    def test_younger_of_two_overlapping_groups_allocates_nothing(self, cluster, make_group, ask):
        old = make_group(pools(entry(100, 105)))
        wait_for_addresses(cluster, ask(old), *both(100))
        overlapping, apart = pools(entry(105, 110)), pools(entry(120, 125))
        # One overlaps in each family, as an event names the first overlap only.
        for family in ("v4pools", "v6pools"):
            young = make_group({**apart, family: overlapping[family]})
            wait_for_event(cluster, young, "PoolOverlaps", f"of ServiceGroup {old}")
            wait_for_event(cluster, old, "PoolOverlaps", f"younger ServiceGroup {young}")
            wait_for_event(cluster, ask(young), "AllocationFailed", "overlaps")
            eventually(
                lambda name=young: (
                    condition(cluster, name, "Ready").get("reason") == "PoolOverlaps"
                ),
                "condition of the younger",
            )
        wait_for_addresses(cluster, ask(old), *both(101))


class TestNamespaces:
    def test_enforced_group_serves_only_its_namespaces(self, cluster, make_group, ask):
        group = make_group(
            pools(entry(100, 105)), namespaces=["kube-public"], enforceNamespaces=True
        )
        path = ask(group)
        wait_for_event(cluster, path, "AllocationFailed", "namespace_denied: ")
        opened = {"spec": {"namespaces": ["kube-public", "default"]}}
        cluster.api.merge_patch(f"{GROUPS}/{group}", opened)
        wait_for_addresses(cluster, path, *both(100))

    def test_service_without_a_group_uses_the_default_of_its_namespace(
        self, cluster, make_group, make_service
    ):
        group = make_group(pools(entry(100, 105)), namespaces=["default"])
        # Else the allocator may see the Service first, and give it the default of the cluster.
        eventually(lambda: status_of(cluster, group), "status of the group")
        wait_for_addresses(cluster, make_service(), *both(100))
        eventually(
            lambda: status_of(cluster, group).get("boundNamespaces") == ["default"], "namespaces"
        )


@pytest.mark.thorough
def test_group_in_another_namespace_is_counted_but_not_used(cluster):
    body = {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "lost", "namespace": "default"},
        "spec": {"local": pools(entry(100, 105))},
    }
    name = 'purelb_servicegroups_out_of_scope{name="lost",namespace="default",type="local"}'
    cluster.api.create(body)
    try:
        eventually(lambda: allocator_metric(cluster, name) == 1, "metric of the group")
    finally:
        cluster.api.delete("/apis/purelb.io/v2/namespaces/default/servicegroups/lost")
    eventually(lambda: allocator_metric(cluster, name) is None, "end of the metric")


def test_unused_group_has_a_status(cluster, make_group):
    group = make_group(pools(entry(100, 109)))
    path = f"{GROUPS}/{group}"
    status = eventually(lambda: cluster.api.get(path).get("status"), "status")
    conditions = {c["type"]: c["status"] for c in status.pop("conditions")}
    assert conditions == {
        "Ready": "True",
        "Exhausted": "False",
        "AddressesOutsidePool": "False",
        "AddressesSetAside": "False",
    }
    assert status == {
        "announce": "Local",
        "ipam": "Cluster",
        "addresses": ["172.28.1.100-172.28.1.109", "fd28:0:0:1::100-fd28:0:0:1::109"],
        "allocatedIPv4": 0,
        "availableIPv4": 10,
        "allocatedIPv6": 0,
        "availableIPv6": 10,
    }


def test_exhausted_group_has_the_condition_exhausted(cluster, make_group, ask):
    group = make_group(pools(entry(100, 100)))
    wait_for_addresses(cluster, ask(group), *both(100))
    refused = wait_for_event(cluster, ask(group), "AllocationFailed", "exhausted: ")
    assert "no free IPv4 and IPv6 address" in refused
    eventually(lambda: condition(cluster, group, "Exhausted").get("status") == "True", "condition")
    assert "All IPv4 and IPv6" in condition(cluster, group, "Exhausted")["message"]
