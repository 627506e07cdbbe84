# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The steps back to v1: roll_back restores exactly what the backup contains, discard checks it."""

from __future__ import annotations

from functools import partial
from typing import List, Optional

from ..core import names
from ..module.errors import ClusterError
from ..module.kube import Object
from . import backup, handover
from .context import MigrationContext
from .progress import CONFIG_MAP
from .reader import CONFIGURATION_KINDS, PROGRAMS
from .step import Outcome


def roll_back(context: MigrationContext) -> Outcome:
    """Remove v2, restore definitions, objects and Services, and start v1 again."""
    # v2 withdraws its addresses when it ends. No node announces them until v1 is ready.
    for program in PROGRAMS:
        context.writer.delete(context.v2_program(program))
    # While they are stored as v2, so that no webhook has to convert them.
    for obj in context.reader.v2_configuration():
        context.writer.delete_unowned(obj)
    saved = context.backup()
    _restore_definitions(context, saved)
    _restore_services(context, saved)
    programs = saved.of_kind("DaemonSet", "Deployment")
    for obj in programs:
        context.writer.restore(obj)
    for obj in programs:
        context.writer.restore(obj, wait=True)
    return Outcome()


def discard(context: MigrationContext) -> Outcome:
    """Compare the cluster with the backup; ClusterError that names what differs."""
    different = backup.differences(context.reader.everything(), context.backup())
    if different:
        raise ClusterError(
            f"v1 runs again, but not as before: {', '.join(different)}. Another user or program "
            "has changed these since the backup was made; compare them with it, then delete the "
            f"ConfigMap {context.origin}/{CONFIG_MAP}"
        )
    return Outcome()


def _restore_definitions(context: MigrationContext, saved: backup.Backup) -> None:
    """Restore the definitions and their objects.

    Objects that are stored as v2 can be read, and so be stored as v1, only while the definition
    contains v2; without conversion, as the webhook is gone.
    """
    for definition in context.reader.definitions():
        if "v2" in _versions(definition):
            context.writer.patch(definition, _storage_patch(definition))
    for obj in saved.of_kind(*CONFIGURATION_KINDS):
        # Unchanged first, so that it is stored as v1 even if nothing has to change.
        context.waiter.retry(partial(_rewrite, context, obj))
    for definition in context.reader.definitions():
        stored = (definition.get("status") or {}).get("storedVersions")
        if stored != [names.OLD_API_VERSION]:
            # The API server does not remove a version that storedVersions contains.
            patch = {"status": {"storedVersions": [names.OLD_API_VERSION]}}
            context.writer.patch(definition, patch, part="status")
    for definition in saved.of_kind("CustomResourceDefinition"):
        context.writer.restore(definition, wait=True)
    for obj in saved.of_kind(*CONFIGURATION_KINDS):
        context.waiter.retry(partial(context.writer.restore, obj))


def _versions(definition: Object) -> List[str]:
    return [version["name"] for version in definition["spec"]["versions"]]


def _storage_patch(definition: Object) -> Object:
    """The patch that makes v1 the storage version, without conversion."""
    versions = [
        {**version, "served": True, "storage": version["name"] == names.OLD_API_VERSION}
        for version in definition["spec"]["versions"]
    ]
    conversion = {"strategy": "None", "webhook": None}
    return {"spec": {"conversion": conversion, "versions": versions}}


def _rewrite(context: MigrationContext, obj: Object) -> None:
    if context.reader.get(obj) is not None:
        context.writer.patch(obj, {})


def _restore_services(context: MigrationContext, saved: backup.Backup) -> None:
    before = saved.services
    for now in context.reader.services():
        was = before.get(backup.key_of(now))
        if was is not None or handover.is_marked(now) or handover.is_moving(now):
            _restore_service(context, now, was)


def _restore_service(context: MigrationContext, service: Object, before: Optional[Object]) -> None:
    """Restore class, annotations and addresses; `before` is None if the Service is new."""
    now = service
    wanted = handover.class_of(before) if before is not None else None
    if before is not None and handover.is_load_balancer(now) and handover.class_of(now) != wanted:
        now = context.writer.patch(now, handover.release_patch(now))
        if context.check_mode:
            return  # the Service has not been released, so v1 cannot claim it
    if handover.is_moving(now) and not handover.is_load_balancer(now):
        now = context.writer.patch(now, handover.claim_patch(now, wanted))
    patch = handover.restore_patch(now, before)
    status = patch.pop("status", None)
    if patch:
        context.writer.patch(now, patch)
    if status:
        context.writer.patch(now, {"status": status}, part="status")
