# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The clocks, read here and nowhere else."""

from __future__ import annotations

import time


def now() -> float:
    """Return seconds on a clock that never goes back and keeps running while the machine sleeps.

    A node that was suspended must see on waking that its Lease has expired. CLOCK_MONOTONIC stands
    still in the meantime and would hide that.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def monotonic() -> float:
    """Return seconds on the clock of the kernel's timers, which stands still during sleep."""
    return time.monotonic()


def wall_time() -> float:
    """Return seconds since the epoch: for other machines to read, never for a decision here."""
    return time.time()
