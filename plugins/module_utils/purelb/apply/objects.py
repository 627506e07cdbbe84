# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Applies or deletes a list of objects, and waits until that has taken effect."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Set

from ..core.api.workloads import pod_problems
from ..core.names import API_GROUP
from ..core.texts import few
from ..module.errors import NOT_FOUND, ApiError, ClusterError
from ..module.kube import Cluster, Kind, Object
from ..module.manifests import action, check, clean, difference, reference, without_managed_fields
from ..module.polling import POLL_INTERVAL, poll
from .contents import contents
from .readiness import conditions, progress
from .refused_pods import refused_pods

# Pod problems in an error message.
MAX_POD_PROBLEMS = 5


@dataclass(frozen=True)
class ObjectResult:
    """Result for one object: its state before and after (None: it does not exist).

    `kept`: why it is not deleted.
    """

    before: Optional[Object]
    after: Optional[Object]
    wanted: Object
    kept: str = ""

    @property
    def action(self) -> str:
        """Returns created, changed, unchanged, deleted or absent."""
        before, after = (clean(obj) if obj else None for obj in (self.before, self.after))
        return action(before, after)

    @property
    def is_change(self) -> bool:
        """Whether the object changes (or would, in check mode)."""
        return self.action in ("created", "changed", "deleted")

    def result(self) -> Dict[str, Any]:
        """Returns one entry of the module's `results`."""
        metadata = (self.after or self.before or self.wanted)["metadata"]
        return {
            "kind": self.wanted["kind"],
            "name": metadata["name"],
            "namespace": metadata.get("namespace"),
            "action": self.action,
            "kept": self.kept,
        }


