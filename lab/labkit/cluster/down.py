# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Take a lab down: find everything of it and remove it.

This works after an interrupted `up` and without the files of the run folder: processes are found by
mark, namespace, cgroup and parent, namespaces and links by record or mark.
"""

import shutil
import subprocess
import time
from pathlib import Path

from labkit.cluster import state
from labkit.errors import StepFailed
from labkit.host import cgroups
from labkit.host.places import NETNS_DIR, Places
from labkit.host.processes import POLL, end, inode, members
from labkit.net import network
from labkit.net.namespaces import ip_batch, path_of
from labkit.topology import prefix_of

_ROUNDS = 20  # a program may start another between the search and the kill


def take_down(at: Places) -> bool:
    """Remove everything of this lab; return whether there was anything."""
    names = own_namespaces(at)
    found = at.run.exists() or bool(names)
    found |= _end_processes(at, names)
    links = list(network.links_of(at.run))
    if links:
        ip_batch([f"link del {name}" for name in links])
    if names:
        ip_batch([f"netns del {name}" for name in names])
    cgroups.remove(at.cgroup)
    _unmount(at)
    _remove_files(at.run)
    return found or bool(links)


def own_namespaces(at: Places) -> list[str]:
    """Return this lab's existing namespaces: those with its mark, and recorded ones without a mark.

    A recorded name may belong to another lab by now, if this one was killed.
    """
    topology = state.load_topology(at)
    recorded = topology.namespaces if topology else ()
    candidates = NETNS_DIR.glob(f"{prefix_of(at.number)}*") if NETNS_DIR.is_dir() else ()
    owners = {path.name: network.owner_of(path.name) for path in candidates}
    return [
        name
        for name, owner in owners.items()
        if owner == str(at.run) or (not owner and name in recorded)
    ]


def leftovers(at: Places) -> list[str]:
    """Return descriptions of everything of a lab on the machine; empty after `down`."""
    names = own_namespaces(at)
    inodes = frozenset(inode(path_of(n)) for n in names) - {0}
    left = [f"namespace {name}" for name in names]
    left += [f"process {p.pid}" for p in members(mark=str(at.run), netns=inodes, cgroup=at.cgroup)]
    left += [f"link {name}" for name in network.links_of(at.run)]
    left += [f"mount {m}" for m in _mounts(at)]
    left += [f"cgroup {c}" for c in cgroups.groups(at.cgroup)]
    left += [f"folder {at.run}"] if at.run.exists() else []
    return left


def _end_processes(at: Places, names: list[str]) -> bool:
    inodes = frozenset(inode(path_of(name)) for name in names) - {0}
    found = False
    for _ in range(_ROUNDS):
        alive = members(mark=str(at.run), netns=inodes, cgroup=at.cgroup)
        if not alive:
            return found
        found = True
        end(alive)
    pids = " ".join(str(p.pid) for p in alive)
    raise StepFailed("down", f"these processes do not end: {pids}")


def _mounts(at: Places) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [m for line in lines if (m := line.split()[1]).startswith(f"{at.run}/")]


def _unmount(at: Places) -> None:
    """Remove mounts in the machine's own namespace; only an old kernel or a bug leaves one."""
    for point in reversed(_mounts(at)):
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


def _remove_files(folder: Path) -> None:
    """Remove the run folder; retries for 5 s, as mounts of an ending namespace may keep it busy."""
    deadline = time.monotonic() + 5
    while folder.exists():
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if time.monotonic() > deadline:
                raise StepFailed("down", f"cannot remove {folder}: {error}") from error
            time.sleep(POLL)
