# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses that Services request, get, keep and release while they change."""

from __future__ import annotations

import itertools

import pytest

from tests.support.lab.cluster_queries import eventually, ingress
from tests.support.lab.grants import (
    LEASES,
    both,
    entry,
    pools,
    status_of,
    unreachable_entry,
    wait_for_addresses,
    wait_for_event,
)

pytestmark = pytest.mark.timeout(60)
_subnets = itertools.count(1)


def requested(*addresses):
    return {"purelb.io/addresses": ",".join(addresses)}


class TestSpecificAddresses:
    def test_annotation_requests_addresses_else_the_first_free_are_used(
        self, cluster, make_group, ask
    ):
        group = make_group(pools(entry(100, 105)))
        path = ask(group, annotations=requested(*both(103)))
        wait_for_addresses(cluster, path, *both(103))
        wait_for_addresses(cluster, ask(group), *both(100))

    @pytest.mark.thorough
    def test_load_balancer_ip_requests_an_address_of_one_family(self, cluster, make_group, ask):
        group = make_group(pools(entry(100, 105)))
        (v4, v6), free = both(104), both(100)
        wait_for_addresses(cluster, ask(group, loadBalancerIP=v4), v4, free[1])
        wait_for_addresses(cluster, ask(group, loadBalancerIP=v6), free[0], v6)

    @pytest.mark.thorough
    def test_changed_request_moves_the_service(self, cluster, make_group, ask):
        group = make_group(pools(entry(100, 105)))
        path = ask(group)
        wait_for_addresses(cluster, path, *both(100))
        cluster.api.merge_patch(path, {"metadata": {"annotations": requested(*both(105))}})
        wait_for_addresses(cluster, path, *both(105))

    @pytest.mark.parametrize(
        ("number", "start", "words"),
        [
            pytest.param(99, "", "unknown_pool: ", id="outside", marks=pytest.mark.thorough),
            pytest.param(100, "", "sharing_key_conflict: ", id="taken"),
            pytest.param(100, "x", "is no IP", id="garbage", marks=pytest.mark.thorough),
        ],
    )
    def test_refused_request_creates_an_event_with_the_reason(
        self, cluster, make_group, ask, number, start, words
    ):
        group = make_group(pools(entry(100, 105)))
        wait_for_addresses(cluster, ask(group), *both(100))
        # One Service for each family, as an event names the first refused address only.
        for address in both(number):
            path = ask(group, annotations=requested(f"{start}{address}"))
            assert address in wait_for_event(cluster, path, "AllocationFailed", words)
            assert ingress(cluster.api.get(path)) == []


class TestSharing:
    def share(self, ask, group, port):
        return ask(
            group,
            annotations={"purelb.io/allow-shared-ip": "x"},
            ports=[{"port": port, "targetPort": 8080}],
        )

    def test_services_with_one_key_share_unless_their_ports_conflict(
        self, cluster, make_group, ask
    ):
        group = make_group(pools(entry(100, 105)))
        wait_for_addresses(cluster, self.share(ask, group, 80), *both(100))
        wait_for_addresses(cluster, self.share(ask, group, 81), *both(100))
        refused = self.share(ask, group, 80)
        message = wait_for_event(cluster, refused, "AllocationFailed", "port_conflict: ")
        assert "listens on 80/TCP" in message
        assert ingress(cluster.api.get(refused)) == []

    def test_shared_addresses_are_released_with_the_last_service(self, cluster, make_group, ask):
        group = make_group(pools(entry(100, 100)))
        paths = [self.share(ask, group, port) for port in (80, 81)]
        for path in paths:
            wait_for_addresses(cluster, path, *both(100))
        stranger = ask(group)
        wait_for_event(cluster, stranger, "AllocationFailed", "no free IPv4 and IPv6 address")
        cluster.api.delete(paths[0])
        wait_for_addresses(cluster, paths[1], *both(100))
        cluster.api.delete(paths[1])
        wait_for_addresses(cluster, stranger, *both(100))


