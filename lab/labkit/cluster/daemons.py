# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Start a component on a host, and start it again as it was.

A node's programs join the mount namespace that the node's holder made. When the holder is gone,
any other program of the node still has that namespace open.
"""

from pathlib import Path

from labkit.cluster import state
from labkit.cluster.state import Daemon
from labkit.errors import Problem, StepFailed
from labkit.host import cgroups
from labkit.host.places import Places
from labkit.host.processes import command_of, inode, netns_of, pids, spawn
from labkit.net.namespaces import inside, path_of
from labkit.topology import Host

HOLDER = "mounts"


def log_of(at: Places, key: str) -> Path:
    """Return the log file of a daemon."""
    return at.run / "logs" / f"{key}.log"


def start_holder(at: Places, host: Host) -> Daemon:
    """Start the process that dresses and keeps a node's mount namespace."""
    argv = ["unshare", "--mount", "--", "sh", str(at.run / host.name / "mounts.sh")]
    return _start(at, host, HOLDER, argv, in_mounts=False)


def start(at: Places, host: Host, name: str, argv: list[str], *, in_mounts: bool = False) -> Daemon:
    """Start a component in a host's network namespace."""
    return _start(at, host, name, argv, in_mounts=in_mounts)


def start_again(at: Places, host: Host, name: str) -> Daemon:
    """Start a component that has ended, with the command line it had."""
    daemon = find(at, host, name)
    if daemon.process.is_alive:
        raise Problem(f"{name} runs on {host.name} already (pid {daemon.process.pid})")
    if name == HOLDER and _find_keeper(at, host):
        raise Problem(f"other programs hold the mounts of {host.name}: start those you need")
    return _start(at, host, name, daemon.argv, in_mounts=daemon.in_mounts)


def find(at: Places, host: Host, name: str) -> Daemon:
    """Return the record of a component."""
    known = {d.name: d for d in state.load_daemons(at).values() if d.host == host.name}
    if name not in known:
        raise Problem(f"{host.name} has no component {name!r}: it has {', '.join(known) or 'none'}")
    return known[name]


def _start(at: Places, host: Host, name: str, argv: list[str], *, in_mounts: bool) -> Daemon:
    command = argv
    if in_mounts:
        command = ["nsenter", f"--mount=/proc/{mount_keeper(at, host)}/ns/mnt", "--", *command]
    log = log_of(at, f"{host.name}.{name}")
    process = spawn(inside(host.netns, command), log=log, mark=str(at.run), cwd=at.run)
    cgroups.join(at.cgroup, cgroups.DAEMONS, process.pid)
    daemon = Daemon(name=name, host=host.name, argv=argv, in_mounts=in_mounts, process=process)
    state.save_daemon(at, daemon)
    return daemon


def mount_keeper(at: Places, host: Host) -> int:
    """Return a living process inside the node's mount namespace."""
    keeper = _find_keeper(at, host)
    if keeper is None:
        raise Problem(f"nothing of {host.name} runs any more: take the lab down and up again")
    return keeper


def _find_keeper(at: Places, host: Host) -> int | None:
    for daemon in state.load_daemons(at).values():
        is_keeper = daemon.name == HOLDER or daemon.in_mounts
        if daemon.host == host.name and is_keeper and daemon.process.is_alive:
            return daemon.process.pid
    here = inode(path_of(host.netns))
    shims = (p for p in pids() if netns_of(p) == here and "containerd-shim" in command_of(p))
    return next(shims, None)


def check_alive(at: Places, daemon: Daemon) -> None:
    """Fail with the daemon's own last words when it has ended."""
    if not daemon.process.is_alive:
        why = f"{daemon.name} of {daemon.host} ended"
        raise StepFailed(daemon.name, why, log=log_of(at, daemon.key))
