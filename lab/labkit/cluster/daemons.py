# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Start components on hosts, and restart them with the same command line.

A node's programs join the mount namespace that its holder process made. If the holder has ended,
they join that of any other program of the node.
"""

from collections.abc import Sequence
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
    """Return the path of a daemon's log."""
    return at.run / "logs" / f"{key}.log"


def start_holder(at: Places, host: Host) -> Daemon:
    """Start the process that sets up a node's mount namespace and keeps it open."""
    argv = ["unshare", "--mount", "--", "sh", str(at.run / host.name / "mounts.sh")]
    return _start(at, host, HOLDER, argv, in_mounts=False)


def start(at: Places, host: Host, name: str, argv: list[str], *, in_mounts: bool = False) -> Daemon:
    """Start a component in a host's network namespace."""
    return _start(at, host, name, argv, in_mounts=in_mounts)


def start_again(at: Places, host: Host, name: str, options: Sequence[str] = ()) -> Daemon:
    """Restart a component that has ended, with further options. Raises Problem if it runs."""
    daemon = find(at, host, name)
    if daemon.process.is_alive:
        raise Problem(f"{name} runs on {host.name} already (pid {daemon.process.pid})")
    if name == HOLDER and _find_keeper(at, host):
        raise Problem(f"other programs hold the mounts of {host.name}: start those you need")
    return _start(at, host, name, daemon.argv, options, in_mounts=daemon.in_mounts)


def find(at: Places, host: Host, name: str) -> Daemon:
    """Return the record of a component. Raises Problem if the host has none of that name."""
    known = {d.name: d for d in state.load_daemons(at).values() if d.host == host.name}
    if name not in known:
        raise Problem(f"{host.name} has no component {name!r}: it has {', '.join(known) or 'none'}")
    return known[name]


def _start(
    at: Places,
    host: Host,
    name: str,
    argv: list[str],
    options: Sequence[str] = (),
    *,
    in_mounts: bool,
) -> Daemon:
    command = [*argv, *options]
    if in_mounts:
        command = ["nsenter", f"--mount=/proc/{mount_keeper(at, host)}/ns/mnt", "--", *command]
    log = log_of(at, f"{host.name}.{name}")
    process = spawn(inside(host.netns, command), log=log, mark=str(at.run), cwd=at.run)
    cgroups.join(at.cgroup, cgroups.DAEMONS, process.pid)
    daemon = Daemon(name=name, host=host.name, argv=argv, in_mounts=in_mounts, process=process)
    state.save_daemon(at, daemon)
    return daemon


def mount_keeper(at: Places, host: Host) -> int:
    """Return the pid of a process in the node's mount namespace."""
    keeper = _find_keeper(at, host)
    if keeper is None:
        raise Problem(f"no process of {host.name} runs any more: take the lab down and up again")
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
    """Raise StepFailed, with the end of the daemon's log, if it has ended."""
    if not daemon.process.is_alive:
        why = f"{daemon.name} of {daemon.host} ended"
        raise StepFailed(daemon.name, why, log=log_of(at, daemon.key))
