# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The module purelb_rbac: permissions are granted, changed and revoked."""

from __future__ import annotations

import pytest

from tests.support.lab.cluster_queries import eventually

pytestmark = pytest.mark.timeout(240)
NAMESPACE = "purelb-system"


@pytest.fixture
def elsewhere(cluster):
    """A namespace for a second set of permissions."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}
    path = cluster.api.path_of(cluster.api.create(body))
    yield "elsewhere"
    cluster.api.delete(path)
    cluster.api.wait(path, lambda seen: seen is None, what="namespace gone", seconds=90)


def may(lab, namespace, program, verb, resource, group=""):
    attributes = {"verb": verb, "resource": resource, "group": group, "namespace": namespace}
    review = lab.api.create(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                "user": f"system:serviceaccount:{namespace}:{program}",
                "resourceAttributes": attributes,
            },
        }
    )
    return review["status"]["allowed"]


def test_permissions_are_granted_changed_and_revoked(cluster, play, elsewhere):
    given = {"namespace": elsewhere}
    done = play("purelb_rbac", {**given, "check": True}, given, given, {**given, "check": True})
    assert done.changed == [True, True, False, False]
    # The authorizer learns of each change with a delay.
    lease = ("lbnodeagent", "update", "leases", "coordination.k8s.io")
    eventually(lambda: may(cluster, elsewhere, *lease), "permission for Leases")
    nodes = ("allocator", "patch", "nodes")
    eventually(lambda: may(cluster, elsewhere, *nodes), "permission for Nodes")
    less = {**given, "draining": False}
    done = play("purelb_rbac", less, less)
    assert done.changed == [True, False]
    eventually(lambda: not may(cluster, elsewhere, *nodes), "end of the permission for Nodes")
    gone = {**given, "state": "absent"}
    done = play("purelb_rbac", {**gone, "check": True}, gone, gone)
    assert done.changed == [True, True, False]
    services = ("lbnodeagent", "list", "services")
    eventually(lambda: not may(cluster, elsewhere, *services), "end of all permissions")
    # The installation's own permissions are not affected.
    assert may(cluster, NAMESPACE, "lbnodeagent", "list", "services")


@pytest.mark.thorough
def test_second_installation_changes_no_permission(play):
    assert play("purelb_rbac", {}).changed == [False]
