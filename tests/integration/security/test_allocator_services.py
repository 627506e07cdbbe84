# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the allocator may write to Services, and the messages of the refusals."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from purelb.core import names
from purelb.core.allocation.outcomes import Assignment
from purelb.core.api import codec
from purelb.core.model import PoolType
from tests.support.lab.dry_runs import SERVICES, V4, V6, assert_refused

pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]


# Loopback, link-local, multicast, broadcast, and none at all.
NO_HOSTS = ["127.0.0.1", "::1", "169.254.0.1", "fe80::1", "224.0.0.9", "ff02::1"]
NO_HOSTS += ["255.255.255.255", "::"]


def assignment(*addresses):
    return Assignment("pool", tuple(map(ip_address, addresses)), PoolType.REMOTE, skip_dad=True)


class TestServiceAndTheAllocator:
    """The allocator and Services."""

    @pytest.mark.parametrize(
        "addresses",
        [["192.0.2.1"], ["2001:db8::1"], ["192.0.2.1", "2001:db8::1"]],
        ids=["v4", "v6", "both"],
    )
    def test_assignment_passes_in_two_writes_and_in_one(self, allocator, addresses):
        given = assignment(*addresses)
        annotations = codec.assignment_annotations(given)
        status = codec.ingress_status(given.addresses)
        allocator.annotate(f"{SERVICES}/new", **annotations)
        allocator.patch(f"{SERVICES}/new/status", {"status": status})
        both = {"metadata": {"annotations": annotations}, "status": status}
        allocator.patch(f"{SERVICES}/new/status", both)

    @pytest.mark.parametrize(
        "entry",
        [
            {"ip": "192.0.2.1", "hostname": "bank.example.com"},
            {"hostname": "bank.example.com"},
            {"ip": "192.0.2.1", "ipMode": "Proxy"},
        ],
        ids=["host name next to it", "host name", "ipMode"],
    )
    def test_what_is_no_address_of_a_load_balancer_is_refused(self, lab, allocator, entry):
        status = {"status": {"loadBalancer": {"ingress": [entry]}}}
        words, path = "IP addresses of ipMode VIP only", f"{SERVICES}/new/status"
        assert_refused(words, "allocator-services", allocator, "PATCH", path, status)
        # Another program's may stay.
        lab.api.merge_patch(path, status)
        both = [entry, {"ip": "192.0.2.2"}]
        allocator.patch(path, {"status": {"loadBalancer": {"ingress": both}}})
        lab.api.merge_patch(path, {"status": {"loadBalancer": None}})

    def test_longer_text_than_a_group_has_is_refused(self, allocator):
        patch = {"metadata": {"annotations": {names.ALLOCATED_FROM_ANNOTATION: "x" * 4097}}}
        words = "allocator may write annotations of 4096 characters"
        assert_refused(words, "allocator-services", allocator, "PATCH", f"{SERVICES}/new", patch)

    @pytest.mark.parametrize("address", NO_HOSTS)
    def test_address_that_is_no_hosts_is_refused(self, allocator, address):
        status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"ip": address}]}}
        words = "no loopback, link-local or multicast address: 192.0.2.1, "
        path = f"{SERVICES}/new/status"
        assert_refused(words, "allocator-services", allocator, "PATCH", path, {"status": status})

    @pytest.mark.parametrize("address", ["198.51.100.130", "203.0.113.1", "2001:db9::1"])
    def test_address_outside_of_the_networks_for_all_is_refused(self, lab, allocator, address):
        status = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
        words = f"no address outside of purelb_install_address_ranges: {address}"
        path = f"{SERVICES}/new/status"
        assert_refused(words, "allocator-services", allocator, "PATCH", path, status)
        # Where it is already it may stay.
        lab.api.merge_patch(path, status)
        more = [{"ip": address}, {"ip": "198.51.100.1"}]
        allocator.patch(path, {"status": {"loadBalancer": {"ingress": more}}})
        lab.api.merge_patch(path, {"status": {"loadBalancer": None}})

    def test_release_passes(self, lab, allocator):
        given = assignment("192.0.2.1", "2001:db8::1")
        path = f"{SERVICES}/new/status"
        annotations = codec.assignment_annotations(given)
        have = {
            "metadata": {"annotations": annotations},
            "status": codec.ingress_status(given.addresses),
        }
        lab.api.merge_patch(path, have)
        lose = {
            "metadata": {"annotations": codec.assignment_annotations(None)},
            "status": codec.ingress_status(()),
        }
        allocator.patch(path, lose)
        lab.api.merge_patch(path, lose)

    def test_policy_allows_every_annotation_of_the_allocator(self, installed):
        keys = "".join(
            variable["expression"]
            for policy in installed
            if policy["metadata"]["name"].startswith("allocator-services")
            for variable in policy["spec"].get("variables", ())
            if variable["name"] in ("keys", "removable")
        )
        given = codec.assignment_annotations(assignment("192.0.2.1"))
        for annotation in {**given, **codec.assignment_annotations(None)}:
            assert f"'{annotation}'" in keys

    def test_traffic_policy_from_local_to_cluster_passes(self, allocator):
        after = allocator.patch(
            f"{SERVICES}/new",
            {
                "metadata": {"annotations": {"purelb.io/re-evaluate": None}},
                "spec": {"externalTrafficPolicy": "Cluster"},
            },
        )
        assert after["spec"]["externalTrafficPolicy"] == "Cluster"

    def test_traffic_policy_from_cluster_to_local_is_refused(self, allocator):
        patch = {"spec": {"externalTrafficPolicy": "Local"}}
        words = "only from Local to Cluster"
        assert_refused(
            words, "allocator-services", allocator, "PATCH", f"{SERVICES}/announced", patch
        )

    def test_re_evaluate_may_be_removed_but_not_set(self, allocator):
        path = f"{SERVICES}/new"
        allocator.annotate(path, **{"purelb.io/re-evaluate": None})
        patch = {"metadata": {"annotations": {"purelb.io/re-evaluate": "false"}}}
        words = "may only remove these annotations of a Service: purelb.io/re-evaluate, "
        assert_refused(words, "allocator-services", allocator, "PATCH", path, patch)

    @pytest.mark.parametrize("subresource", ["", "/status"], ids=["service", "status"])
    @pytest.mark.parametrize(
        ("patch", "words"),
        [
            ({"metadata": {"annotations": {V4: "n1,eth0,192.0.2.1"}}}, "may only remove these"),
            ({"metadata": {"annotations": {V6: "n1,eth0,2001:db8::1"}}}, "may only remove these"),
            ({"metadata": {"annotations": {"example.com/mine": None}}}, "example.com/mine"),
            ({"metadata": {"labels": {"a": "b"}}}, "this part of a Service: labels"),
            ({"metadata": {"finalizers": ["a.b/c"]}}, "finalizers"),
        ],
        ids=["v4 entry", "v6 entry", "annotation", "label", "finalizer"],
    )
    def test_other_changes_of_a_service_are_refused(self, allocator, subresource, patch, words):
        path = f"{SERVICES}/new{subresource}"
        assert_refused(words, "allocator-services", allocator, "PATCH", path, patch)

    @pytest.mark.parametrize(
        "spec",
        [
            {"externalIPs": ["192.0.2.1"]},
            {"externalIPs": ["2001:db8::1"]},
            {"selector": {"app": "other"}},
            {"loadBalancerIP": "192.0.2.1"},
            {"internalTrafficPolicy": "Local"},
            {"externalTrafficPolicy": "Cluster", "selector": {"app": "other"}},
        ],
        ids=" and ".join,
    )
    def test_other_changes_of_the_spec_are_refused(self, allocator, spec):
        words = f"allocator may not change this part of a Service: {[*spec][-1]}"
        path = f"{SERVICES}/new"
        assert_refused(words, "allocator-services", allocator, "PATCH", path, {"spec": spec})

    def test_status_changes_except_addresses_are_refused(self, allocator):
        condition = {
            "type": "Example",
            "status": "True",
            "reason": "Because",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        words = "this part of the status of a Service: conditions"
        patch = {"status": {"conditions": [condition]}}
        path = f"{SERVICES}/new/status"
        assert_refused(words, "allocator-services", allocator, "PATCH", path, patch)
