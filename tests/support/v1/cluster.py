# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A fake cluster with v1, in which the API server and the programs of v2 react immediately."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from purelb.migrate import phases

MARKS = {"purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "default"}
NEAR = {"pool": "10.0.0.200-10.0.0.210", "subnet": "10.0.0.0/24"}
NEAR_V6 = {"pool": "fd00::200-fd00::210", "subnet": "fd00::/64"}


class KilledError(Exception):
    """The run was interrupted."""


def obj(kind: str, name: str, namespace: str | None = "purelb", **fields: Any) -> dict[str, Any]:
    version = {"ServiceGroup": "purelb.io/v1", "Service": "v1", "Lease": "coordination.k8s.io/v1"}
    api_version = version.get(kind, "apps/v1")
    meta = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **fields}


def service(name: str, *addresses: str, **spec: Any) -> dict[str, Any]:
    made = obj("Service", name, "default", spec={"type": "LoadBalancer", **spec})
    made["metadata"]["annotations"] = dict(MARKS)
    return {
        **made,
        "status": {"loadBalancer": {"ingress": [{"ip": address} for address in addresses]}},
    }


def definition(plural: str, kind: str) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.purelb.io", "resourceVersion": "1"},
        "spec": {
            "group": "purelb.io",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"of": "v1"}}],
        },
        "status": {
            "storedVersions": ["v1"],
            "conditions": [{"type": "Established", "status": "True"}],
        },
    }


def program(kind: str, name: str, namespace: str = "purelb") -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": name}]}}
    selector = {"matchLabels": {"app": name}}
    status = {"updatedReplicas": 1, "availableReplicas": 1, "replicas": 1}
    spec = {"selector": selector, "template": template}
    return obj(kind, name, namespace, spec=spec, status=status)


