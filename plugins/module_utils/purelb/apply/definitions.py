# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Installs, upgrades and removes CustomResourceDefinitions, with what is stored by them.

An upgrade that changes the stored version writes every object anew and then takes the old versions
out of `status.storedVersions`, so that a later release may stop serving them. Definitions with
other labels than the given ones belong to somebody else and are never removed.
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
# A message is for a screen: the rest is a number.
MAX_NAMES = 10


@dataclass(frozen=True)
class Migration:
    """Objects of a definition written anew in the version that it stores now."""

    definition: Object
    stored_before: Tuple[str, ...]
    stored: Tuple[str, ...]
    objects: int = 0

    @property
    def is_change(self) -> bool:
        """Whether anything may have been stored in another version."""
        return self.stored_before != self.stored

    def difference(self) -> Dict[str, Any]:
        """The change for `--diff`."""
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
        raise ClusterError("definitions: empty: leave the option out for those of the collection")
    for position, obj in enumerate(definitions):
        check(obj, where=f"definitions[{position}]")
        if obj["kind"] != "CustomResourceDefinition":
            raise ObjectError(
                f"definitions[{position}]", "kind", "must be CustomResourceDefinition"
            )
    # The programs watch these kinds, so that waiting is not left to choice.
    own = {**params, "namespace": None, "wait": True}
    keeper = ObjectApplier(cluster, own, check_mode=check_mode)
    if params["state"] == "absent":
        return _remove(cluster, keeper, definitions, with_objects=params["remove_objects"])
    steward = StorageMigrator(cluster, check_mode=check_mode, migrates=params["migrate"])
    return _install(cluster, keeper, definitions, steward)


def _install(
    cluster: Cluster, keeper: ObjectApplier, definitions: List[Object], steward: StorageMigrator
) -> Dict[str, Any]:
    # Before the change, by the conversion that there is now: afterwards there may be another one.
    early = {_name(obj): steward.migrate(_find(cluster, obj)) for obj in definitions}
    for obj in definitions:
        migration = early[_name(obj)]
        stored = migration.stored if migration else _stored(_find(cluster, obj) or {})
        _refuse_unreadable(obj, stored)
    outcomes = keeper.apply(definitions)
    late = [steward.migrate(one.after, after=early[_name(one.asked)]) for one in outcomes]
    done = [one for one in [*early.values(), *late] if one is not None and one.is_change]
    result = result_of(outcomes)
    return {
        **result,
        "changed": result["changed"] or bool(done),
        "migrated": [{"name": _name(one.definition), "objects": one.objects} for one in done],
        "diff": result["diff"] + [one.difference() for one in done],
    }


def _remove(
    cluster: Cluster, keeper: ObjectApplier, definitions: List[Object], *, with_objects: bool
) -> Dict[str, Any]:
    found = [(obj, _find(cluster, obj)) for obj in definitions]
    foreign = [there for obj, there in found if there and not _is_same_owner(obj, there)]
    ours = [obj for obj, there in found if there is None or _is_same_owner(obj, there)]
    if not with_objects:
        _refuse_with_objects(cluster, [there for obj, there in found if there and obj in ours])
    if not keeper.check_mode:
        for there in (there for obj, there in found if there and obj in ours):
            _convert_no_more(cluster, there)
    return {
        **result_of(keeper.delete(ours)),
        "migrated": [],
        "warnings": [
            f"{reference(there)} stays: it has other labels, so another installation made it"
            for there in foreign
        ],
    }


def _convert_no_more(cluster: Cluster, definition: Object) -> None:
    """Let the objects go without whoever converts them, which may be gone already.

    The API server reads each one before it deletes it with its definition, and would wait for ever.
    """
    if (definition["spec"].get("conversion") or {}).get("strategy", "None") != "None":
        patch = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
        cluster.patch(DEFINITIONS, namespace=None, name=_name(definition), patch=patch)


def _refuse_unreadable(wanted: Object, stored: Tuple[str, ...]) -> None:
    """An error if objects of another version would be read as if they were of the stored one.

    Without a conversion the API server only changes the name of the version, and drops the fields
    that the other one does not have.
    """
    if (wanted["spec"].get("conversion") or {}).get("strategy", "None") != "None":
        return
    schemas = {one["name"]: one.get("schema") for one in wanted["spec"]["versions"]}
    storage = _storage_version(wanted)
    for version in stored:
        if version in schemas and schemas[version] != schemas[storage]:
            raise ClusterError(
                f"{reference(wanted)}: objects may be stored as {version}, and without conversion "
                f"{storage} would read them as empty: apply definitions that convert them first, "
                f"then run this again"
            )


