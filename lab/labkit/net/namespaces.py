# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Network namespaces: enter one with a thread, or run a command in one.

Commands enter with nsenter or setns, not with `ip netns exec`, which hides the cgroup mounts from
the program that it starts.
"""

import ctypes
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labkit.errors import Problem, StepFailed
from labkit.host.places import NETNS_DIR

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def path_of(name: str) -> Path:
    """Return the file of a namespace."""
    return NETNS_DIR / name


@contextmanager
def netns(name: str) -> Iterator[None]:
    """Move the calling thread into a namespace; sockets created inside stay in it."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _enter(path_of(name))
        try:
            yield
        finally:
            _set(own, "back")
    finally:
        os.close(own)


def _enter(path: Path) -> None:
    try:
        target = os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise Problem(f"there is no network namespace {path.name}: is the lab up?") from error
    try:
        _set(target, path.name)
    finally:
        os.close(target)


def _set(descriptor: int, name: str) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"setns {name}")


def inside(name: str, argv: Sequence[str]) -> list[str]:
    """Return the command line that runs argv in a namespace; the pid stays the same."""
    return ["nsenter", f"--net={path_of(name)}", "--", *argv]


def ip_batch(commands: Sequence[str], *, namespace: str | None = None, force: bool = False) -> None:
    """Run many `ip` commands in one process; with `force`, continue after a failure."""
    argv = ["ip", *(["-n", namespace] if namespace else []), *(["-force"] if force else [])]
    text = "\n".join(commands) + "\n"
    done = subprocess.run(
        [*argv, "-batch", "-"], input=text, text=True, capture_output=True, check=False
    )
    if done.returncode and not force:
        where = namespace or "the machine's namespace"
        raise StepFailed(f"ip -batch in {where}", f"{done.stderr.strip()}\n{text}")


def ip_json(namespace: str, *argv: str) -> Any:
    """Return the parsed output of `ip -json` in a namespace; an empty list if it fails."""
    done = subprocess.run(
        ["ip", "-n", namespace, "-json", *argv], text=True, capture_output=True, check=False
    )
    return json.loads(done.stdout or "[]") if done.returncode == 0 else []


def set_sysctls(namespace: str, values: dict[str, str]) -> None:
    """Write net.* settings of a namespace, except those that this kernel does not have."""
    with netns(namespace):
        for key, value in values.items():
            path = Path("/proc/sys") / key.replace(".", "/")
            if path.exists():
                path.write_text(value)
