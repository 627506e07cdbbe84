# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The lab's control groups: one parent in each hierarchy, a folder of it for each node.

Kubelets put their pods below it, so that a lab's containers are told from any other's by path.
Works with version 1 (a hierarchy for each controller) and version 2 (one for all).

Hosts are to be machines of their own, so that a lab has a larger share of the processors than what
runs beside it, and in it a node's pods, and clients that measure them, than all its daemons.
Without that all its pods together weigh as much as one session, and do not answer for seconds when
a few others are busy.
"""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from labkit.errors import StepFailed
from labkit.host.processes import POLL

_ROOT = Path("/sys/fs/cgroup")
# What is usual as a share of processor time, by version, and how much more it is here.
_SHARES = {"cpu.shares": 1024, "cpu.weight": 100}
_OF_THE_MACHINE, _OF_THE_LAB = 16, 4
DAEMONS, CLIENTS = "daemons", "clients"


def hierarchies() -> list[Path]:
    """Return the top of each hierarchy of this machine."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    return [top for top in _ROOT.iterdir() if (top / "cgroup.procs").exists()]


def make(parent: str, nodes: Sequence[str]) -> None:
    """Make the groups that the kubelets expect to find, and those of daemons and clients."""
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
    """Let a process have its part of the lab's share of the processors."""
    for top in hierarchies():
        if any((top / parent / file).exists() for file in _SHARES):
            # Who has ended already is told to whoever waits for it.
            with contextlib.suppress(ProcessLookupError):
                (top / parent / name / "cgroup.procs").write_text(str(pid))


def groups(parent: str) -> list[Path]:
    """List the groups that exist, the deepest first."""
    tops = [top / parent for top in hierarchies()]
    return [
        Path(folder) for top in tops if top.is_dir() for folder, _, _ in os.walk(top, topdown=False)
    ]


def remove(parent: str) -> None:
    """Remove all of them; a group is busy while its last process is being reaped."""
    deadline = time.monotonic() + 5
    while left := groups(parent):
        for folder in left:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            raise StepFailed("down", f"cgroups stay busy: {left[0]}")
        time.sleep(POLL)
