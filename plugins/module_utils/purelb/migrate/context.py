# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the steps of a migration do with the cluster, and how it remembers how far they got."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..apply import definitions
from ..apply.objects import POLL_INTERVAL, ObjectApplier
from ..core import names
from ..module.errors import ApiError, ClusterError
from ..module.kube import Cluster, Kind, Object
from ..module.manifests import changes, clean, difference, reference
from . import backup

NEW = f"{names.API_GROUP}/{names.API_VERSION}"
OLD = f"{names.API_GROUP}/{names.OLD_API_VERSION}"
CRDS = ("servicegroups.purelb.io", "lbnodeagents.purelb.io")
MARK = "purelb-migration"
# The programs have the same names in both generations.
ALLOCATOR = ("Deployment", "allocator")
AGENT = ("DaemonSet", "lbnodeagent")
# Patches at the same time: as many as the client keeps connections open for.
_AT_ONCE = 4
# No node has this label.
NOWHERE = {"purelb.io/migration": "stopped"}

# How far a migration is, in order; the last one is on its way back.
BACKED_UP = "backedUp"
HANDED_OVER = "handedOver"
VERIFIED = "verified"
DONE = "done"
ROLLING_BACK = "rollingBack"


class MigrationContext:
    """One call of a step: the cluster, the options, and all that was changed."""

    def __init__(self, cluster: Cluster, params: Dict[str, Any], *, check_mode: bool) -> None:
        self.cluster = cluster
        self.check_mode = check_mode
        self.origin: str = params["namespace"]
        self.target: str = params["target_namespace"]
        self._file: Optional[str] = params["backup"]
        self._timeout: int = params["wait_timeout"]
        own = {"namespace": None, "force_conflicts": True, "wait": False}
        own["wait_timeout"] = self._timeout
        self._keeper = ObjectApplier(cluster, own, check_mode=check_mode)
        self._waiting = ObjectApplier(cluster, {**own, "wait": True}, check_mode=check_mode)
        self._diff: List[Dict[str, Any]] = []
        self._changed = False
        mark = self._find("v1", "ConfigMap", self.origin, MARK) or {}
        self._data: Dict[str, str] = mark.get("data") or {}

    @property
    def phase(self) -> str:
        """How far it is; empty before it has begun."""
        return self._data.get("phase", "")

    def result(self) -> Dict[str, Any]:
        """What every step returns."""
        return {
            "changed": self._changed,
            "phase": self.phase,
            "backup": self._data.get("backup", ""),
            "diff": self._diff,
        }

    def is_at(self, phase: str, *, before: Tuple[str, ...]) -> bool:
        """Whether the step after a phase is due; False where a later one (`before`) is reached."""
        if self.phase in before:
            return False
        if self.phase != phase:
            raise ClusterError(
                f"the migration is at {self.phase or 'its beginning'}, and this step comes after "
                f"{phase}: run the playbook purelb.purelb.migrate, which takes them in order"
            )
        return True

    def reach(self, phase: str) -> None:
        """Remember in the cluster how far it is."""
        self._data = {**self._data, "phase": phase}
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": MARK,
                    "namespace": self.origin,
                    "labels": {
                        "app.kubernetes.io/name": "purelb",
                        "app.kubernetes.io/component": "migration",
                        "app.kubernetes.io/managed-by": "purelb.purelb",
                    },
                },
                "data": self._data,
            }
        )

    def unmark(self) -> None:
        """Forget that there was a migration."""
        meta = {"name": MARK, "namespace": self.origin}
        self.remove({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
        self._data = {}

    def check_start(self) -> None:
        """An error unless the cluster is as v1 leaves it."""
        missing = [reference(self.old(one)) for one in (ALLOCATOR, AGENT)]
        for obj in self.programs_of_v1():
            missing.remove(reference(obj))
        if missing:
            raise ClusterError(
                f"there is no {' and no '.join(missing)}: give namespace, the one that v1 runs in"
            )
        if not self._file:
            raise ClusterError("backup: give the file to write, on the machine that this runs on")

    def keep(self, taken: backup.Backup) -> None:
        """Write the backup and remember its checksum."""
        path = self._path()
        if not self.check_mode:
            self._data = {"backup": path, "checksum": backup.write(taken, path)}
        self._changed = True
        self.reach(BACKED_UP)

    def backup(self) -> backup.Backup:
        """What was kept."""
        return backup.read(self._path(), self._data.get("checksum", ""))

    def _path(self) -> str:
        if not self._file:
            raise ClusterError(
                f"backup: give the file of the first run: {self._data.get('backup') or 'unknown'}"
            )
        return self._file

    def old(self, program: Tuple[str, str]) -> Object:
        """Head of a program of v1."""
        return _head(program, self.origin)

    def new(self, program: Tuple[str, str]) -> Object:
        """Head of a program of v2."""
        return _head(program, self.target)

    def programs_of_v1(self) -> List[Object]:
        """Those of the programs that are there."""
        found = (self.there(self.old(one)) for one in (ALLOCATOR, AGENT))
        return [obj for obj in found if obj is not None]

    def definitions(self) -> List[Object]:
        """The definitions of our kinds as they are in the cluster."""
        api = "apiextensions.k8s.io/v1"
        found = (self._find(api, "CustomResourceDefinition", None, name) for name in CRDS)
        return [obj for obj in found if obj is not None]

    def read(self, *kinds: str) -> List[Object]:
        """The v1 objects of some kinds, in all namespaces but that of v2."""
        found: List[Object] = []
        for name in kinds:
            kind = self.cluster.kind(OLD, name)
            if kind is not None:
                # A list does not repeat what all its items are.
                head = {"apiVersion": OLD, "kind": name}
                found += [{**head, **obj} for obj in self.cluster.read_all(kind, convert=dict)]
        return [obj for obj in found if obj["metadata"]["namespace"] != self.target]

    def read_all(self) -> List[Object]:
        """All that a migration changes: definitions, objects, programs and Services."""
        objects = self.read("ServiceGroup", "LBNodeAgent")
        return [*self.definitions(), *objects, *self.programs_of_v1(), *self.services()]

    def services(self) -> List[Object]:
        """Every Service."""
        head = {"apiVersion": "v1", "kind": "Service"}
        kind = self._kind(head)
        return [{**head, **obj} for obj in self.cluster.read_all(kind, convert=dict)]

    def apply(self, obj: Object) -> None:
        """Write what is given of an object, and make it if need be."""
        self._note(*((one.before, one.after) for one in self._keeper.apply([obj]) if one.is_change))

    def restore(self, obj: Object, *, waits: bool = False) -> None:
        """Let an object be exactly what is given, without its status."""
        before = self.there(obj)
        if before is None:
            self.apply(clean(obj))
        else:
            patch = changes(clean(before), clean(obj))
            if patch:
                # Not if somebody has changed it since it was read.
                version = {"resourceVersion": before["metadata"]["resourceVersion"]}
                patch["metadata"] = {**patch.get("metadata", {}), **version}
                self.patch(before, patch)
        if waits and not self.check_mode:
            self._waiting.await_ready(obj)

    def patch(self, obj: Object, patch: Object, *, part: str = "") -> Object:
        """Merge a patch into an object; returns what it is then."""
        after = self._send(obj, patch, part)
        self._note_patched(obj, after)
        return after

    def patch_all(self, objects: List[Object], patch_of: Callable[[Object], Object]) -> None:
        """Merge a patch into each object, some of them at the same time."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            afters = pool.map(lambda obj: self._send(obj, patch_of(obj)), objects)
            # Only here is anything remembered; the threads ask the API server, no more.
            for obj, after in zip(objects, afters):  # noqa: B905 - equally long, and Python 3.9
                self._note_patched(obj, after)

    def _send(self, obj: Object, patch: Object, part: str = "") -> Object:
        meta = obj["metadata"]
        return self.cluster.patch(
            self._kind(obj),
            namespace=meta.get("namespace"),
            name=meta["name"],
            patch=patch,
            part=part,
            dry_run=self.check_mode,
        )

    def _note_patched(self, before: Object, after: Object) -> None:
        # A patch that changes nothing is answered like one that does.
        if (clean(before), before.get("status")) != (clean(after), after.get("status")):
            self._note((before, after))

    def remove(self, obj: Object) -> None:
        """Delete an object and wait until it is gone, with its Pods."""
        for one in self._waiting.delete([obj]):
            if one.is_change:
                self._note((one.before, None))

    def drop(self, obj: Object) -> None:
        """Delete an object that owns nothing, at once.

        Waiting for what it owns would write it once more, in the version that is stored then.
        """
        meta = obj["metadata"]
        namespace, name = meta.get("namespace"), meta["name"]
        self.cluster.delete(
            self._kind(obj),
            namespace=namespace,
            name=name,
            dry_run=self.check_mode,
            with_owned=False,
        )
        self._note((obj, None))

    def stop(self, head: Object) -> None:
        """Take all Pods from a program and wait until they are gone; it stays itself."""
        found = self.there(head)
        if found is None:
            return
        template = {"spec": {"template": {"spec": {"nodeSelector": NOWHERE}}}}
        patch = {"spec": {"replicas": 0}} if head["kind"] == "Deployment" else template
        self.patch(found, patch)
        labels = found["spec"]["selector"].get("matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        self.await_nothing(
            lambda: [reference(pod) for pod in self._pods(selector)],
            f"Pods of {reference(head)} do not end",
        )

    def _pods(self, selector: str) -> List[Object]:
        kind = Kind("", "v1", "pods", namespaced=True)
        found = self.cluster.read_all(
            kind, namespace=self.origin, convert=dict, labelSelector=selector
        )
        return [{"kind": "Pod", **pod} for pod in found]

    def store_anew(self) -> None:
        """Have every object stored in the version that is stored now, and no other one named."""
        steward = definitions.StorageMigrator(
            self.cluster, check_mode=self.check_mode, migrates=True
        )
        for definition in self.definitions():
            done = steward.migrate(definition)
            if done is not None:
                self._changed = True
                self._diff.append(done.difference())

    def sleep(self, seconds: float) -> None:
        """Let others do their part."""
        if not self.check_mode:
            time.sleep(seconds)

    def await_object(self, obj: Object, is_done: Callable[[Object], bool], what: str) -> Object:
        """Wait until an object is as it should be; in check mode it never will."""
        deadline = time.monotonic() + self._timeout
        now = obj
        while not self.check_mode and not is_done(now):
            if time.monotonic() >= deadline:
                raise ClusterError(f"{reference(obj)}: waited {self._timeout} s until {what}")
            time.sleep(POLL_INTERVAL / 5)
            found = self.there(obj)
            if found is None:
                return obj  # whoever deleted it wants no address
            now = found
        return now

    def await_nothing(self, look: Callable[[], List[str]], what: str) -> None:
        """Wait until nothing is found any more."""
        deadline = time.monotonic() + self._timeout
        while not self.check_mode:
            found = look()
            if not found:
                return
            if time.monotonic() >= deadline:
                raise ClusterError(f"after {self._timeout} s {what}: {'; '.join(found)}")
            time.sleep(POLL_INTERVAL / 5)

    def insist(self, work: Callable[[], Any]) -> Any:
        """Do something as soon as the API server has followed its definitions."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return work()
            except ApiError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(POLL_INTERVAL)

    def _note(self, *changed: Tuple[Optional[Object], Optional[Object]]) -> None:
        for before, after in changed:
            self._changed = True
            self._diff.append(difference(before, after))

    def there(self, obj: Object) -> Optional[Object]:
        """What is there of an object."""
        meta = obj["metadata"]
        return self._find(obj["apiVersion"], obj["kind"], meta.get("namespace"), meta["name"])

    def _find(
        self, api_version: str, kind: str, namespace: Optional[str], name: str
    ) -> Optional[Object]:
        served = self.cluster.kind(api_version, kind)
        return self.cluster.get(served, namespace=namespace, name=name) if served else None

    def _kind(self, obj: Object) -> Kind:
        kind = self.cluster.kind(obj["apiVersion"], obj["kind"])
        if kind is None:
            raise ClusterError(f"the cluster does not serve {obj['apiVersion']} {obj['kind']}")
        return kind


def _head(program: Tuple[str, str], namespace: str) -> Object:
    kind, name = program
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta}