def _refuse_with_objects(cluster: Cluster, definitions: List[Object]) -> None:
    """An error if there is anything that would go with the definitions."""
    counts, known = [], []
    for definition in definitions:
        kind = definition["spec"]["names"]["kind"]
        found = sorted(_objects_of(cluster, definition))
        known += [f"{kind} " + "/".join(filter(None, one)) for one in found]
        if found:
            counts.append(f"{len(found)} {kind}")
    if known:
        rest = f" and {len(known) - MAX_NAMES} more" if len(known) > MAX_NAMES else ""
        raise ClusterError(
            f"not removed, because objects would go with the definitions: {', '.join(counts)} "
            f"({', '.join(known[:MAX_NAMES])}{rest}). Delete them first, or set remove_objects"
        )


class StorageMigrator:
    """Keeps what is stored in the version in which it should be."""

    def __init__(self, cluster: Cluster, *, check_mode: bool, migrates: bool) -> None:
        self._cluster = cluster
        self._check_mode = check_mode
        self._migrates = migrates

    def migrate(
        self, applied: Optional[Object], *, after: Optional[Migration] = None
    ) -> Optional[Migration]:
        """Migrate to the version that is stored now, if anything may be in another one.

        In check mode nothing is recorded, so what was foretold before (`after`) is taken away here.
        """
        if applied is None or not self._migrates:
            return None
        # Waiting has changed its status; in check mode only the dry run's answer has the versions.
        there = applied if self._check_mode else _find(self._cluster, applied)
        if there is None:
            return None
        gone = set(after.stored_before) - set(after.stored) if after else set()
        stored = tuple(version for version in _stored(there) if version not in gone)
        migration = Migration(there, stored, (_storage_version(there),))
        if not stored or not migration.is_change:
            return None
        names = _objects_of(self._cluster, there)
        if not self._check_mode:
            for namespace, name in names:
                self._write_anew(there, namespace, name)
            self._record(migration)
        return Migration(there, migration.stored_before, migration.stored, len(names))

    def _write_anew(self, definition: Object, namespace: str, name: str) -> None:
        try:
            self._cluster.patch(_kind_of(definition), namespace=namespace, name=name, patch={})
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def _record(self, migration: Migration) -> None:
        """Only for the definition that was looked at: one that changed may store otherwise."""
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
                f"{reference(definition)} changed while its objects were written anew: run again"
            ) from error


def _find(cluster: Cluster, obj: Object) -> Optional[Object]:
    return cluster.get(DEFINITIONS, namespace=None, name=_name(obj))


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _stored(definition: Object) -> Tuple[str, ...]:
    return tuple(definition.get("status", {}).get("storedVersions") or ())


def _storage_version(definition: Object) -> str:
    return next(str(one["name"]) for one in definition["spec"]["versions"] if one["storage"])


def _kind_of(definition: Object) -> Kind:
    """Where the objects of a definition are served; if possible in the version that is stored."""
    spec = definition["spec"]
    served = [one for one in spec["versions"] if one["served"]]
    best = max(served or spec["versions"], key=lambda one: bool(one["storage"]))
    return Kind(spec["group"], best["name"], spec["names"]["plural"], spec["scope"] == "Namespaced")


def _objects_of(cluster: Cluster, definition: Object) -> List[Tuple[str, str]]:
    """Namespace and name of every object of a definition."""

    def convert(obj: Object) -> Tuple[str, str]:
        return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]

    try:
        return cluster.read_all(_kind_of(definition), convert=convert)
    except ApiError as error:
        # In check mode, and while a definition is not established, nothing is served.
        if error.status != NOT_FOUND:
            raise
        return []


def _is_same_owner(wanted: Object, there: Object) -> bool:
    """Whether the labels by which a definition is known are there."""
    labels = (wanted["metadata"].get("labels") or {}).items()
    return labels <= (there["metadata"].get("labels") or {}).items()
