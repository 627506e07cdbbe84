# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""A fake cluster that stores objects in a dictionary, and objects for it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from purelb.core.names import API_GROUP
from purelb.module.errors import ApiError
from purelb.module.kube import Kind

KINDS = {
    ("v1", "Namespace"): Kind("", "v1", "namespaces", namespaced=False),
    ("v1", "Secret"): Kind("", "v1", "secrets", namespaced=True),
    ("v1", "Pod"): Kind("", "v1", "pods", namespaced=True),
    ("v1", "ConfigMap"): Kind("", "v1", "configmaps", namespaced=True),
    ("purelb.io/v1", "ServiceGroup"): Kind("purelb.io", "v1", "servicegroups", namespaced=True),
    ("purelb.io/v1", "LBNodeAgent"): Kind("purelb.io", "v1", "lbnodeagents", namespaced=True),
    ("apps/v1", "DaemonSet"): Kind("apps", "v1", "daemonsets", namespaced=True),
    ("apps/v1", "Deployment"): Kind("apps", "v1", "deployments", namespaced=True),
    ("v1", "Service"): Kind("", "v1", "services", namespaced=True),
}
OURS = {
    ("purelb.io/v2", "ServiceGroup"): Kind("purelb.io", "v2", "servicegroups", namespaced=True),
    ("purelb.io/v2", "LBNodeAgent"): Kind("purelb.io", "v2", "lbnodeagents", namespaced=True),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): Kind(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False
    ),
}


def merged(old: Any, patch: Any) -> Any:
    """Returns a value with a merge patch (RFC 7386) applied."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merged(new.get(key), value)
    return new


class FakeCluster:
    """Stores what is applied; refuses objects in a namespace that does not exist."""

    def __init__(self, kinds: dict[tuple[str, str], Kind]) -> None:
        self.kinds = kinds
        self.stored: dict[tuple[str, str | None, str], dict[str, Any]] = {}
        self.writes: list[str] = []
        self.writes_count = 0
        self.forced = False
        # Plural names of kinds that may not be read.
        self.forbidden: set[str] = set()
        # What the server says to what is created.
        self.refusal: ApiError | None = None

    def put(self, kind: str, name: str, namespace: str | None = None, **body: Any) -> None:
        """Stores an object of a kind, given by its plural; `labels` are those of its metadata."""
        metadata = {"name": name, "namespace": namespace, "labels": body.pop("labels", {})}
        metadata.update(body.pop("metadata", {}))
        self.stored[kind, namespace, name] = {"metadata": metadata, **body}

    def kind(self, api_version: str, kind: str) -> Kind | None:
        return self.kinds.get((api_version, kind))

    def namespaced_kinds(self) -> dict[str, Kind]:
        return {
            f"{name}.{kind.group}".rstrip("."): kind
            for (_, name), kind in self.kinds.items()
            if kind.namespaced
        }

    def create(self, kind: Kind, body: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
        if self.refusal is not None:
            raise self.refusal
        if not dry_run:
            self.writes.append(f"create {kind.plural}")
        return body

    def get(self, kind: Kind, *, namespace: str | None, name: str) -> dict[str, Any] | None:
        if kind.plural in self.forbidden:
            raise ApiError(f"not allowed to get {kind.plural}", status=403)
        return deepcopy(self.stored.get((kind.plural, namespace, name)))

    def items(self, kind: Kind, **_query: Any) -> list[dict[str, Any]]:
        return [obj for key, obj in self.stored.items() if key[0] == kind.plural]

    def read_all(
        self,
        kind: Kind,
        *,
        convert: Any,
        namespace: str | None = None,
        fieldSelector: str = "",  # noqa: N803 - as the API calls it
        **_query: Any,
    ) -> list[Any]:
        if kind.plural in self.forbidden:
            raise ApiError(f"not allowed to list {kind.plural}", status=403)
        return [
            convert(obj)
            for (plural, where, name), obj in self.stored.items()
            if plural == kind.plural
            and namespace in (None, where)
            and fieldSelector in ("", f"metadata.name={name}")
        ]

    def patch(
        self,
        kind: Kind,
        *,
        namespace: str | None,
        name: str,
        patch: dict[str, Any],
        part: str = "",
        dry_run: bool = False,
    ) -> Any:
        key = kind.plural, namespace, name
        result = merged(deepcopy(self.stored[key]), deepcopy(patch))
        if not dry_run:
            self.stored[key] = result
            self.writes.append(f"patch {name} {part}".rstrip())
        return deepcopy(result)

    def apply(self, kind: Kind, body: dict[str, Any], *, dry_run: bool, force: bool) -> Any:
        namespace, name = body["metadata"].get("namespace"), body["metadata"]["name"]
        if namespace and ("namespaces", None, namespace) not in self.stored:
            raise ApiError(f'namespaces "{namespace}" not found', status=404)
        self.writes_count += 1
        self.forced = force
        metadata = {**body["metadata"], "uid": "1", "resourceVersion": str(self.writes_count)}
        result = {**deepcopy(body), "metadata": metadata}
        if not dry_run:
            self.stored[kind.plural, namespace, name] = result
            self.writes.append(f"apply {name}")
        return deepcopy(result)

    def delete(
        self,
        kind: Kind,
        *,
        namespace: str | None,
        name: str,
        dry_run: bool,
        with_owned: bool = True,
    ) -> None:
        if not dry_run:
            # In the foreground, an object of a new kind stays until the garbage collector has heard
            # of the kind.
            if not (with_owned and kind.group == API_GROUP):
                del self.stored[kind.plural, namespace, name]
            self.writes.append(f"delete {name}")


@pytest.fixture
def merge() -> Any:
    """Returns the function that applies a merge patch."""
    return merged


@pytest.fixture
def new_cluster() -> Any:
    """Returns a function that makes clusters that serve both versions of PureLB's kinds."""
    return lambda: FakeCluster({**KINDS, **OURS})


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(KINDS)


@pytest.fixture
def purelb_cluster() -> FakeCluster:
    """A cluster that serves PureLB's kinds and has the namespace purelb-system."""
    made = FakeCluster({**KINDS, **OURS})
    made.stored["namespaces", None, "purelb-system"] = {}
    return made


@pytest.fixture
def namespace() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "lab"},
        "status": {"phase": "Active"},
    }


@pytest.fixture
def config_map() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "lab"},
        "data": {"colour": "green"},
    }


@pytest.fixture
def secret() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "token", "namespace": "lab"},
        "data": {"user-token": "c2VjcmV0"},
    }
