# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Processes, identified by (pid, start time), so that a reused pid is never signalled.

The lab's daemons carry a mark in their environment. Mark, network namespace, cgroup and parent find
every process of a lab, also without a record of it.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = "PURELB_LAB_MEMBER"
POLL = 0.02  # seconds; short compared with all waits of the lab, and cheap


@dataclass(frozen=True)
class Process:
    """A process: a pid and its start time in clock ticks since boot."""

    pid: int
    start: int

    @staticmethod
    def of(pid: int) -> "Process | None":
        """Return the process that has this pid now; None if there is none."""
        start = _start_time(pid)
        return None if start is None else Process(pid, start)

    @property
    def is_alive(self) -> bool:
        """Whether this process still runs; a zombie counts only if other threads of it run."""
        return _start_time(self.pid) == self.start

    def send(self, number: int) -> bool:
        """Send a signal; return whether the process was alive to receive it."""
        if not self.is_alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def _stat(pid: int) -> list[str]:
    # The command name may contain spaces and brackets: parse the fields after its end.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _start_time(pid: int) -> int | None:
    fields = _stat(pid)
    # The first thread of a killed program may be a zombie while others hold its files and ports.
    is_gone = not fields or fields[0] == "X" or (fields[0] == "Z" and int(fields[17]) <= 1)
    return None if is_gone else int(fields[19])


def parent_of(pid: int) -> int:
    """Return the parent's pid; 0 if the process has ended."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def pids() -> Iterator[int]:
    """Yield the pids of all processes."""
    return (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit())


def command_of(pid: int) -> str:
    """Return the command line, joined by spaces; empty if the process has ended."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def netns_of(pid: int) -> int:
    """Return the inode of the network namespace; 0 if the process has ended."""
    return inode(Path(f"/proc/{pid}/ns/net"))


def inode(path: Path) -> int:
    """Return a file's inode; 0 if it does not exist."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def descendants(roots: Iterable[int]) -> set[int]:
    """Return all descendants of the roots, without the roots."""
    known = set(roots)
    parents = {pid: parent_of(pid) for pid in pids()}
    found: set[int] = set()
    while True:
        more = {p for p, parent in parents.items() if parent in known} - known
        if not more:
            return found
        found |= more
        known |= more


def ancestors(pid: int) -> set[int]:
    """Return the process and all its ancestors."""
    line = set()
    while pid > 0:
        line.add(pid)
        pid = parent_of(pid)
    return line


def members(*, mark: str, netns: frozenset[int], cgroup: str) -> set[Process]:
    """Return every process of a lab, except the caller and its ancestors."""

    def belongs(pid: int) -> bool:
        return (
            netns_of(pid) in netns
            or _reads(pid, "environ", f"{MARK}={mark}\0")
            or _reads(pid, "cgroup", f"/{cgroup}/")
        )

    found = {pid for pid in pids() if belongs(pid)}
    found = (found | descendants(found)) - ancestors(os.getpid())
    return {process for pid in found if (process := Process.of(pid))}


def _reads(pid: int, name: str, text: str) -> bool:
    try:
        return text.encode() in Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return False


def spawn(argv: list[str], *, log: Path, mark: str, cwd: Path) -> Process:
    """Start a daemon in a session of its own, which Ctrl-C at the terminal does not reach."""
    with log.open("ab") as out:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=cwd,
            env=os.environ | {MARK: mark},
        )
    # Keeps Popen from waiting: an ended child stays a zombie, which counts as dead.
    child.returncode = 0
    return Process.of(child.pid) or Process(child.pid, -1)


def end(processes: Iterable[Process], *, seconds: float = 5.0) -> set[Process]:
    """Kill processes and wait until they have ended; return those that have not in time."""
    left = set(processes)
    for process in left:
        process.send(signal.SIGKILL)
    deadline = time.monotonic() + seconds
    while left := {p for p in left if p.is_alive}:
        if time.monotonic() > deadline:
            break
        time.sleep(POLL)
    return left


def wait_until(condition: Callable[[], bool], *, seconds: float, every: float = POLL) -> bool:
    """Poll a condition; return whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True
