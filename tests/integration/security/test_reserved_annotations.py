# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Who may write the annotations of Services that the programs write; all requests are dry runs.

A tenant has the role `edit` in the namespace, and nothing else.
"""

from __future__ import annotations

import pytest

from labkit.api import ApiError
from purelb.core import names
from tests.support.lab.accounts import client, objects_applied
from tests.support.lab.dry_runs import (
    ENTRIES,
    NAMESPACE,
    SERVICES,
    V4,
    V6,
    Account,
    assert_refused,
    wait_until_enforced,
)

pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]
RBAC = "rbac.authorization.k8s.io"
POLICY = "reserved-annotations"
WORDS = "only PureLB writes these annotations, remove them from what you apply: "
RESERVED = {
    names.ALLOCATED_BY_ANNOTATION: names.ALLOCATED_BY,
    names.ALLOCATED_FROM_ANNOTATION: "gold",
    names.POOL_TYPE_ANNOTATION: "remote",
    names.SKIP_DAD_ANNOTATION: "true",
    V4: "n1,eth0,192.0.2.1",
    V6: "n1,eth0,2001:db8::1",
    names.MIGRATION_ANNOTATION: "{}",
}
# What users write.
WISHES = {
    names.SERVICE_GROUP_ANNOTATION: "gold",
    names.ADDRESSES_ANNOTATION: "192.0.2.1",
    names.SHARING_ANNOTATION: "x",
    names.ALLOW_LOCAL_ANNOTATION: "true",
    names.MULTI_POOL_ANNOTATION: "true",
    names.AFFINITY_ANNOTATION: names.AFFINITY_ENDPOINTS,
    names.REEVALUATE_ANNOTATION: "true",
}


def service(annotations, name="fresh", **spec):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], **spec},
    }


@pytest.fixture(scope="module")
def tenant(lab, objects):
    meta = {"name": "tenant", "namespace": NAMESPACE}
    subject = {"kind": "ServiceAccount", **meta}
    things = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"},
            "subjects": [subject],
        },
    ]
    with objects_applied(lab, things):
        account = Account(client(lab, NAMESPACE, "tenant"))
        wait_until_enforced(POLICY, account, "POST", SERVICES, service(RESERVED))
        yield account


@pytest.mark.parametrize("key", RESERVED)
def test_tenant_cannot_create_a_service_with_one(tenant, key):
    body = service({**WISHES, key: RESERVED[key]})
    assert_refused(WORDS + key, POLICY, tenant, "POST", SERVICES, body)


@pytest.mark.parametrize("key", RESERVED)
@pytest.mark.parametrize("text", ["forged", "x" * 2000], ids=["short", "long"])
def test_tenant_cannot_set_one(tenant, key, text):
    patch = {"metadata": {"annotations": {key: text}}}
    assert_refused(WORDS + key, POLICY, tenant, "PATCH", f"{SERVICES}/new", patch)
    # Where it is, too.
    assert_refused(WORDS + key, POLICY, tenant, "PATCH", f"{SERVICES}/announced", patch)


def test_all_that_are_set_are_named(tenant):
    patch = {"metadata": {"annotations": RESERVED}}
    named = WORDS + ", ".join(RESERVED)
    assert_refused(named, POLICY, tenant, "PATCH", f"{SERVICES}/new", patch)


def test_tenant_may_do_what_tenants_do(lab, tenant):
    tenant.send("POST", SERVICES, service(WISHES))
    tenant.annotate(f"{SERVICES}/new", **WISHES)
    announced = lab.api.get(f"{SERVICES}/announced")
    assert ENTRIES.items() <= announced["metadata"]["annotations"].items()
    # As it is, and from a manifest that knows nothing of the programs: `kubectl replace`.
    tenant.send("PUT", f"{SERVICES}/announced", announced)
    bare = {**announced, "metadata": {**announced["metadata"], "annotations": {}}}
    tenant.send("PUT", f"{SERVICES}/announced", bare)
    tenant.patch(f"{SERVICES}/announced", {"metadata": {"labels": {"a": "b"}}})
    tenant.patch(f"{SERVICES}/announced", {"spec": {"ports": [{"port": 81}]}})
    tenant.annotate(f"{SERVICES}/announced", **dict.fromkeys(ENTRIES))
    tenant.send("DELETE", f"{SERVICES}/announced")


def test_tenant_has_no_right_to_a_status(lab, tenant):
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
    with pytest.raises(ApiError) as refusal:
        tenant.patch(f"{SERVICES}/new/status", status)
    assert refusal.value.status == 403


def test_another_account_with_all_rights_cannot_write_one_either(lab, tenant):
    everything = Account(client(lab, NAMESPACE, "default"))
    for part in ("", "/status"):
        patch = {"metadata": {"annotations": RESERVED}}
        assert_refused(WORDS, POLICY, everything, "PATCH", f"{SERVICES}/new{part}", patch)


def test_a_listed_user_may_write_them(lab, tenant):
    admin = Account(lab.api)
    admin.send("POST", SERVICES, service(RESERVED))
    admin.annotate(f"{SERVICES}/new", **RESERVED)
