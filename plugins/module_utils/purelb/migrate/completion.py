# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The steps after the handover: verify and remove_v1."""

from __future__ import annotations

from typing import List

from ..audit import cluster_reader
from ..core.audit.findings import Severity
from ..module.errors import ClusterError
from . import backup
from .context import MigrationContext
from .reader import CONFIGURATION_KINDS, PROGRAMS
from .step import Outcome


def verify(context: MigrationContext) -> Outcome:
    """Raise ClusterError unless the audit finds no error and all addresses are as before."""
    await_healthy(context)
    changed = backup.changed_addresses(context.reader.services(), context.backup())
    if changed:
        raise ClusterError(f"other addresses than before: {', '.join(changed)}")
    return Outcome()


def remove_v1(context: MigrationContext) -> Outcome:
    """Remove the programs and objects of v1, and store all other objects as v2."""
    for program in PROGRAMS:
        context.writer.delete(context.v1_program(program))
    for obj in context.backup().of_kind(*CONFIGURATION_KINDS):
        if context.reader.get(obj) is not None:
            context.writer.delete_unowned(obj)
    context.writer.migrate_storage()
    return Outcome()


def await_healthy(context: MigrationContext) -> None:
    """Wait until an audit finds no error."""

    def errors() -> List[str]:
        params = {"namespace": context.target, "leader_locks": None}
        found = cluster_reader.lease_info(context.cluster, params, check_mode=True)["findings"]
        return [
            f"{finding['object']}: {finding['message']}: {finding['remediation']}"
            for finding in found
            if finding["severity"] == Severity.ERROR.value
        ]

    context.waiter.until_none(errors, "the audit finds errors")