class TestMultiPool:
    def test_service_gets_an_address_of_each_range_that_has_nodes(self, cluster, make_group, ask):
        far = unreachable_entry(next(_subnets), 1, 9)
        group = make_group({**pools(entry(100, 105), far), "multiPool": True})
        path = ask(group)
        wait_for_addresses(cluster, path, *both(100))
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "purelb-node-faraway",
                "namespace": "purelb-system",
                "annotations": {
                    "purelb.io/subnets": ",".join(pool["subnet"] for pool in far),
                    "purelb.io/instance": "x",
                },
            },
            "spec": {
                "holderIdentity": "faraway",
                "leaseDurationSeconds": 3600,
                "renewTime": "2099-01-01T00:00:00.000000Z",
            },
        }
        (near4, near6), (far4, far6) = both(100), (p["pool"].partition("-")[0] for p in far)
        cluster.api.create(lease)
        try:
            wait_for_addresses(cluster, path, near4, far4, near6, far6)
        finally:
            cluster.api.delete(f"{LEASES}/purelb-node-faraway")

    @pytest.mark.thorough
    def test_annotation_overrides_the_group(self, cluster, make_group, ask):
        group = make_group({**pools(entry(100, 102), entry(110, 112)), "multiPool": True})
        wait_for_addresses(cluster, ask(group), *both(100, 110))
        no = {"purelb.io/multi-pool": "false"}
        wait_for_addresses(cluster, ask(group, annotations=no), *both(101))
        plain = make_group(pools(entry(120, 121), entry(130, 131)))
        yes = {"purelb.io/multi-pool": "true"}
        wait_for_addresses(cluster, ask(plain, annotations=yes), *both(120, 130))

    @pytest.mark.thorough
    def test_balanced_ranges_are_used_in_turn(self, cluster, make_group, ask):
        group = make_group({**pools(entry(100, 102), entry(110, 112)), "balancePools": True})
        for number in (100, 110, 101, 111):
            wait_for_addresses(cluster, ask(group), *both(number))


class TestChangedServices:
    def test_addresses_follow_the_families_of_the_service(self, cluster, make_group, make_service):
        group = make_group(pools(entry(100, 105)))
        v4, v6 = both(100)
        named = {"purelb.io/service-group": group}
        path = make_service("SingleStack", annotations=named, ipFamilies=["IPv4"])
        wait_for_addresses(cluster, path, v4)
        cluster.api.merge_patch(
            path, {"spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}}
        )
        wait_for_addresses(cluster, path, v4, v6)
        # Else the status from before, also without an IPv6 address, could count as the new one.
        eventually(lambda: status_of(cluster, group).get("allocatedIPv6") == 1, "IPv6 in use")
        cluster.api.merge_patch(
            path, {"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}}
        )
        wait_for_addresses(cluster, path, v4)
        status = eventually(
            lambda: (
                status_of(cluster, group).get("allocatedIPv6") == 0 and status_of(cluster, group)
            ),
            "status of the group",
        )
        assert (status["allocatedIPv4"], status["availableIPv4"]) == (1, 5)

    def test_other_type_releases_the_addresses(self, cluster, make_group, ask):
        group = make_group(pools(entry(100, 100)))
        path = ask(group)
        wait_for_addresses(cluster, path, *both(100))
        cluster.api.merge_patch(path, {"spec": {"type": "ClusterIP"}})
        wait_for_addresses(cluster, path)
        eventually(
            lambda: (
                "purelb.io/allocated-by"
                not in cluster.api.get(path)["metadata"].get("annotations", {})
            ),
            "marks gone",
        )
        wait_for_addresses(cluster, ask(group), *both(100))

    @pytest.mark.thorough
    def test_other_class_is_ignored(self, cluster, make_group, ask):
        group = make_group(pools(entry(100, 105)))
        other = ask(group, loadBalancerClass="example.com/other")
        ours = ask(group, loadBalancerClass="purelb.io/purelb-v2")
        wait_for_addresses(cluster, ours, *both(100))
        assert ingress(cluster.api.get(other)) == []

    def test_traffic_policy_local_is_kept_only_where_allowed(self, cluster, make_group, ask):
        group = make_group(pools(entry(100, 105)))
        path = ask(group, externalTrafficPolicy="Local")
        wait_for_addresses(cluster, path, *both(100))
        assert cluster.api.get(path)["spec"]["externalTrafficPolicy"] == "Cluster"
        wait_for_event(cluster, path, "ExternalTrafficPolicyChanged", "purelb.io/allow-local")
        allowed = {"purelb.io/allow-local": "true"}
        path = ask(group, externalTrafficPolicy="Local", annotations=allowed)
        wait_for_addresses(cluster, path, *both(101))
        assert cluster.api.get(path)["spec"]["externalTrafficPolicy"] == "Local"
