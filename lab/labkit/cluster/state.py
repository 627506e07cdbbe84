# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The state files of a running lab: its topology, and one record per daemon.

Records are written atomically (new file, then rename), in one file per daemon, so parallel writers
do not conflict. `down` does not depend on them: it also finds processes without a record.
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
    """A component that the lab started, with what is needed to restart it."""

    name: str
    host: str
    argv: list[str]
    in_mounts: bool  # whether it runs in the node's mount namespace
    process: Process

    @property
    def key(self) -> str:
        """The name of its record and log."""
        return f"{self.host}.{self.name}"


def write(path: Path, data: Any) -> None:
    """Write JSON atomically: a reader sees the old file or the new one."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(data, indent=1))
    new.rename(path)


def save_topology(at: Places, topology: Topology) -> None:
    """Record the topology, before any of it is created."""
    write(at.run / "lab.json", topology.to_json())


def load_topology(at: Places) -> Topology | None:
    """Return the recorded topology; None if there is none or it cannot be read."""
    try:
        return Topology.from_json(json.loads((at.run / "lab.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_daemon(at: Places, daemon: Daemon) -> None:
    """Write the record of a started daemon."""
    write(at.run / "daemons" / f"{daemon.key}.json", asdict(daemon))


def forget_daemon(at: Places, daemon: Daemon) -> None:
    """Remove the record of a daemon that will not be restarted."""
    (at.run / "daemons" / f"{daemon.key}.json").unlink(missing_ok=True)


def load_daemons(at: Places) -> dict[str, Daemon]:
    """Return all readable records by key."""
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
    """Record that `up` has finished."""
    write(at.run / "ready", {"pid": os.getpid()})


def is_ready(at: Places) -> bool:
    """Whether `up` has finished and every daemon still runs."""
    daemons = load_daemons(at)
    return (
        (at.run / "ready").exists()
        and load_topology(at) is not None
        and bool(daemons)
        and all(d.process.is_alive for d in daemons.values())
    )


def is_locked(lock: Path) -> bool:
    """Whether a command holds the lock."""
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
    """Hold the lock of a lab; the kernel releases it if the process ends.

    Raises Problem if another command holds it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "another command"
            raise Problem(f"{holder} is running: wait for it, or end it") from error
        file.truncate(0)
        file.write(f"'lab {what}' (pid {os.getpid()})")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
