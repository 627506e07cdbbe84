# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses that Services request, get, keep and release while they change."""

from __future__ import annotations

import itertools

import pytest

from tests.support.lab.cluster_queries import eventually, ingress
from tests.support.lab.grants import (
    FAMILIES,
    LEASES,
    V4,
    V6,
    address,
    pool_entry,
    pools,
    status_of,
    unreachable_pool,
    wait_for_addresses,
    wait_for_event,
)

pytestmark = pytest.mark.timeout(60)
_subnets = itertools.count(1)


@pytest.mark.parametrize("family", FAMILIES)
class TestSpecificAddresses:
    def test_annotation_requests_an_address_else_the_first_free_is_used(
        self, cluster, make_group, ask, family
    ):
        group = make_group(pools(family, pool_entry(family, 100, 105)))
        wanted = {"purelb.io/addresses": address(family, 103)}
        wait_for_addresses(cluster, ask(family, group, annotations=wanted), address(family, 103))
        wait_for_addresses(cluster, ask(family, group), address(family, 100))

    def test_load_balancer_ip_requests_an_address(self, cluster, make_group, ask, family):
        group = make_group(pools(family, pool_entry(family, 100, 105)))
        path = ask(family, group, loadBalancerIP=address(family, 104))
        wait_for_addresses(cluster, path, address(family, 104))

    def test_changed_request_moves_the_service(self, cluster, make_group, ask, family):
        group = make_group(pools(family, pool_entry(family, 100, 105)))
        path = ask(family, group)
        wait_for_addresses(cluster, path, address(family, 100))
        wanted = {"purelb.io/addresses": address(family, 105)}
        cluster.api.merge_patch(path, {"metadata": {"annotations": wanted}})
        wait_for_addresses(cluster, path, address(family, 105))

    @pytest.mark.parametrize(
        ("wanted", "words"),
        [("{}99", "unknown_pool: "), ("{}100", "sharing_key_conflict: "), ("x{}", "is no IP")],
        ids=["outside", "taken", "garbage"],
    )
    def test_refused_request_creates_an_event_with_the_reason(
        self, cluster, make_group, ask, family, wanted, words
    ):
        group = make_group(pools(family, pool_entry(family, 100, 105)))
        wait_for_addresses(cluster, ask(family, group), address(family, 100))
        annotations = {"purelb.io/addresses": wanted.format(family[1])}
        path = ask(family, group, annotations=annotations)
        wait_for_event(cluster, path, "AllocationFailed", words)
        assert ingress(cluster.api.get(path)) == []


@pytest.mark.parametrize("family", FAMILIES)
class TestSharing:
    def share(self, ask, family, group, port):
        return ask(
            family,
            group,
            annotations={"purelb.io/allow-shared-ip": "x"},
            ports=[{"port": port, "targetPort": 8080}],
        )

    def test_services_with_one_key_share_unless_their_ports_conflict(
        self, cluster, make_group, ask, family
    ):
        group = make_group(pools(family, pool_entry(family, 100, 105)))
        wait_for_addresses(cluster, self.share(ask, family, group, 80), address(family, 100))
        wait_for_addresses(cluster, self.share(ask, family, group, 81), address(family, 100))
        wait_for_addresses(cluster, self.share(ask, family, group, 80), address(family, 101))

    def test_shared_address_is_released_with_the_last_service(
        self, cluster, make_group, ask, family
    ):
        group = make_group(pools(family, pool_entry(family, 100, 100)))
        paths = [self.share(ask, family, group, port) for port in (80, 81)]
        for path in paths:
            wait_for_addresses(cluster, path, address(family, 100))
        stranger = ask(family, group)
        wait_for_event(cluster, stranger, "AllocationFailed", "no free")
        cluster.api.delete(paths[0])
        wait_for_addresses(cluster, paths[1], address(family, 100))
        cluster.api.delete(paths[1])
        wait_for_addresses(cluster, stranger, address(family, 100))


