# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What each step of a migration works with: its options, the cluster, the record, the backup."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ..module.errors import ClusterError
from ..module.kube import Cluster, Object
from . import backup
from .progress import Progress
from .reader import MigrationReader, Program, program_reference
from .waiter import MigrationWaiter
from .writer import MigrationWriter


class MigrationContext:
    """One call of the module: made before its step runs, and read for the result afterwards."""

    def __init__(self, cluster: Cluster, params: Dict[str, Any], *, check_mode: bool) -> None:
        self.cluster = cluster
        self.params = params
        self.check_mode = check_mode
        self.origin: str = params["namespace"]
        self.target: str = params["target_namespace"]
        timeout: int = params["wait_timeout"]
        self.reader = MigrationReader(cluster, origin=self.origin, target=self.target)
        self.writer = MigrationWriter(
            cluster, self.reader, check_mode=check_mode, wait_timeout=timeout
        )
        self.waiter = MigrationWaiter(self.reader, check_mode=check_mode, timeout=timeout)
        self.progress = Progress(self.reader, self.writer, self.origin)
        self._backup: Optional[backup.Backup] = None

    def save_backup(self, taken: backup.Backup) -> None:
        """Write the backup file, except in check mode."""
        path = self._backup_path()
        if not self.check_mode:
            self.progress.set_backup(path, backup.write(taken, path))

    def backup(self) -> backup.Backup:
        """Returns the backup; ClusterError if the file is not the one this migration wrote."""
        if self._backup is None:
            self._backup = backup.read(self._backup_path(), self.progress.checksum)
        return self._backup

    def _backup_path(self) -> str:
        path: Optional[str] = self.params["backup"]
        if not path:
            known = self.progress.backup_path or "unknown"
            raise ClusterError(f"backup: give the file of the first run: {known}")
        return path

    def v1_program(self, program: Program) -> Object:
        """Returns the identifying fields of a program of v1."""
        return program_reference(program, self.origin)

    def v2_program(self, program: Program) -> Object:
        """Returns the identifying fields of a program of v2."""
        return program_reference(program, self.target)

    def result(self) -> Dict[str, Any]:
        """Returns what the module returns for every step."""
        return {
            "changed": self.writer.changed,
            "phase": self.progress.phase,
            "backup": self.progress.backup_path,
            "diff": self.writer.diff,
        }
