# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The permissions of the two programs: the only copy of these rules.

The module purelb_rbac applies them; the role purelb_install reads them through the filter
`permissions`. Pure: sends no requests.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Dict, List, Optional, Tuple

from ..core import names

# The version of the collection; a test compares them.
VERSION = "0.1.0"
RBAC = "rbac.authorization.k8s.io"

Object = Dict[str, Any]
Rules = List[Dict[str, List[str]]]


def _rule(group: str, resources: str, verbs: str, *, named: str = "") -> Dict[str, List[str]]:
    names_only = {"resourceNames": [named]} if named else {}
    rule = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**rule, **names_only}


AGENT: Rules = [
    # Owner of its Lease, labels for LBNodeAgent selectors, taints for draining.
    _rule("", "nodes", "get list watch"),
    # The addresses; patch is for the announcing annotations.
    _rule("", "services", "list watch patch"),
    # Nodes with ready endpoints, for externalTrafficPolicy Local and node-affinity.
    _rule("discovery.k8s.io", "endpointslices", "list watch"),
    _rule(names.API_GROUP, "servicegroups lbnodeagents", "list watch"),
    _rule("", "events", "create"),
]
AGENT_IN_NAMESPACE: Rules = [
    # An agent renews its own Lease and watches the others. A rule cannot name its own Lease, as
    # the name depends on the node; the admission policy prevents writes to the others.
    _rule("coordination.k8s.io", "leases", "get list watch create update delete"),
]
ALLOCATOR: Rules = [
    # Annotations, and externalTrafficPolicy where a local pool needs it.
    _rule("", "services", "list watch patch"),
    # The assigned addresses.
    _rule("", "services/status", "patch"),
    _rule(names.API_GROUP, "servicegroups", "list watch"),
    _rule(names.API_GROUP, "servicegroups/status", "patch"),
    # Its UID distinguishes this cluster from others with the same NetBox.
    _rule("", "namespaces", "get", named="kube-system"),
    # No Service gets an address of a Node.
    _rule("", "nodes", "list watch"),
    _rule("", "events", "create"),
]
ALLOCATOR_IN_NAMESPACE: Rules = [
    # Which ranges have live nodes, and which replica holds the leader lock.
    _rule("coordination.k8s.io", "leases", "list watch"),
    _rule("coordination.k8s.io", "leases", "get patch", named=names.LEADER_LEASE),
    # Recreates a deleted lock. A rule for create cannot name the object.
    _rule("coordination.k8s.io", "leases", "create"),
]
# Taints a node when an event announces its eviction.
ALLOCATOR_DRAINING: Rules = [
    _rule("", "nodes", "patch"),
]
ALLOCATOR_DRAINING_EVENTS: Rules = [
    _rule("", "events", "list watch"),
]
# Of the events about Nodes.
_EVENTS_NAMESPACE = "default"


def permissions(namespace: str, *, draining: bool) -> List[Object]:
    """Returns ServiceAccounts, roles and bindings of an installation, in the order to apply."""
    in_cluster = {
        "lbnodeagent": AGENT,
        "allocator": ALLOCATOR + (ALLOCATOR_DRAINING if draining else []),
    }
    in_namespace = {"lbnodeagent": AGENT_IN_NAMESPACE, "allocator": ALLOCATOR_IN_NAMESPACE}
    # Without the feature the role stays, empty: so the right ends where it was granted before.
    of_events = ALLOCATOR_DRAINING_EVENTS if draining else []
    # What lies outside of the namespace has it in its name, so nothing of others is changed.
    wide = f"purelb:{namespace}:{{}}".format
    granted = [
        *(_role(wide(p), p, rules, namespace, scope=None) for p, rules in in_cluster.items()),
        *(_role(p, p, rules, namespace, scope=namespace) for p, rules in in_namespace.items()),
        _role(wide("allocator"), "allocator", of_events, namespace, scope=_EVENTS_NAMESPACE),
    ]
    return [
        *(_object("ServiceAccount", program, program, namespace) for program in in_cluster),
        *chain.from_iterable(granted),
    ]


def _role(
    name: str, program: str, rules: Rules, namespace: str, *, scope: Optional[str]
) -> Tuple[Object, Object]:
    """Returns a role for a namespace or, without a scope, for the cluster, and its binding."""
    kind = "Role" if scope else "ClusterRole"
    binding = {
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": program, "namespace": namespace}],
    }
    return (
        {**_object(kind, program, name, scope), "rules": rules},
        {**_object(f"{kind}Binding", program, name, scope), **binding},
    )


def _object(kind: str, program: str, name: str, namespace: Optional[str]) -> Object:
    metadata: Object = {"name": name, **({"namespace": namespace} if namespace else {})}
    metadata["labels"] = {
        "app.kubernetes.io/name": "purelb",
        "app.kubernetes.io/component": program,
        "app.kubernetes.io/version": VERSION,
        "app.kubernetes.io/managed-by": "purelb.purelb",
    }
    version = "v1" if kind == "ServiceAccount" else f"{RBAC}/v1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
