# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Writes the objects of a migration and collects the changes for the result and `--diff`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional

from ..apply import definitions
from ..apply.objects import ObjectApplier
from ..module.kube import Cluster, Object
from ..module.manifests import changes, clean, difference
from .reader import MigrationReader

# Concurrent patches: one for each connection that the client keeps open.
_MAX_PATCHES = 4


class MigrationWriter:
    """Writes to one cluster; dry runs in check mode."""

    def __init__(
        self, cluster: Cluster, reader: MigrationReader, *, check_mode: bool, wait_timeout: int
    ) -> None:
        self._cluster = cluster
        self._reader = reader
        self._check_mode = check_mode
        options = {"namespace": None, "force_conflicts": True, "wait_timeout": wait_timeout}
        self._applier = ObjectApplier(cluster, {**options, "wait": False}, check_mode=check_mode)
        self._waiting = ObjectApplier(cluster, {**options, "wait": True}, check_mode=check_mode)
        self.changed = False
        self.diff: List[Dict[str, Any]] = []

    def apply(self, obj: Object) -> None:
        """Apply the given fields of an object; create it if it does not exist."""
        for result in self._applier.apply([obj]):
            if result.is_change:
                self._record(result.before, result.after)

    def restore(self, obj: Object, *, wait: bool = False) -> None:
        """Make an object equal to the given one, except for its status."""
        before = self._reader.get(obj)
        if before is None:
            self.apply(clean(obj))
        else:
            patch = changes(clean(before), clean(obj))
            if patch:
                # With the version that was read, so that a concurrent change causes a conflict.
                version = {"resourceVersion": before["metadata"]["resourceVersion"]}
                patch["metadata"] = {**patch.get("metadata", {}), **version}
                self.patch(before, patch)
        if wait and not self._check_mode:
            self._waiting.await_ready(obj)

    def patch(self, obj: Object, patch: Object, *, part: str = "") -> Object:
        """Merge a patch into an object, or into a part such as `status`; returns the new object."""
        after = self._send(obj, patch, part)
        self._record_patch(obj, after)
        return after

    def patch_all(self, objects: List[Object], patch_of: Callable[[Object], Object]) -> None:
        """Merge `patch_of(object)` into each object, some of them concurrently."""
        with ThreadPoolExecutor(_MAX_PATCHES) as pool:
            afters = pool.map(lambda obj: self._send(obj, patch_of(obj)), objects)
            # Changes are recorded here only: the threads do nothing but send requests.
            for obj, after in zip(objects, afters):  # noqa: B905 - equally long, and Python 3.9
                self._record_patch(obj, after)

    def delete(self, obj: Object) -> None:
        """Delete an object and wait until it and its Pods are gone."""
        for result in self._waiting.delete([obj]):
            if result.is_change:
                self._record(result.before, None)

    def delete_unowned(self, obj: Object) -> None:
        """Delete an object that owns nothing, without waiting.

        A deletion in the foreground would store the object once more, in the version that is the
        storage version by then.
        """
        meta = obj["metadata"]
        self._cluster.delete(
            self._reader.kind(obj),
            namespace=meta.get("namespace"),
            name=meta["name"],
            dry_run=self._check_mode,
            with_owned=False,
        )
        self._record(obj, None)

    def migrate_storage(self) -> None:
        """Store every object in the present storage version, and record only that version."""
        migrator = definitions.StorageMigrator(
            self._cluster, check_mode=self._check_mode, migrates=True
        )
        for definition in self._reader.definitions():
            migration = migrator.migrate(definition)
            if migration is not None:
                self.changed = True
                self.diff.append(migration.difference())

    def _send(self, obj: Object, patch: Object, part: str = "") -> Object:
        meta = obj["metadata"]
        return self._cluster.patch(
            self._reader.kind(obj),
            namespace=meta.get("namespace"),
            name=meta["name"],
            patch=patch,
            part=part,
            dry_run=self._check_mode,
        )

    def _record_patch(self, before: Object, after: Object) -> None:
        # The API server answers a patch without effect like any other.
        if (clean(before), before.get("status")) != (clean(after), after.get("status")):
            self._record(before, after)

    def _record(self, before: Optional[Object], after: Optional[Object]) -> None:
        self.changed = True
        self.diff.append(difference(before, after))
