# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Dry-run requests as one ServiceAccount, and the objects that they write."""

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import ip_network

import pytest

from labkit.api import ApiError
from purelb.core import names
from purelb.core.api import codec
from purelb.core.model import Lease
from tests.support.lab.cluster_queries import eventually

NAMESPACE = "admission-test"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
GROUPS = f"/apis/purelb.io/v2/namespaces/{NAMESPACE}/servicegroups"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
MERGE = "application/merge-patch+json"
V4, V6 = names.ANNOUNCING_ANNOTATIONS[4], names.ANNOUNCING_ANNOTATIONS[6]
# The Service's annotations before a node agent changes them. `gone` is not a node.
ENTRIES = {
    V4: "gone,eth0,192.0.2.2 n1,eth0,192.0.2.1 n2,eth0,192.0.2.2",
    V6: "gone,eth0,2001:db8::2 n1,eth0,2001:db8::1 n2,eth0,2001:db8::2",
}
TAINT = {
    "key": names.SPOT_TAINT_KEY,
    "value": names.SPOT_TAINT_VALUE,
    "effect": names.SPOT_TAINT_EFFECT,
}
# A change that no policy allows.
LABELS = {"metadata": {"labels": {"example.com/policy-check": "true"}}}
# Of all addresses that the allocator may allocate.
RANGES = ["192.0.2.0/24", "2001:db8::/32", "198.51.100.0/25", "198.51.100.192/26"]
POOL = {"pool": "192.0.2.0/28", "subnet": "192.0.2.0/24"}


class Account:
    """A client that acts as a ServiceAccount; every request is a dry run."""

    def __init__(self, api):
        self._api = api

    def send(self, method, path, body=None):
        if method == "PUT":
            # With the current version, as after a read.
            meta = {**body["metadata"], "resourceVersion": self._version(path)}
            body = {**body, "metadata": meta}
        kind = MERGE if method == "PATCH" else ""
        return self._api.call(method, f"{path}?dryRun=All", body, kind=kind)

    def _version(self, path):
        return self._api.get(path)["metadata"]["resourceVersion"]

    def patch(self, path, body):
        return self.send("PATCH", path, body)

    def annotate(self, path, **texts):
        return self.patch(path, {"metadata": {"annotations": texts}})


def lease(pod, node="n1", **changes):
    """Return the Lease that the agent in this Pod writes."""
    record = Lease(
        node=node,
        subnets=(ip_network("192.0.2.0/24"), ip_network("2001:db8::/64")),
        instance=pod["metadata"]["uid"],
        holder=node,
        duration=10.0,
        renew_time=1_700_000_000.0,
        node_uid=pod["node_uid"],
    )
    return codec.lease_body(replace(record, **changes), namespace=NAMESPACE)


def with_owners(body, *owners):
    references = [{"apiVersion": "v1", "uid": "a-uid", **owner} for owner in owners]
    return {**body, "metadata": {**body["metadata"], "ownerReferences": references}}


def wait_until_enforced(policy, account, *request):
    """Wait until a policy refuses this request: each takes effect on its own after creation."""
    eventually(lambda: _is_refused_by(policy, account, *request), f"enforcement of {policy}")


def _is_refused_by(policy, account, *request):
    try:
        account.send(*request)
    except ApiError as error:
        return _is_denied_by(policy, str(error))
    return False


def _is_denied_by(policy, text):
    """Whether this policy denied a request, or that of another installation on this lab.

    Of several policies that deny it the API server names any one.
    """
    return re.search(rf"ValidatingAdmissionPolicy '{policy}\.[a-z-]+\.purelb\.io'", text)


def assert_refused(words, policy, account, *request):
    """Assert that this policy refuses the request, with these words."""
    with pytest.raises(ApiError) as refusal:
        account.send(*request)
    assert refusal.value.status == 403
    assert _is_denied_by(policy, str(refusal.value))
    assert words in str(refusal.value)


def lease_named(name, namespace=NAMESPACE):
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"holderIdentity": "another-program"},
    }
