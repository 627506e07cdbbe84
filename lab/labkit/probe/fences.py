# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Until when the fence of a node is open, from the file in its agent's Pod."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from labkit.cluster import daemons
from labkit.errors import Problem
from labkit.lab import Lab

_VOLUMES = "pods/*/volumes/kubernetes.io~empty-dir/fence/fence-open-until"
_NANOSECONDS = 1e9


class NodeFence:
    """The fence of one node, also if its agent is dead."""

    def __init__(self, lab: Lab, node: str) -> None:
        self._lab, self._node = lab, node
        self._kubelet: Path | None = None

    @property
    def is_open(self) -> bool:
        """Whether it lets anything through now, if the node has one."""
        return self._until() > time.clock_gettime(time.CLOCK_BOOTTIME)

    def _until(self) -> float:
        # The mounts of a node that was switched off and on are others.
        if self._kubelet is None or not self._kubelet.exists():
            try:
                keeper = daemons.mount_keeper(self._lab.at, self._lab.nodes[self._node])
            except Problem:
                return 0.0
            self._kubelet = Path(f"/proc/{keeper}/root/var/lib/kubelet")
        return max((_read(file) for file in self._kubelet.glob(_VOLUMES)), default=0.0)


def _read(file: Path) -> float:
    try:
        return int.from_bytes(file.read_bytes(), sys.byteorder) / _NANOSECONDS
    except OSError:
        return 0.0
