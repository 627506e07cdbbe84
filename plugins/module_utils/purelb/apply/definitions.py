# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Installs, upgrades and removes CustomResourceDefinitions, and migrates stored objects.

An upgrade that changes the storage version rewrites every object and then removes the old versions
from `status.storedVersions`, so that a later release may stop serving them. Definitions with other
labels than the given ones belong to another installation and are never removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from ..core.errors import ObjectError
from ..module.errors import CONFLICT, NOT_FOUND, ApiError, ClusterError
from ..module.kube import Cluster, Kind, Object
from ..module.manifests import check, reference
from .objects import ObjectApplier, result_of

DEFINITIONS = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
# Names in an error message; it only counts the others.
MAX_NAMES = 10


@dataclass(frozen=True)
class Migration:
    """The rewrite of a definition's objects in its present storage version."""

    definition: Object
    stored_before: Tuple[str, ...]
    stored: Tuple[str, ...]
    objects: int = 0

    @property
    def is_change(self) -> bool:
        """Whether an object may have been stored in another version."""
        return self.stored_before != self.stored

    def difference(self) -> Dict[str, Any]:
        """Returns the change for `--diff`."""
        header = f"{reference(self.definition)}, status"
        return {
            "before_header": header,
            "after_header": header,
            "before": {"storedVersions": list(self.stored_before)},
            "after": {"storedVersions": list(self.stored)},
        }


