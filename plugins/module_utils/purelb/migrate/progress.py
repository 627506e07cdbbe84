# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Records in the cluster how far a migration is, so that an interrupted one can continue.

The record is a ConfigMap in v1's namespace: the phase, the path of the backup, and its checksum.
"""

from __future__ import annotations

from typing import Dict

from ..module.kube import Object
from .reader import MigrationReader
from .writer import MigrationWriter

CONFIG_MAP = "purelb-migration"

# The phases in order; ROLLING_BACK can follow any of them but the first and DONE.
NOT_STARTED = ""
BACKED_UP = "backedUp"
HANDED_OVER = "handedOver"
VERIFIED = "verified"
DONE = "done"
ROLLING_BACK = "rollingBack"


class Progress:
    """The record of one migration, as it was read and as this call changes it."""

    def __init__(self, reader: MigrationReader, writer: MigrationWriter, namespace: str) -> None:
        self._writer = writer
        self._namespace = namespace
        found = reader.get(self._object({})) or {}
        self._data: Dict[str, str] = found.get("data") or {}

    @property
    def phase(self) -> str:
        """The phase that was last reached."""
        return self._data.get("phase", NOT_STARTED)

    @property
    def backup_path(self) -> str:
        """Path of the backup file; empty before there is one."""
        return self._data.get("backup", "")

    @property
    def checksum(self) -> str:
        """SHA-256 of the backup file; empty before there is one."""
        return self._data.get("checksum", "")

    def set_backup(self, path: str, checksum: str) -> None:
        """Set path and checksum of the backup; the next phase writes them to the cluster."""
        self._data = {"backup": path, "checksum": checksum}

    def reach(self, phase: str) -> None:
        """Write a phase to the cluster; NOT_STARTED deletes the record."""
        if phase == NOT_STARTED:
            self._writer.delete(self._object({}))
            self._data = {}
        else:
            self._data = {**self._data, "phase": phase}
            self._writer.apply(self._object(self._data))

    def _object(self, data: Dict[str, str]) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": CONFIG_MAP,
                "namespace": self._namespace,
                "labels": {
                    "app.kubernetes.io/name": "purelb",
                    "app.kubernetes.io/component": "migration",
                    "app.kubernetes.io/managed-by": "purelb.purelb",
                },
            },
            "data": data,
        }
