# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The permissions of each program's ServiceAccount, without exception.

The tables are complete: each verb has its use next to it, and a verb that the role's manifests have
and the tables have not fails the test.
"""

from __future__ import annotations

import itertools

import pytest

from tests.support.lab.accounts import PERMISSIONS, client, manifests, objects_applied, pod
from tests.support.lab.cluster_queries import eventually

pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]

# The agent watches everything; other verbs have their use next to them.
LBNODEAGENT = {
    ("", "nodes"): {"get", "list", "watch"},  # get: the UID of the own Node, for its Lease
    ("", "services"): {"list", "watch", "patch"},  # patch: the announcing annotations
    ("discovery.k8s.io", "endpointslices"): {"list", "watch"},
    ("purelb.io", "servicegroups"): {"list", "watch"},
    ("purelb.io", "lbnodeagents"): {"list", "watch"},
    ("", "events"): {"create"},
    # get, create, update, delete: the own Lease
    ("coordination.k8s.io", "leases"): {"get", "list", "watch", "create", "update", "delete"},
}
ALLOCATOR = {
    ("", "services"): {"list", "watch", "patch"},  # patch: annotations, externalTrafficPolicy
    ("", "services/status"): {"patch"},  # the addresses
    ("purelb.io", "servicegroups"): {"list", "watch"},
    ("purelb.io", "servicegroups/status"): {"patch"},  # how many addresses are in use
    ("", "events"): {"create"},
    # list, watch: which ranges have live nodes; create: the lock, if it was deleted
    ("coordination.k8s.io", "leases"): {"list", "watch", "create"},
    ("coordination.k8s.io", "leases purelb-allocator"): {"get", "patch"},  # the lock
    ("", "nodes"): {"list", "watch"},  # no Service gets an address of a Node
    ("", "namespaces kube-system"): {"get"},  # its UID, which identifies the cluster in a NetBox
}
DRAINING = {
    ("", "nodes"): {"list", "watch", "patch"},  # patch: the taint
}
# Only in the namespace of events about Nodes: those of a coming eviction.
EVENTS = {("", "events"): {"create", "list", "watch"}}
# One of the role and one of the cluster role: the authorizer learns each with a delay.
KNOWN = {("coordination.k8s.io", "leases"), ("", "events")}
# Only in the namespace of the installation.
OWN_NAMESPACE = {
    ("coordination.k8s.io", "leases"),
    ("coordination.k8s.io", "leases purelb-allocator"),
}

FORBIDDEN = [
    ("get", "", "secrets", ""),
    ("list", "", "secrets", ""),
    ("create", "", "pods", ""),
    ("create", "", "pods", "exec"),
    ("create", "", "services", ""),
    ("update", "", "services", ""),
    ("delete", "", "services", ""),
    ("update", "", "services", "status"),
    ("delete", "", "nodes", ""),
    ("patch", "", "nodes", "status"),
    ("create", "", "serviceaccounts", "token"),
    ("impersonate", "", "users", ""),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
    ("delete", "admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ("patch", "purelb.io", "servicegroups", ""),
    ("deletecollection", "coordination.k8s.io", "leases", ""),
]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(True, id="draining"),
        pytest.param(False, id="no draining", marks=pytest.mark.thorough),
    ],
)
def draining(request):
    return request.param


@pytest.fixture(scope="module")
def namespace(draining):
    return f"permissions-{'with' if draining else 'without'}-draining"


@pytest.fixture(scope="module")
def accounts(lab, playbook, namespace, draining, tmp_path_factory):
    settings = {"purelb_install_namespace": namespace, "purelb_install_draining": draining}
    files = manifests(playbook, tmp_path_factory.mktemp("manifests"), settings)
    objects = [*files["namespace"], *(o for name in PERMISSIONS for o in files[name])]
    node = min(lab.nodes)
    with (
        objects_applied(lab, objects),
        pod(lab, namespace, account="lbnodeagent", node=node, name="agent") as agent,
        pod(lab, namespace, account="allocator", node=node, name="allocator") as allocator,
    ):
        clients = {
            "lbnodeagent": client(lab, namespace, "lbnodeagent", agent),
            "allocator": client(lab, namespace, "allocator", allocator),
        }
        for api in clients.values():
            eventually(lambda a=api: rules(a, namespace).keys() >= KNOWN, "permissions in force")
        yield clients


def rules(api, namespace):
    """Return verbs by group and resource, without the reviews that every account may create."""
    found = {}
    review = api.create(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "metadata": {},
            "spec": {"namespace": namespace},
        }
    )
    for rule in review["status"]["resourceRules"]:
        named = rule.get("resourceNames") or [""]
        parts = itertools.product(rule["apiGroups"], rule["resources"], named)
        for group, resource, name in parts:
            key = (group, f"{resource} {name}".strip())
            found.setdefault(key, set()).update(rule["verbs"])
    own = {"authentication.k8s.io", "authorization.k8s.io"}
    return {key: verbs for key, verbs in found.items() if key[0] not in own}


@pytest.mark.parametrize("program", ["lbnodeagent", "allocator"])
def test_program_has_exactly_its_permissions(accounts, namespace, draining, program):
    given = {"lbnodeagent": LBNODEAGENT, "allocator": ALLOCATOR}[program]
    has_draining = program == "allocator" and draining
    if has_draining:
        given = {**given, **DRAINING}
    # The authorizer learns each object with a delay, also of the end of a former role.
    api = accounts[program]
    eventually(lambda: rules(api, namespace) == given, f"permissions {given}")
    elsewhere = {key: verbs for key, verbs in given.items() if key not in OWN_NAMESPACE}
    assert rules(api, "kube-system") == elsewhere
    about_nodes = {**elsewhere, **(EVENTS if has_draining else {})}
    eventually(lambda: rules(api, "default") == about_nodes, "permission for events of Nodes")


@pytest.mark.parametrize(
    "forbidden",
    FORBIDDEN,
    ids=[f"{verb} {resource}/{sub}".rstrip("/") for verb, _group, resource, sub in FORBIDDEN],
)
@pytest.mark.parametrize("program", ["lbnodeagent", "allocator"])
def test_program_lacks_permission(accounts, namespace, program, forbidden):
    asked = dict(zip(("verb", "group", "resource", "subresource"), forbidden, strict=True))
    review = accounts[program].create(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": {"namespace": namespace, **asked}},
        }
    )
    assert not review["status"]["allowed"]
