# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The role's ServiceAccounts, without programs, and API clients that act as one of them.

The manifests are the role's own. Tokens are requested as by the kubelet: bound to a Pod on a node.
These Pods exist only for the tokens and never start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import yaml

from labkit.api import Api
from labkit.lab import Lab
from tests.support import ROOT
from tests.support.lab.cluster_queries import eventually

CRDS = sorted((ROOT / "roles/purelb_install/files/crds").glob("*.yaml"))
PERMISSIONS = ("serviceaccounts", "clusterroles", "clusterrolebindings", "roles", "rolebindings")
Json = dict[str, Any]


@contextmanager
def objects_applied(lab: Lab, things: list[Json]) -> Iterator[None]:
    """Apply objects in this order; afterwards delete those that did not exist before."""
    ours = []
    try:
        for thing in things:
            path = lab.api.path_of(thing)
            if not lab.api.exists(path):
                ours.append((thing["kind"], path))
            lab.api.apply(thing)
        yield
    finally:
        for _kind, path in reversed(ours):
            lab.api.delete(path)
        # The next test would take what is being deleted for what stays.
        for kind, path in ours:
            if kind in ("CustomResourceDefinition", "Namespace"):
                lab.api.wait(path, lambda seen: seen is None, what=f"end of {path}", seconds=60)


@contextmanager
def definitions_installed(lab: Lab) -> Iterator[None]:
    """Install the definitions of ServiceGroup and LBNodeAgent, unless they exist."""
    definitions = [yaml.safe_load(path.read_text()) for path in CRDS]
    with objects_applied(lab, definitions):
        for definition in definitions:
            lab.api.wait(lab.api.path_of(definition), _is_established, seconds=30)
            spec = definition["spec"]
            for version in filter(itemgetter("served"), spec["versions"]):
                root = f"/apis/{spec['group']}/{version['name']}"
                listing = f"{root}/{spec['names']['plural']}"
                eventually(lambda path=listing: lab.api.exists(path), f"list of {listing}")
        yield


def _is_established(definition: Json | None) -> bool:
    conditions = (definition or {}).get("status", {}).get("conditions", ())
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def manifests(
    playbook: Callable[..., Any], folder: Path, settings: Mapping[str, Any]
) -> dict[str, list[Json]]:
    """Return the objects that the role would apply with these settings, by file name."""
    variables = {"purelb_install_manifests_dir": str(folder), **settings}
    playbook("purelb.purelb.install", "-e", json.dumps(variables))
    return {p.stem: list(yaml.safe_load_all(p.read_text())) for p in folder.glob("*.yaml")}


@contextmanager
def pod(lab: Lab, namespace: str, *, account: str, node: str, name: str) -> Iterator[Json]:
    """Create a Pod on a node that never starts; delete it afterwards."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeName": node,
            "serviceAccountName": account,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {"name": "none", "image": "localhost/none:0", "imagePullPolicy": "Never"}
            ],
        },
    }
    made = lab.api.create(body)
    try:
        yield made
    finally:
        lab.api.delete(lab.api.path_of(made), gracePeriodSeconds=0)


def client(lab: Lab, namespace: str, account: str, bound_to: Json | None = None) -> Api:
    """Return a client with a token of this ServiceAccount, bound to a Pod or unbound."""
    spec: Json = {"expirationSeconds": 600}
    if bound_to is not None:
        meta = bound_to["metadata"]
        reference = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        spec["boundObjectRef"] = reference
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = lab.api.call("POST", path, request)
    return lab.api.with_token(answer["status"]["token"])
