# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Network namespaces: enter one with a thread, or run a command in one.

Commands enter with nsenter or setns, never with `ip netns exec`, which hides the cgroup mounts
from what it starts.
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
    """Return the file that stands for a namespace."""
    return NETNS_DIR / name


@contextmanager
def netns(name: str) -> Iterator[None]:
    """Put the calling thread inside; sockets made here stay there."""
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
    """Return the command that runs argv in a namespace; it keeps its pid through the exec."""
    return ["nsenter", f"--net={path_of(name)}", "--", *argv]


def ip_batch(commands: Sequence[str], *, namespace: str | None = None, force: bool = False) -> None:
    """Run many `ip` commands in one process; `force` goes on after one that fails."""
    argv = ["ip", *(["-n", namespace] if namespace else []), *(["-force"] if force else [])]
    text = "\n".join(commands) + "\n"
    done = subprocess.run(
        [*argv, "-batch", "-"], input=text, text=True, capture_output=True, check=False
    )
    if done.returncode and not force:
        where = namespace or "the machine's namespace"
        raise StepFailed(f"ip -batch in {where}", f"{done.stderr.strip()}\n{text}")


def ip_json(namespace: str, *argv: str) -> Any:
    """Return the parsed answer of `ip -json` in a namespace; empty when it fails."""
    done = subprocess.run(
        ["ip", "-n", namespace, "-json", *argv], text=True, capture_output=True, check=False
    )
    return json.loads(done.stdout or "[]") if done.returncode == 0 else []


def set_sysctls(namespace: str, values: dict[str, str]) -> None:
    """Write net.* settings of a namespace; one that this kernel does not have is skipped."""
    with netns(namespace):
        for key, value in values.items():
            path = Path("/proc/sys") / key.replace(".", "/")
            if path.exists():
                path.write_text(value)
