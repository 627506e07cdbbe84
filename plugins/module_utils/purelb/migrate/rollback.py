# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The way back to v1, to exactly what the backup says; each part can be repeated."""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, List, Optional

from ..core import names
from ..module.errors import ClusterError
from ..module.kube import Object
from . import backup, handover
from .context import AGENT, ALLOCATOR, DONE, MARK, NEW, ROLLING_BACK, MigrationContext


def roll_back(passage: MigrationContext, _params: Dict[str, Any]) -> Dict[str, Any]:
    """Stop v2 and bring back what was, with v1 at work."""
    if passage.phase in ("", DONE):
        raise ClusterError(
            "there is nothing to go back to: "
            + (
                "v1 is removed, and its objects are in the backup"
                if passage.phase
                else "no migration"
            )
        )
    kept = passage.backup()
    passage.reach(ROLLING_BACK)
    # They take their addresses away with them. From here until v1 is ready nobody answers.
    passage.remove(passage.new(ALLOCATOR))
    passage.remove(passage.new(AGENT))
    _remove_configuration(passage)
    _restore_definitions(passage, kept)
    _restore_services(passage, kept)
    for obj in kept.of("DaemonSet", "Deployment"):
        passage.restore(obj)
    for obj in kept.of("DaemonSet", "Deployment"):
        passage.restore(obj, waits=True)
    return {}


def discard(passage: MigrationContext, _params: Dict[str, Any]) -> Dict[str, Any]:
    """Compare everything with the backup, and end the migration if all is as it was."""
    if passage.phase == "":
        return {}
    if passage.phase != ROLLING_BACK:
        raise ClusterError(f"the migration is at {passage.phase}: only one taken back is forgotten")
    others = backup.differences(passage.read_all(), passage.backup())
    if others:
        raise ClusterError(
            f"v1 runs again, but not as before: {', '.join(others)}. Somebody else has changed "
            f"these since the backup was made; compare them with it, then delete the ConfigMap "
            f"{passage.origin}/{MARK}"
        )
    passage.unmark()
    return {}


def _remove_configuration(passage: MigrationContext) -> None:
    """Remove the objects of v2 while they are stored as such: nobody has to convert them."""
    for name in ("ServiceGroup", "LBNodeAgent"):
        kind = passage.cluster.kind(NEW, name)
        if kind is not None:
            head = {"apiVersion": NEW, "kind": name}
            found = passage.cluster.read_all(kind, namespace=passage.target, convert=dict)
            for obj in found:
                passage.drop({**head, **obj})


def _restore_definitions(passage: MigrationContext, kept: backup.Backup) -> None:
    """Bring back the definitions with their objects.

    What is stored as v2 can only be read, and so be written as v1, while v2 is among the versions;
    as it is, because there is nobody to convert.
    """
    for definition in passage.definitions():
        if "v2" in _versions(definition):
            passage.patch(definition, _stores_v1(definition))
    for obj in kept.of("ServiceGroup", "LBNodeAgent"):
        # First as it is, so that it is stored as v1 even where nothing has to change.
        passage.insist(partial(_rewrite, passage, obj))
    for definition in passage.definitions():
        stored = (definition.get("status") or {}).get("storedVersions")
        if stored != [names.OLD_API_VERSION]:
            # v2 cannot be taken away while it is said to be stored.
            said = {"status": {"storedVersions": [names.OLD_API_VERSION]}}
            passage.patch(definition, said, part="status")
    for definition in kept.of("CustomResourceDefinition"):
        passage.restore(definition, waits=True)
    for obj in kept.of("ServiceGroup", "LBNodeAgent"):
        passage.insist(partial(passage.restore, obj))


def _versions(definition: Object) -> List[str]:
    return [version["name"] for version in definition["spec"]["versions"]]


def _stores_v1(definition: Object) -> Object:
    versions = [
        {**one, "served": True, "storage": one["name"] == names.OLD_API_VERSION}
        for one in definition["spec"]["versions"]
    ]
    conversion = {"strategy": "None", "webhook": None}
    return {"spec": {"conversion": conversion, "versions": versions}}


def _rewrite(passage: MigrationContext, obj: Object) -> None:
    if passage.there(obj) is not None:
        passage.patch(obj, {})


def _restore_services(passage: MigrationContext, kept: backup.Backup) -> None:
    before = kept.services
    for now in passage.services():
        was = before.get(backup.key_of(now))
        if was is not None or handover.is_marked(now) or handover.is_moving(now):
            _restore_service(passage, now, was)


def _restore_service(passage: MigrationContext, service: Object, before: Optional[Object]) -> None:
    now = service
    wanted = handover.class_of(before) if before is not None else None
    if before is not None and handover.is_balancer(now) and handover.class_of(now) != wanted:
        now = passage.patch(now, handover.leaving(now))
        if passage.check_mode:
            return  # the Service has not left, so it cannot arrive
    if handover.is_moving(now) and not handover.is_balancer(now):
        now = passage.patch(now, handover.arriving(now, wanted))
    patch = handover.restoring(now, before)
    status = patch.pop("status", None)
    if patch:
        passage.patch(now, patch)
    if status:
        passage.patch(now, {"status": status}, part="status")