def manage(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_crd."""
    definitions: List[Object] = params["definitions"] or []
    if not definitions:
        raise ClusterError("definitions: empty: omit the option to apply those of the collection")
    for position, obj in enumerate(definitions):
        check(obj, where=f"definitions[{position}]")
        if obj["kind"] != "CustomResourceDefinition":
            raise ObjectError(
                f"definitions[{position}]", "kind", "must be CustomResourceDefinition"
            )
    # Always wait, as the programs watch these kinds.
    options = {**params, "namespace": None, "wait": True}
    applier = ObjectApplier(cluster, options, check_mode=check_mode)
    if params["state"] == "absent":
        return _remove(cluster, applier, definitions, with_objects=params["remove_objects"])
    migrator = StorageMigrator(cluster, check_mode=check_mode, migrates=params["migrate"])
    return _install(cluster, applier, definitions, migrator)


def _install(
    cluster: Cluster, applier: ObjectApplier, definitions: List[Object], migrator: StorageMigrator
) -> Dict[str, Any]:
    # Before the change, with the present conversion: the new definition may have another one.
    early = {_name(obj): migrator.migrate(_find(cluster, obj)) for obj in definitions}
    for obj in definitions:
        migration = early[_name(obj)]
        stored = migration.stored if migration else _stored(_find(cluster, obj) or {})
        _refuse_unreadable(obj, stored)
    outcomes = applier.apply(definitions)
    late = [
        migrator.migrate(outcome.after, after=early[_name(outcome.wanted)]) for outcome in outcomes
    ]
    done = [
        migration
        for migration in (*early.values(), *late)
        if migration is not None and migration.is_change
    ]
    result = result_of(outcomes)
    return {
        **result,
        "changed": result["changed"] or bool(done),
        "migrated": [
            {"name": _name(migration.definition), "objects": migration.objects}
            for migration in done
        ],
        "diff": result["diff"] + [migration.difference() for migration in done],
    }


def _remove(
    cluster: Cluster, applier: ObjectApplier, definitions: List[Object], *, with_objects: bool
) -> Dict[str, Any]:
    found = [(obj, _find(cluster, obj)) for obj in definitions]
    foreign = [stored for obj, stored in found if stored and not _is_same_owner(obj, stored)]
    ours = [obj for obj, stored in found if stored is None or _is_same_owner(obj, stored)]
    removed = [stored for obj, stored in found if stored and obj in ours]
    if not with_objects:
        _refuse_with_objects(cluster, removed)
    if not applier.check_mode:
        for stored in removed:
            _disable_conversion(cluster, stored)
    return {
        **result_of(applier.delete(ours)),
        "migrated": [],
        "warnings": [
            f"{reference(stored)} stays: it has other labels, so another installation made it"
            for stored in foreign
        ],
    }


def _disable_conversion(cluster: Cluster, definition: Object) -> None:
    """Switch the conversion off, so that the objects can be deleted without its webhook.

    The API server reads each object before it deletes it with its definition. If the webhook is
    already gone, it would wait for ever.
    """
    if (definition["spec"].get("conversion") or {}).get("strategy", "None") != "None":
        patch = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
        cluster.patch(DEFINITIONS, namespace=None, name=_name(definition), patch=patch)


def _refuse_unreadable(wanted: Object, stored: Tuple[str, ...]) -> None:
    """Raise ClusterError if stored objects would lose their fields.

    Without a conversion the API server only changes the name of the version, and drops the fields
    that the other version does not have.
    """
    if (wanted["spec"].get("conversion") or {}).get("strategy", "None") != "None":
        return
    schemas = {version["name"]: version.get("schema") for version in wanted["spec"]["versions"]}
    storage = _storage_version(wanted)
    for version in stored:
        if version in schemas and schemas[version] != schemas[storage]:
            raise ClusterError(
                f"{reference(wanted)}: objects may be stored as {version}, and without conversion "
                f"{storage} would read them as empty: apply definitions that convert them first, "
                f"then run again"
            )


def _refuse_with_objects(cluster: Cluster, definitions: List[Object]) -> None:
    """Raise ClusterError if objects would be deleted with the definitions."""
    counts, known = [], []
    for definition in definitions:
        kind = definition["spec"]["names"]["kind"]
        found = sorted(_objects_of(cluster, definition))
        known += [f"{kind} " + "/".join(filter(None, key)) for key in found]
        if found:
            counts.append(f"{len(found)} {kind}")
    if known:
        rest = f" and {len(known) - MAX_NAMES} more" if len(known) > MAX_NAMES else ""
        raise ClusterError(
            f"not removed: objects would be deleted with the definitions: {', '.join(counts)} "
            f"({', '.join(known[:MAX_NAMES])}{rest}). Delete them first, or set remove_objects"
        )


class StorageMigrator:
    """Rewrites stored objects in the storage version of their definition."""

    def __init__(self, cluster: Cluster, *, check_mode: bool, migrates: bool) -> None:
        self._cluster = cluster
        self._check_mode = check_mode
        self._migrates = migrates

    def migrate(
        self, applied: Optional[Object], *, after: Optional[Migration] = None
    ) -> Optional[Migration]:
        """Migrate the objects of a definition; None if all are in the storage version already.

        In check mode nothing is written, so the versions that an earlier migration (`after`) would
        have removed are subtracted here.
        """
        if applied is None or not self._migrates:
            return None
        # The status has changed since; in check mode only the answer of the dry run has it.
        definition = applied if self._check_mode else _find(self._cluster, applied)
        if definition is None:
            return None
        removed = set(after.stored_before) - set(after.stored) if after else set()
        stored = tuple(version for version in _stored(definition) if version not in removed)
        migration = Migration(definition, stored, (_storage_version(definition),))
        if not stored or not migration.is_change:
            return None
        names = _objects_of(self._cluster, definition)
        if not self._check_mode:
            for namespace, name in names:
                self._rewrite(definition, namespace, name)
            self._record(migration)
        return Migration(definition, migration.stored_before, migration.stored, len(names))

    def _rewrite(self, definition: Object, namespace: str, name: str) -> None:
        try:
            self._cluster.patch(_kind_of(definition), namespace=namespace, name=name, patch={})
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def _record(self, migration: Migration) -> None:
        """Set storedVersions unless the definition has changed since its objects were rewritten."""
        definition = migration.definition
        patch = {
            "metadata": {"resourceVersion": definition["metadata"]["resourceVersion"]},
            "status": {"storedVersions": list(migration.stored)},
        }
        try:
            self._cluster.patch(
                DEFINITIONS, namespace=None, name=_name(definition), patch=patch, part="status"
            )
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            raise ClusterError(
                f"{reference(definition)} changed while its objects were rewritten: run again"
            ) from error


def _find(cluster: Cluster, obj: Object) -> Optional[Object]:
    return cluster.get(DEFINITIONS, namespace=None, name=_name(obj))


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _stored(definition: Object) -> Tuple[str, ...]:
    return tuple(definition.get("status", {}).get("storedVersions") or ())


def _storage_version(definition: Object) -> str:
    versions = definition["spec"]["versions"]
    return next(str(version["name"]) for version in versions if version["storage"])


def _kind_of(definition: Object) -> Kind:
    """Returns where the objects are served, in the storage version if that one is served."""
    spec = definition["spec"]
    served = [version for version in spec["versions"] if version["served"]]
    best = max(served or spec["versions"], key=lambda version: bool(version["storage"]))
    return Kind(spec["group"], best["name"], spec["names"]["plural"], spec["scope"] == "Namespaced")


def _objects_of(cluster: Cluster, definition: Object) -> List[Tuple[str, str]]:
    """Returns namespace (empty if none) and name of every object of a definition."""

    def convert(obj: Object) -> Tuple[str, str]:
        return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]

    try:
        return cluster.read_all(_kind_of(definition), convert=convert)
    except ApiError as error:
        # Not served: in check mode, or while the definition is not established.
        if error.status != NOT_FOUND:
            raise
        return []


def _is_same_owner(wanted: Object, stored: Object) -> bool:
    """Whether the stored definition has all labels of the wanted one."""
    labels = (wanted["metadata"].get("labels") or {}).items()
    return labels <= (stored["metadata"].get("labels") or {}).items()
