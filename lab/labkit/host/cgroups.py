# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The lab's control groups: one parent in each hierarchy, with a group for each node.

Kubelets put their pods below these groups, so a lab's containers are recognised by their path.
Works with version 1 (a hierarchy per controller) and version 2 (one hierarchy).

The hosts stand for machines of their own, so a lab gets a larger share of the processors than other
programs, and in the lab pods and measuring clients get a larger share than its daemons. Without
that, all pods of a lab together would weigh as much as one other group, and would not answer for
seconds while a few others are busy.
"""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from labkit.errors import StepFailed
from labkit.host.processes import POLL

_ROOT = Path("/sys/fs/cgroup")
# The default share of processor time, by version, and the factors for the lab and its groups.
_SHARES = {"cpu.shares": 1024, "cpu.weight": 100}
_OF_THE_MACHINE, _OF_THE_LAB = 16, 4
DAEMONS, CLIENTS = "daemons", "clients"


def hierarchies() -> list[Path]:
    """Return the root of each hierarchy of this machine."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    if not _ROOT.is_dir():
        return []
    return [top for top in _ROOT.iterdir() if (top / "cgroup.procs").exists()]


def make(parent: str, nodes: Sequence[str]) -> None:
    """Create the groups of the nodes, which kubelets expect, and those of daemons and clients."""
    for top in hierarchies():
        for name in (*nodes, DAEMONS, CLIENTS):
            (top / parent / name).mkdir(parents=True, exist_ok=True)
        _weigh(top / parent, _OF_THE_MACHINE)
        for name in (*nodes, CLIENTS):
            _weigh(top / parent / name, _OF_THE_LAB)


def _weigh(group: Path, times: int) -> None:
    for name, usual in _SHARES.items():
        if (group / name).exists():
            (group / name).write_text(str(times * usual))


def join(parent: str, name: str, pid: int) -> None:
    """Move a process into one of the lab's groups."""
    for top in hierarchies():
        if any((top / parent / file).exists() for file in _SHARES):
            # If the process has ended already, its parent finds out.
            with contextlib.suppress(ProcessLookupError):
                (top / parent / name / "cgroup.procs").write_text(str(pid))


def groups(parent: str) -> list[Path]:
    """Return the existing groups, the deepest first."""
    tops = [top / parent for top in hierarchies()]
    return [
        Path(folder) for top in tops if top.is_dir() for folder, _, _ in os.walk(top, topdown=False)
    ]


def remove(parent: str) -> None:
    """Remove all groups; retries for 5 s, as a group is busy until its last process is reaped."""
    deadline = time.monotonic() + 5
    while left := groups(parent):
        for folder in left:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            raise StepFailed("down", f"cgroups stay busy: {left[0]}")
        time.sleep(POLL)