class FakeMigrationCluster:
    """Wraps a FakeCluster that contains v1; `run` calls the module's steps.

    Raises KilledError when `writes_left` is used up. `served_by_both` collects Services that v1
    and v2 served at the same time.
    """

    def __init__(self, cluster: Any, path: Path) -> None:
        self.cluster = cluster
        self.path = path
        self.writes_left: int | None = None
        self.served_by_both: list[str] = []
        self._patch, self._apply, self._delete = cluster.patch, cluster.apply, cluster.delete
        cluster.patch, cluster.apply, cluster.delete = self.patch, self.apply, self.delete
        cluster.user = lambda: "admin"
        cluster.stored["namespaces", None, "purelb"] = {}
        for body in (
            definition("servicegroups", "ServiceGroup"),
            definition("lbnodeagents", "LBNodeAgent"),
            obj("ServiceGroup", "default", spec={"local": {"v4pool": NEAR, "v6pool": NEAR_V6}}),
            program("Deployment", "allocator"),
            program("DaemonSet", "lbnodeagent"),
            service("web", "10.0.0.200", "fd00::200", externalTrafficPolicy="Local"),
            service("shop", "10.0.0.201", "fd00::201"),
            service("named", "10.0.0.202", "fd00::202", loadBalancerClass="purelb.io/purelb"),
        ):
            self.put(body)
        self.before = deepcopy(self.content())

    def put(self, body: dict[str, Any]) -> None:
        plural = {"CustomResourceDefinition": "customresourcedefinitions"}.get(
            body["kind"], f"{body['kind'].lower()}s"
        )
        meta = body["metadata"]
        self.cluster.stored[plural, meta.get("namespace"), meta["name"]] = body

    def content(self) -> dict[Any, Any]:
        """Returns everything that a rollback has to restore."""
        kinds = ("servicegroups", "customresourcedefinitions", "deployments", "daemonsets")
        return {
            key: {
                **{part: body.get(part) for part in ("spec", "status")},
                "annotations": body["metadata"].get("annotations"),
            }
            for key, body in self.cluster.stored.items()
            if key[0] in (*kinds, "services")
        }

    def install(self) -> None:
        """Install v2, as the role purelb_install does before hand_over."""
        stored = self.cluster.stored
        stored["namespaces", None, "purelb-system"] = {}
        for plural in ("servicegroups", "lbnodeagents"):
            crd = stored["customresourcedefinitions", None, f"{plural}.purelb.io"]
            v1 = {"name": "v1", "served": True, "storage": False, "schema": {"of": "v1"}}
            v2 = {"name": "v2", "served": True, "storage": True, "schema": {"of": "v2"}}
            crd["spec"] = {
                **crd["spec"], "versions": [v1, v2], "conversion": {"strategy": "Webhook"},
            }  # fmt: skip
            crd["status"] = {**crd["status"], "storedVersions": ["v1", "v2"]}
        self.put(program("Deployment", "allocator", "purelb-system"))
        self.put(program("DaemonSet", "lbnodeagent", "purelb-system"))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = obj("Lease", "purelb-node-n1", "purelb-system", spec={
            "holderIdentity": "n1", "leaseDurationSeconds": 600, "renewTime": now,
        })  # fmt: skip
        lease["metadata"]["annotations"] = {"purelb.io/subnets": "10.0.0.0/24,fd00::/64"}
        self.put(lease)
        self.put(obj("Lease", "purelb-allocator", "purelb-system", spec={
            "holderIdentity": "allocator-1", "leaseDurationSeconds": 600, "renewTime": now,
        }))  # fmt: skip

    def uninstall(self) -> None:
        """Remove v2, as the role does after roll_back."""
        self.cluster.stored.pop(("leases", "purelb-system", "purelb-node-n1"), None)

    def _count(self, *, dry_run: bool) -> None:
        if self.writes_left is not None and not dry_run:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise KilledError

    def patch(self, kind: Any, **rest: Any) -> Any:
        self._count(dry_run=rest.get("dry_run", False))
        result = self._patch(kind, **rest)
        if kind.plural != "services":
            return result
        service = self.cluster.stored[kind.plural, rest["namespace"], rest["name"]]
        self.react(service)
        return deepcopy(service)

    def apply(self, kind: Any, body: Any, **rest: Any) -> Any:
        self._count(dry_run=rest["dry_run"])
        return self._apply(kind, body, **rest)

    def delete(self, kind: Any, **rest: Any) -> None:
        self._count(dry_run=rest["dry_run"])
        self._delete(kind, **rest)

    def react(self, service: dict[str, Any]) -> None:
        spec, annotations = service["spec"], service["metadata"].setdefault("annotations", {})
        if spec["type"] != "LoadBalancer":
            # As the API server does when the type changes.
            service["status"] = {"loadBalancer": {}}
            spec.pop("externalTrafficPolicy", None)
            spec.pop("loadBalancerClass", None)
            return
        if ("daemonsets", "purelb-system", "lbnodeagent") not in self.cluster.stored:
            return
        if spec.get("loadBalancerClass") == "purelb.io/purelbv2":
            requested = annotations.get("purelb.io/addresses", "")
            if not service["status"]["loadBalancer"].get("ingress") and requested:
                assigned = [{"ip": address} for address in requested.split(",")]
                service["status"] = {"loadBalancer": {"ingress": assigned}}
                annotations.update({**MARKS, "purelb.io/pool-type": "local"})
        elif "purelb.io/pool-type" not in annotations:
            return
        elif self.v1_agents_run():
            self.served_by_both.append(service["metadata"]["name"])
        for entry in service["status"]["loadBalancer"].get("ingress", []):
            family = "IPv6" if ":" in entry["ip"] else "IPv4"
            annotations[f"purelb.io/announcing-{family}"] = f"n1,eth0,{entry['ip']}"

    def v1_agents_run(self) -> bool:
        agents = self.cluster.stored["daemonsets", "purelb", "lbnodeagent"]
        return "nodeSelector" not in agents["spec"]["template"]["spec"]

    def run(self, *steps: str, check_mode: bool = False, **params: Any) -> list[dict[str, Any]]:
        defaults = {
            "namespace": "purelb",
            "target_namespace": "purelb-system",
            "backup": str(self.path / "backup.json"),
            "node_subnets": ["10.0.0.0/24", "fd00::/64"],
            "decisions": {},
            "accept": False,
            "one_by_one": False,
            "services": [],
            "delay": 0,
            "wait_timeout": 1,
        }
        results = []
        for step in steps:
            if step == "hand_over":
                self.install()
            given = {**defaults, **params, "step": step}
            results.append(phases.manage(self.cluster, given, check_mode=check_mode))
            if step == "roll_back":
                self.uninstall()
        return results