@pytest.mark.parametrize("family", FAMILIES)
class TestMultiPool:
    def test_service_gets_an_address_of_each_range_that_has_nodes(
        self, cluster, make_group, ask, family
    ):
        number = next(_subnets)
        far = unreachable_pool(family, number, 1, 9)
        group = make_group(
            {**pools(family, pool_entry(family, 100, 105), far), "multiPool": True},
        )
        path = ask(family, group)
        wait_for_addresses(cluster, path, address(family, 100))
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "purelb-node-faraway",
                "namespace": "purelb-system",
                "annotations": {"purelb.io/subnets": far["subnet"], "purelb.io/instance": "x"},
            },
            "spec": {
                "holderIdentity": "faraway",
                "leaseDurationSeconds": 3600,
                "renewTime": "2099-01-01T00:00:00.000000Z",
            },
        }
        cluster.api.create(lease)
        try:
            wait_for_addresses(cluster, path, address(family, 100), far["pool"].partition("-")[0])
        finally:
            cluster.api.delete(f"{LEASES}/purelb-node-faraway")

    def test_annotation_overrides_the_group(self, cluster, make_group, ask, family):
        ranges = pool_entry(family, 100, 102), pool_entry(family, 110, 112)
        group = make_group({**pools(family, *ranges), "multiPool": True})
        both = address(family, 100), address(family, 110)
        wait_for_addresses(cluster, ask(family, group), *both)
        no = {"purelb.io/multi-pool": "false"}
        wait_for_addresses(cluster, ask(family, group, annotations=no), address(family, 101))
        plain = make_group(
            pools(family, pool_entry(family, 120, 121), pool_entry(family, 130, 131))
        )
        yes = {"purelb.io/multi-pool": "true"}
        path = ask(family, plain, annotations=yes)
        wait_for_addresses(cluster, path, address(family, 120), address(family, 130))

    def test_balanced_ranges_are_used_in_turn(self, cluster, make_group, ask, family):
        ranges = pool_entry(family, 100, 102), pool_entry(family, 110, 112)
        group = make_group({**pools(family, *ranges), "balancePools": True})
        for number in (100, 110, 101, 111):
            wait_for_addresses(cluster, ask(family, group), address(family, number))


class TestChangedServices:
    def test_addresses_follow_the_families_of_the_service(self, cluster, make_group, make_service):
        group = make_group(
            {**pools(V4, pool_entry(V4, 100, 105)), **pools(V6, pool_entry(V6, 100, 105))}
        )
        named = {"purelb.io/service-group": group}
        path = make_service("SingleStack", annotations=named, ipFamilies=["IPv4"])
        wait_for_addresses(cluster, path, "172.28.1.100")
        cluster.api.merge_patch(
            path, {"spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}}
        )
        wait_for_addresses(cluster, path, "172.28.1.100", "fd28:0:0:1::100")
        # Else the status from before, also without an IPv6 address, could count as the new one.
        eventually(lambda: status_of(cluster, group).get("allocatedIPv6") == 1, "IPv6 in use")
        cluster.api.merge_patch(
            path, {"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}}
        )
        wait_for_addresses(cluster, path, "172.28.1.100")
        status = eventually(
            lambda: (
                status_of(cluster, group).get("allocatedIPv6") == 0 and status_of(cluster, group)
            ),
            "status of the group",
        )
        assert (status["allocatedIPv4"], status["availableIPv4"]) == (1, 5)

    def test_other_type_releases_the_addresses(self, cluster, make_group, ask):
        group = make_group(pools(V4, pool_entry(V4, 100, 100)))
        path = ask(V4, group)
        wait_for_addresses(cluster, path, "172.28.1.100")
        cluster.api.merge_patch(path, {"spec": {"type": "ClusterIP"}})
        wait_for_addresses(cluster, path)
        eventually(
            lambda: (
                "purelb.io/allocated-by"
                not in cluster.api.get(path)["metadata"].get("annotations", {})
            ),
            "marks gone",
        )
        wait_for_addresses(cluster, ask(V4, group), "172.28.1.100")

    def test_other_class_is_ignored(self, cluster, make_group, ask):
        group = make_group(pools(V4, pool_entry(V4, 100, 105)))
        other = ask(V4, group, loadBalancerClass="example.com/other")
        ours = ask(V4, group, loadBalancerClass="purelb.io/purelb-v2")
        wait_for_addresses(cluster, ours, "172.28.1.100")
        assert ingress(cluster.api.get(other)) == []

    @pytest.mark.parametrize("family", FAMILIES)
    def test_traffic_policy_local_is_kept_only_where_allowed(
        self, cluster, make_group, ask, family
    ):
        group = make_group(pools(family, pool_entry(family, 100, 105)))
        path = ask(family, group, externalTrafficPolicy="Local")
        wait_for_addresses(cluster, path, address(family, 100))
        assert cluster.api.get(path)["spec"]["externalTrafficPolicy"] == "Cluster"
        wait_for_event(cluster, path, "ExternalTrafficPolicyChanged", "purelb.io/allow-local")
        allowed = {"purelb.io/allow-local": "true"}
        path = ask(family, group, externalTrafficPolicy="Local", annotations=allowed)
        wait_for_addresses(cluster, path, address(family, 101))
        assert cluster.api.get(path)["spec"]["externalTrafficPolicy"] == "Local"
