# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What a running lab has written down: its topology, and one record for each daemon.

A record is written whole (new file, then rename) and is a help, not the truth: `down` also finds
what has no record. One file for each daemon, so that writers in parallel do not meet.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.errors import Problem
from labkit.host.places import Places
from labkit.host.processes import Process
from labkit.topology import Topology


@dataclass(frozen=True)
class Daemon:
    """A component that the lab started, and how to start it again."""

    name: str
    host: str
    argv: list[str]
    in_mounts: bool  # whether it lives in the node's mount namespace
    process: Process

    @property
    def key(self) -> str:
        """Name of its record and log."""
        return f"{self.host}.{self.name}"


def write(path: Path, data: Any) -> None:
    """Write JSON so that a reader sees the old file or the new one."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(data, indent=1))
    new.rename(path)


def save_topology(at: Places, topology: Topology) -> None:
    """Record the plan before anything of it exists."""
    write(at.run / "lab.json", topology.to_json())


def load_topology(at: Places) -> Topology | None:
    """Read the plan of the lab that is up, or was."""
    try:
        return Topology.from_json(json.loads((at.run / "lab.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_daemon(at: Places, daemon: Daemon) -> None:
    """Record a daemon that was started."""
    write(at.run / "daemons" / f"{daemon.key}.json", asdict(daemon))


def forget_daemon(at: Places, daemon: Daemon) -> None:
    """Remove the record of a daemon that was ended for good."""
    (at.run / "daemons" / f"{daemon.key}.json").unlink(missing_ok=True)


def load_daemons(at: Places) -> dict[str, Daemon]:
    """Read all records that can be read, by key."""
    found = {}
    for path in sorted((at.run / "daemons").glob("[!.]*.json")):
        try:
            data = json.loads(path.read_text())
            daemon = Daemon(**data | {"process": Process(**data["process"])})
        except (OSError, ValueError, KeyError, TypeError):
            continue
        found[daemon.key] = daemon
    return found


def mark_ready(at: Places) -> None:
    """Note that `up` came to its end."""
    write(at.run / "ready", {"pid": os.getpid()})


def is_ready(at: Places) -> bool:
    """Whether `up` came to its end and every daemon still runs."""
    daemons = load_daemons(at)
    return (
        (at.run / "ready").exists()
        and load_topology(at) is not None
        and bool(daemons)
        and all(d.process.is_alive for d in daemons.values())
    )


def is_locked(lock: Path) -> bool:
    """Whether a command is at work there."""
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def locked(lock: Path, what: str) -> Iterator[None]:
    """Let one command at a time do its work; the kernel lets go when the holder dies."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "another command"
            raise Problem(f"{holder} is at work here: wait for it, or end it") from error
        file.truncate(0)
        file.write(f"'lab {what}' (pid {os.getpid()})")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
