# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Reads what a migration changes: definitions, objects of both versions, programs and Services."""

from __future__ import annotations

from typing import List, Optional, Tuple

from ..core import names
from ..module.errors import ClusterError
from ..module.kube import Cluster, Kind, Object
from ..module.manifests import without_managed_fields

API_V1 = f"{names.API_GROUP}/{names.OLD_API_VERSION}"
API_V2 = f"{names.API_GROUP}/{names.API_VERSION}"
DEFINITIONS = ("servicegroups.purelb.io", "lbnodeagents.purelb.io")
CONFIGURATION_KINDS = ("ServiceGroup", "LBNodeAgent")

Program = Tuple[str, str]
# Kind and name; v1 and v2 use the same names.
ALLOCATOR: Program = ("Deployment", "allocator")
AGENT: Program = ("DaemonSet", "lbnodeagent")
PROGRAMS = (ALLOCATOR, AGENT)
_PODS = Kind("", "v1", "pods", namespaced=True)


def program_reference(program: Program, namespace: str) -> Object:
    """Returns the identifying fields of a program in a namespace."""
    kind, name = program
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta}


def read_configuration(
    cluster: Cluster, api_version: str, *, namespace: Optional[str]
) -> List[Object]:
    """Returns ServiceGroups and LBNodeAgents of a version; none if it is not served."""
    found: List[Object] = []
    for name in CONFIGURATION_KINDS:
        kind = cluster.kind(api_version, name)
        if kind is not None:
            head = {"apiVersion": api_version, "kind": name}
            found += _list(cluster, head, kind, namespace=namespace)
    return found


def _list(cluster: Cluster, head: Object, kind: Kind, *, namespace: Optional[str]) -> List[Object]:
    # The items of a list come without apiVersion and kind.
    found = cluster.read_all(kind, namespace=namespace, convert=without_managed_fields)
    return [{**head, **obj} for obj in found]


class MigrationReader:
    """Reads from one cluster; v1 is in the namespace `origin`, v2 in `target`."""

    def __init__(self, cluster: Cluster, *, origin: str, target: str) -> None:
        self._cluster = cluster
        self._origin = origin
        self._target = target

    def kind(self, obj: Object) -> Kind:
        """Returns where the API server serves the kind of an object; ClusterError if nowhere."""
        kind = self._cluster.kind(obj["apiVersion"], obj["kind"])
        if kind is None:
            raise ClusterError(f"the cluster does not serve {obj['apiVersion']} {obj['kind']}")
        return kind

    def get(self, obj: Object) -> Optional[Object]:
        """Returns the stored state of an object; None if it or its kind does not exist."""
        kind = self._cluster.kind(obj["apiVersion"], obj["kind"])
        if kind is None:
            return None
        meta = obj["metadata"]
        return self._cluster.get(kind, namespace=meta.get("namespace"), name=meta["name"])

    def v1_programs(self) -> List[Object]:
        """Returns the programs of v1 that exist."""
        found = (self.get(program_reference(program, self._origin)) for program in PROGRAMS)
        return [obj for obj in found if obj is not None]

    def annotation_writers(self) -> List[str]:
        """Returns who writes the programs' annotations of Services during a migration.

        They are the user of this migration and the ServiceAccounts of v1.
        """
        pods = (obj["spec"]["template"]["spec"] for obj in self.v1_programs())
        accounts = {pod.get("serviceAccountName") or "default" for pod in pods}
        of_v1 = (f"system:serviceaccount:{self._origin}:{name}" for name in sorted(accounts))
        return [self._cluster.user(), *of_v1]

    def definitions(self) -> List[Object]:
        """Returns the CustomResourceDefinitions of PureLB that exist."""
        head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        found = (self.get({**head, "metadata": {"name": name}}) for name in DEFINITIONS)
        return [obj for obj in found if obj is not None]

    def v1_configuration(self) -> List[Object]:
        """Returns ServiceGroups and LBNodeAgents of every namespace but v2's, read as v1."""
        found = read_configuration(self._cluster, API_V1, namespace=None)
        return [obj for obj in found if obj["metadata"]["namespace"] != self._target]

    def v2_configuration(self) -> List[Object]:
        """Returns ServiceGroups and LBNodeAgents of v2's namespace, read as v2."""
        return read_configuration(self._cluster, API_V2, namespace=self._target)

    def services(self) -> List[Object]:
        """Returns every Service of the cluster."""
        head = {"apiVersion": "v1", "kind": "Service"}
        return _list(self._cluster, head, self.kind(head), namespace=None)

    def everything(self) -> List[Object]:
        """Returns all objects that a migration changes."""
        return [
            *self.definitions(),
            *self.v1_configuration(),
            *self.v1_programs(),
            *self.services(),
        ]

    def v1_pods(self, selector: str) -> List[Object]:
        """Returns the Pods in v1's namespace that a label selector matches."""
        found = self._cluster.read_all(
            _PODS, namespace=self._origin, convert=dict, labelSelector=selector
        )
        return [{"kind": "Pod", **pod} for pod in found]
