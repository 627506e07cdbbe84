# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Brings a list of objects into the cluster, or takes it out, and waits for the outcome."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Set

from ..module.errors import NOT_FOUND, ApiError, ClusterError
from ..module.kube import Cluster, Kind, Object
from ..module.manifests import action, check, clean, difference, reference, without_managed_fields
from .readiness import conditions, pod_problems, progress

# Often enough not to be noticed, seldom enough for a busy API server.
POLL_INTERVAL = 0.5
# A message is for a screen: the first Pods tell the story.
MAX_HINDRANCES = 5


@dataclass(frozen=True)
class ObjectResult:
    """What became of one object."""

    before: Optional[Object]
    after: Optional[Object]
    asked: Object

    @property
    def action(self) -> str:
        """One word: created, changed, unchanged, deleted or absent."""
        before, after = (clean(obj) if obj else None for obj in (self.before, self.after))
        return action(before, after)

    @property
    def is_change(self) -> bool:
        """Whether the cluster is (or would be) another than before."""
        return self.action in ("created", "changed", "deleted")

    def result(self) -> Dict[str, Any]:
        """One entry of the module's `results`."""
        metadata = (self.after or self.before or self.asked)["metadata"]
        return {
            "kind": self.asked["kind"],
            "name": metadata["name"],
            "namespace": metadata.get("namespace"),
            "action": self.action,
        }