def manage(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_objects."""
    objects: List[Object] = params["objects"]
    initial: List[Object] = params["initial"]
    for option, given in (("objects", objects), ("initial", initial)):
        for position, obj in enumerate(given):
            check(obj, where=f"{option}[{position}]")
    applier = ObjectApplier(cluster, params, check_mode=check_mode)
    if params["state"] == "present":
        return result_of(applier.apply(objects, initial))
    if initial:
        raise ClusterError("initial requires state=present: list the objects to delete in objects")
    return result_of(applier.delete(objects))


def result_of(outcomes: List[ObjectResult]) -> Dict[str, Any]:
    """Returns what a module reports about a list of objects."""
    return {
        "changed": any(outcome.is_change for outcome in outcomes),
        "results": [outcome.result() for outcome in outcomes],
        "diff": [difference(o.before, o.after) for o in outcomes if o.is_change],
    }


def info(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: ARG001, FBT001 - reading is the same in check mode
    """The work of the module purelb_objects_info."""
    kind = cluster.kind(params["api_version"], params["kind"])
    labels = ",".join(f"{key}={value}" for key, value in params["labels"].items())
    # The items of a list come without apiVersion and kind.
    head = {"apiVersion": params["api_version"], "kind": params["kind"]}

    def convert(obj: Object) -> Object:
        return {**head, **without_managed_fields(obj)}

    def read(fields: str) -> List[Object]:
        if kind is None:
            return []
        namespace = params["namespace"]
        query = {"labelSelector": labels, "fieldSelector": fields}
        return cluster.read_all(kind, namespace=namespace, convert=convert, **query)

    selectors = [f"metadata.name={name}" for name in params["names"]] or [""]
    found = [obj for fields in selectors for obj in read(fields)]
    return {"changed": False, "served": kind is not None, "objects": found}


class ObjectApplier:
    """Applies and deletes objects with the options of one module call."""

    def __init__(self, cluster: Cluster, params: Dict[str, Any], *, check_mode: bool) -> None:
        self._cluster = cluster
        self._namespace: Optional[str] = params["namespace"]
        self._marks: Dict[str, str] = params.get("only_labelled") or {}
        self._only_empty: bool = params.get("only_empty", False)
        self._force: bool = params["force_conflicts"]
        self.check_mode = check_mode
        self._waits: bool = params["wait"] and not check_mode
        self._timeout: int = params["wait_timeout"]

    def apply(self, objects: List[Object], initial: Sequence[Object] = ()) -> List[ObjectResult]:
        """Apply in this order; create what is missing of `initial` after the last Namespace."""
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
        """Delete in reverse order."""
        outcomes = [self._delete(obj) for obj in reversed(objects)]
        if self._waits:
            for outcome in outcomes:
                if not outcome.kept:
                    self._await_gone(outcome)
        return outcomes

    def _apply_each(self, objects: List[Object]) -> List[ObjectResult]:
        outcomes = []
        for obj in objects:
            outcomes.append(self._apply(obj))
            # The next object may be of this kind or in this namespace.
            if self._waits and obj["kind"] in ("CustomResourceDefinition", "Namespace"):
                self.await_ready(obj)
        return outcomes

    def _create(self, obj: Object) -> ObjectResult:
        kind = self._kind(obj)
        stored = self._find(self._placed(obj, kind), kind) if kind else None
        return ObjectResult(stored, stored, obj) if stored else self._apply(obj)

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
            # In a dry run the namespace may not exist yet, if an earlier object creates it.
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
        kept = self._reason_to_keep(before, obj)
        if kept:
            return ObjectResult(before, before, obj, kept)
        if before is not None:
            namespace, name = body["metadata"].get("namespace"), body["metadata"]["name"]
            self._cluster.delete(
                kind,
                namespace=namespace,
                name=name,
                dry_run=self.check_mode,
                # Objects of our kinds own nothing. In the foreground they would stay until the
                # garbage collector has heard of the kind, half a minute after its definition.
                with_owned=kind.group != API_GROUP,
            )
        return ObjectResult(before, None, obj)

    def _reason_to_keep(self, before: Optional[Object], obj: Object) -> str:
        if before is None:
            return ""
        if not self._marks.items() <= (before["metadata"].get("labels") or {}).items():
            marks = ", ".join(f"{key}={value}" for key, value in self._marks.items())
            return f"it has not the labels {marks}, so others made it"
        if obj["kind"] == "Namespace" and self._only_empty:
            found = contents(self._cluster, before["metadata"]["name"])
            return f"it contains {few(found)}" if found else ""
        return ""

    def _kind(self, obj: Object) -> Optional[Kind]:
        return self._cluster.kind(obj["apiVersion"], obj["kind"])

    def _placed(self, obj: Object, kind: Kind) -> Object:
        """Returns the object with a namespace if its kind needs one."""
        if not kind.namespaced or obj["metadata"].get("namespace"):
            return obj
        if not self._namespace:
            raise ClusterError(
                f"{reference(obj)}: give metadata.namespace, or set the option namespace"
            )
        return {**obj, "metadata": {**obj["metadata"], "namespace": self._namespace}}

    def _find(self, body: Object, kind: Kind) -> Optional[Object]:
        metadata = body["metadata"]
        return self._cluster.get(kind, namespace=metadata.get("namespace"), name=metadata["name"])

    def await_ready(self, obj: Object) -> None:
        """Wait until an object is ready; the timeout restarts with each new reason."""
        kind = self._kind(obj)
        if kind is None:
            raise ClusterError(f"{reference(obj)}: its kind is no longer served")
        body = self._placed(obj, kind)
        # A new reason means progress: a rollout with many Pods may take longer than the timeout.
        reasons: Set[str] = set()
        while True:
            found = self._find(body, kind)
            state = progress(found)
            if state.done and self._is_served(body):
                return
            if state.reason not in reasons:
                reasons.add(state.reason)
                deadline = time.monotonic() + self._timeout
            if time.monotonic() >= deadline:
                raise ClusterError(
                    f"{reference(body)} is not ready after {self._timeout} s: {state.reason}"
                    + self._details(found)
                )
            time.sleep(POLL_INTERVAL)

    def _is_served(self, obj: Object) -> bool:
        """Whether the API server serves every version: a moment after `Established`."""
        if obj["kind"] != "CustomResourceDefinition":
            return True
        spec = obj["spec"]
        return all(
            self._cluster.kind(f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            for version in spec["versions"]
            if version["served"]
        )

    def _await_gone(self, outcome: ObjectResult) -> None:
        before = outcome.before
        kind = self._kind(before) if before is not None else None
        if before is None or kind is None:
            return
        found = poll(
            lambda: self._find(before, kind),
            lambda now: now is None or now["metadata"]["uid"] != before["metadata"]["uid"],
            timeout=self._timeout,
        )
        if found is not None and found["metadata"]["uid"] == before["metadata"]["uid"]:
            finalizers = ", ".join(found["metadata"].get("finalizers") or ["none"])
            raise ClusterError(
                f"{reference(found)} is not gone after {self._timeout} s: "
                f"remaining finalizers: {finalizers}" + self._details(found)
            )

    def _details(self, found: Optional[Object]) -> str:
        """Returns the conditions of an object and the problems of its Pods, for error messages."""
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
            ][:MAX_POD_PROBLEMS]
            parts += refused_pods(self._cluster, found)
        return "".join(f"; {part}" for part in parts)
