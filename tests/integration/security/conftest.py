# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The accounts of an installation with its policies, and objects for their writes.

The permissions of the accounts allow everything here, so every refusal comes from a policy.
"""

from __future__ import annotations

import pytest

from tests.support.lab.accounts import (
    PERMISSIONS,
    client,
    definitions_installed,
    manifests,
    objects_applied,
    pod,
)
from tests.support.lab.dry_runs import (
    ENTRIES,
    GROUPS,
    LABELS,
    LEASES,
    NAMESPACE,
    POOL,
    RANGES,
    SERVICES,
    Account,
    lease,
    lease_named,
    wait_until_enforced,
)
from tests.support.lab.faults import without_allocator


@pytest.fixture(scope="package")
def installed(lab, playbook, tmp_path_factory):
    """Accounts with all permissions, limited by the policies."""
    # Of the installation that runs on this lab.
    others = [f"system:serviceaccount:purelb-system:{n}" for n in ("allocator", "lbnodeagent")]
    settings = {
        "purelb_install_namespace": NAMESPACE,
        "purelb_install_annotation_writers": ["kubernetes-admin", *others],
        "purelb_install_eviction_reporters": ["kubernetes-admin"],
        "purelb_install_address_ranges": RANGES,
        "purelb_install_node_subnets": [*RANGES[:2], "198.51.100.0/24"],
    }
    files = manifests(playbook, tmp_path_factory.mktemp("manifests"), settings)
    everything = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAMESPACE},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [
            {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
            for name in ("lbnodeagent", "allocator", "default")
        ],
    }
    objects = [o for name in ("namespace", *PERMISSIONS, "admissionpolicies") for o in files[name]]
    with definitions_installed(lab), objects_applied(lab, [*objects, everything]):
        yield files["admissionpolicies"]


@pytest.fixture(scope="package")
def pods(lab, installed):
    """Pods of node agents on two nodes, another on the first, and one of the allocator."""
    with (
        pod(lab, NAMESPACE, account="lbnodeagent", node="n1", name="agent-1") as first,
        pod(lab, NAMESPACE, account="lbnodeagent", node="n2", name="agent-2") as second,
        pod(lab, NAMESPACE, account="lbnodeagent", node="n1", name="next") as following,
        pod(lab, NAMESPACE, account="allocator", node="n1", name="allocator") as allocator,
    ):
        made = {"n1": first, "n2": second, "next": following, "allocator": allocator}
        # A Lease whose owner is not an existing Node is soon garbage-collected.
        yield {name: {**body, "node_uid": _node_uid(lab, body)} for name, body in made.items()}


def _node_uid(lab, body):
    return lab.api.get(f"/api/v1/nodes/{body['spec']['nodeName']}")["metadata"]["uid"]


@pytest.fixture(scope="module")
def objects(lab, pods):
    """Leases of two nodes, a Service with and one without its addresses, a ServiceGroup."""

    def service(name, annotations, **spec):
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
            "spec": {
                "type": "LoadBalancer",
                # So that a running allocator in this cluster ignores it.
                "loadBalancerClass": "example.com/none",
                "ports": [{"port": 80}],
                **spec,
            },
        }

    group = {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "pool", "namespace": NAMESPACE},
        "spec": {"remote": {"v4pool": POOL}},
    }
    noted = {"purelb.io/re-evaluate": "true", "example.com/mine": "1"}
    things = [
        lease(pods["n1"]),
        lease(pods["n2"], "n2"),
        service("announced", {**ENTRIES, **noted}),
        # Running agents ignore this type, and do not remove its wrong entries.
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "entries", "namespace": NAMESPACE, "annotations": ENTRIES},
            "spec": {"type": "ClusterIP", "ports": [{"port": 80}]},
        },
        service("new", noted, externalTrafficPolicy="Local"),
        group,
    ]
    # An allocator that runs on this lab would correct the annotations of these Services.
    with without_allocator(lab), objects_applied(lab, things):
        yield


@pytest.fixture(scope="module")
def agent(lab, pods, objects):
    """The node agent of n1, once each of its policies is enforced."""
    account = Account(client(lab, NAMESPACE, "lbnodeagent", pods["n1"]))
    wait_until_enforced("lbnodeagent-leases", account, "POST", LEASES, lease_named("policy-check"))
    wait_until_enforced("lbnodeagent-services", account, "PATCH", f"{SERVICES}/new", LABELS)
    return account


@pytest.fixture(scope="module")
def allocator(lab, pods, objects):
    """The allocator, once each of its policies is enforced."""
    account = Account(client(lab, NAMESPACE, "allocator", pods["allocator"]))
    wait_until_enforced("allocator-leases", account, "POST", LEASES, lease_named("policy-check"))
    for resource, path in [
        ("services", f"{SERVICES}/new"),
        ("groups", f"{GROUPS}/pool"),
        ("nodes", "/api/v1/nodes/n1"),
    ]:
        wait_until_enforced(f"allocator-{resource}", account, "PATCH", path, LABELS)
    return account
