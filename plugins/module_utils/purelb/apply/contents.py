# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What a namespace contains, in addition to what Kubernetes puts into each."""

from __future__ import annotations

from typing import List

from ..module.errors import FORBIDDEN, NOT_ALLOWED, NOT_FOUND, ApiError
from ..module.kube import Cluster, Kind, Object

# Written by controllers for other objects, and gone soon after these.
_DERIVED = frozenset({"Event", "Endpoints", "EndpointSlice"})
# By kind. Those of OpenShift, too.
_IN_EACH = {
    "ServiceAccount": frozenset({"default", "builder", "deployer"}),
    "ConfigMap": frozenset({"kube-root-ca.crt", "openshift-service-ca.crt"}),
    "RoleBinding.rbac.authorization.k8s.io": frozenset(
        {"system:deployers", "system:image-builders", "system:image-pullers"}
    ),
}


def contents(cluster: Cluster, namespace: str) -> List[str]:
    """Returns the objects of a namespace as texts, such as `ConfigMap notes`, in a fixed order.

    Without those of controllers, and those that others own: their owners are listed. A kind that
    the user may not list may have objects, and is one entry.
    """
    try:
        kinds = cluster.namespaced_kinds()
    except ApiError as error:
        # An API server of another's is down. What it serves may be here.
        return [f"(not known: {error})"]
    found: List[str] = []
    for title, kind in sorted(kinds.items()):
        name = title.partition(".")[0]
        if name not in _DERIVED:
            known = _IN_EACH.get(title, frozenset())
            found += [
                f"{name} {each}" for each in _names(cluster, kind, namespace) if each not in known
            ]
    return found


def _names(cluster: Cluster, kind: Kind, namespace: str) -> List[str]:
    def convert(obj: Object) -> str:
        metadata = obj["metadata"]
        return "" if metadata.get("ownerReferences") else str(metadata["name"])

    try:
        found = cluster.read_all(kind, namespace=namespace, convert=convert)
    except ApiError as error:
        if error.status in (NOT_FOUND, NOT_ALLOWED):
            return []
        if error.status != FORBIDDEN:
            raise
        return [f"(not known: {error})"]
    return sorted(filter(None, found))
