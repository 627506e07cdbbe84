# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The two clocks, read here and nowhere else."""

from __future__ import annotations

import time


def now() -> float:
    """Seconds on a clock that only goes forward, and goes on while the machine sleeps.

    A node that was suspended must see on waking that its Lease has lapsed, which the monotonic
    clock, standing still in the meantime, would hide.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall_time() -> float:
    """Seconds since the epoch; for what other machines read, never for a decision of this one."""
    return time.time()
