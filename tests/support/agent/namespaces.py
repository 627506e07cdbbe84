# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A network namespace of a test's own, for tests of the real kernel; needs root."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from labkit.net.namespaces import ip_batch

_NUMBERS = itertools.count(1)


def _name() -> str:
    return f"plbunit-{os.getpid()}-{next(_NUMBERS)}"


@cache
def can_make_namespaces() -> bool:
    """Whether this process may create network namespaces."""
    if os.geteuid() != 0:
        return False
    name = _name()
    done = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True)
    if done.returncode == 0:
        subprocess.run(["ip", "netns", "del", name], check=True)
    return done.returncode == 0


@contextmanager
def cable() -> Iterator[str]:
    """Create a namespace with a cable between eth0 and eth1, both up; yields its name."""
    name = _name()
    try:
        ip_batch([f"netns add {name}"])
        ip_batch(
            ["link add eth0 type veth peer name eth1", "link set eth0 up", "link set eth1 up"],
            namespace=name,
        )
        yield name
    finally:
        ip_batch([f"netns del {name}"], force=True)
