# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Polls the API server until something is done or a deadline passes."""

from __future__ import annotations

import time
from typing import Callable, TypeVar

T = TypeVar("T")

# Seconds between two requests: short enough to go unnoticed, long enough for a busy API server.
POLL_INTERVAL = 0.5


def poll(
    look: Callable[[], T],
    is_done: Callable[[T], bool],
    *,
    timeout: float,
    interval: float = POLL_INTERVAL,
) -> T:
    """Call `look` until `is_done` accepts its result or `timeout` seconds have passed.

    Returns the last result; the caller checks whether it is the wanted one.
    """
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if is_done(found) or time.monotonic() >= deadline:
            return found
        time.sleep(interval)