def manage(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_objects."""
    objects: List[Object] = params["objects"]
    initial: List[Object] = params["initial"]
    for option, given in (("objects", objects), ("initial", initial)):
        for position, obj in enumerate(given):
            check(obj, where=f"{option}[{position}]")
    keeper = ObjectApplier(cluster, params, check_mode=check_mode)
    if params["state"] == "present":
        return result_of(keeper.apply(objects, initial))
    if initial:
        raise ClusterError("initial goes with state=present: name in objects what is to be deleted")
    return result_of(keeper.delete(objects))


def result_of(outcomes: List[ObjectResult]) -> Dict[str, Any]:
    """What a module says of what it did."""
    return {
        "changed": any(outcome.is_change for outcome in outcomes),
        "results": [outcome.result() for outcome in outcomes],
        "diff": [difference(o.before, o.after) for o in outcomes if o.is_change],
    }


def info(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: ARG001, FBT001 - reading is the same in check mode
    """The work of the module purelb_objects_info."""
    kind = cluster.kind(params["api_version"], params["kind"])
    labels = ",".join(f"{key}={value}" for key, value in params["labels"].items())
    # A list does not repeat what all its items are.
    head = {"apiVersion": params["api_version"], "kind": params["kind"]}

    def convert(obj: Object) -> Object:
        return {**head, **without_managed_fields(obj)}

    def read(fields: str) -> List[Object]:
        if kind is None:
            return []
        where = params["namespace"]
        query = {"labelSelector": labels, "fieldSelector": fields}
        return cluster.read_all(kind, namespace=where, convert=convert, **query)

    each = [f"metadata.name={name}" for name in params["names"]] or [""]
    found = [obj for fields in each for obj in read(fields)]
    return {"changed": False, "served": kind is not None, "objects": found}


class ObjectApplier:
    """Applies and deletes with the options of one call."""

    def __init__(self, cluster: Cluster, params: Dict[str, Any], *, check_mode: bool) -> None:
        self._cluster = cluster
        self._namespace: Optional[str] = params["namespace"]
        self._force: bool = params["force_conflicts"]
        self.check_mode = check_mode
        self._waits: bool = params["wait"] and not check_mode
        self._timeout: int = params["wait_timeout"]

    def apply(self, objects: List[Object], initial: Sequence[Object] = ()) -> List[ObjectResult]:
        """Apply in the order given; after the last Namespace create what is missing of initial."""
        ends = (end for end, obj in enumerate(objects, 1) if obj["kind"] == "Namespace")
        first = max(ends, default=0)
        outcomes = self._apply_each(objects[:first])
        outcomes += [self._create(obj) for obj in initial]
        outcomes += self._apply_each(objects[first:])
        if self._waits:
            for obj in objects:
                self.await_ready(obj)
        return outcomes

    def delete(self, objects: List[Object]) -> List[ObjectResult]:
        """Delete in the reverse of the order in which the objects would be applied."""
        outcomes = [self._delete(obj) for obj in reversed(objects)]
        if self._waits:
            for outcome in outcomes:
                self._await_gone(outcome)
        return outcomes

    def _apply_each(self, objects: List[Object]) -> List[ObjectResult]:
        outcomes = []
        for obj in objects:
            outcomes.append(self._apply(obj))
            # What comes next may be of this kind or in this namespace.
            if self._waits and obj["kind"] in ("CustomResourceDefinition", "Namespace"):
                self.await_ready(obj)
        return outcomes

    def _create(self, obj: Object) -> ObjectResult:
        kind = self._kind(obj)
        there = self._find(self._placed(obj, kind), kind) if kind else None
        return ObjectResult(there, there, obj) if there else self._apply(obj)

    def _apply(self, obj: Object) -> ObjectResult:
        kind = self._kind(obj)
        if kind is None:
            if self.check_mode:
                return ObjectResult(None, obj, obj)
            raise ClusterError(
                f"{reference(obj)}: the cluster does not serve {obj['apiVersion']} {obj['kind']}: "
                f"apply its CustomResourceDefinition first, with wait"
            )
        body = self._placed(obj, kind)
        before = self._find(body, kind)
        try:
            after = self._cluster.apply(kind, body, dry_run=self.check_mode, force=self._force)
        except ApiError as error:
            # A dry run cannot know of a namespace that the objects before this one will make.
            if self.check_mode and before is None and error.status == NOT_FOUND:
                return ObjectResult(None, body, obj)
            raise
        return ObjectResult(before, after, obj)

    def _delete(self, obj: Object) -> ObjectResult:
        kind = self._kind(obj)
        if kind is None:
            return ObjectResult(None, None, obj)
        body = self._placed(obj, kind)
        before = self._find(body, kind)
        if before is not None:
            namespace, name = body["metadata"].get("namespace"), body["metadata"]["name"]
            self._cluster.delete(kind, namespace=namespace, name=name, dry_run=self.check_mode)
        return ObjectResult(before, None, obj)

    def _kind(self, obj: Object) -> Optional[Kind]:
        return self._cluster.kind(obj["apiVersion"], obj["kind"])

    def _placed(self, obj: Object, kind: Kind) -> Object:
        """The object with a namespace where its kind needs one."""
        if not kind.namespaced or obj["metadata"].get("namespace"):
            return obj
        if not self._namespace:
            raise ClusterError(
                f"{reference(obj)}: give metadata.namespace, or the option namespace for all"
            )
        return {**obj, "metadata": {**obj["metadata"], "namespace": self._namespace}}

    def _find(self, body: Object, kind: Kind) -> Optional[Object]:
        metadata = body["metadata"]
        return self._cluster.get(kind, namespace=metadata.get("namespace"), name=metadata["name"])

    def await_ready(self, obj: Object) -> None:
        """Wait until an object has become what it was applied for."""
        kind = self._kind(obj)
        if kind is None:
            raise ClusterError(f"{reference(obj)}: its kind is no longer served")
        body = self._placed(obj, kind)
        # What is said for the first time is progress: many Pods may take as long as they need.
        said: Set[str] = set()
        while True:
            found = self._find(body, kind)
            state = progress(found)
            if state.done and self._is_served(body):
                return
            if state.reason not in said:
                said.add(state.reason)
                deadline = time.monotonic() + self._timeout
            if time.monotonic() >= deadline:
                raise ClusterError(
                    f"{reference(body)} is not ready after {self._timeout} s: {state.reason}"
                    + self._details(found)
                )
            time.sleep(POLL_INTERVAL)

    def _is_served(self, obj: Object) -> bool:
        """Whether objects of a definition can be made: a moment later than it is established."""
        if obj["kind"] != "CustomResourceDefinition":
            return True
        spec = obj["spec"]
        return all(
            self._cluster.kind(f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            for version in spec["versions"]
            if version["served"]
        )

    def _await_gone(self, outcome: ObjectResult) -> None:
        if outcome.before is None:
            return
        kind = self._kind(outcome.before)
        deadline = time.monotonic() + self._timeout
        while kind is not None:
            found = self._find(outcome.before, kind)
            if found is None or found["metadata"]["uid"] != outcome.before["metadata"]["uid"]:
                return
            if time.monotonic() >= deadline:
                finalizers = ", ".join(found["metadata"].get("finalizers") or ["none"])
                raise ClusterError(
                    f"{reference(found)} is not gone after {self._timeout} s: "
                    f"finalizers that it waits for: {finalizers}" + self._details(found)
                )
            time.sleep(POLL_INTERVAL)

    def _details(self, found: Optional[Object]) -> str:
        """Conditions of the object and what holds up its Pods, to go on with from a message."""
        if found is None:
            return ""
        parts = conditions(found)
        labels = found.get("spec", {}).get("selector", {})
        labels = labels.get("matchLabels") if isinstance(labels, dict) else None
        pods = self._cluster.kind("v1", "Pod")
        if labels and pods:
            selector = ",".join(f"{key}={value}" for key, value in labels.items())
            parts += [
                text
                for pod in self._cluster.items(
                    pods, namespace=found["metadata"]["namespace"], labelSelector=selector
                )
                for text in pod_problems(pod)
            ][:MAX_HINDRANCES]
        return "".join(f"; {part}" for part in parts)
