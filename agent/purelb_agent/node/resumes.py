# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Reports when the machine resumes after a sleep.

The event loop's timers and the lifetimes of addresses stand still while a machine sleeps, so
nothing else would wake a node whose right has ended meanwhile. The kernel cancels a timer of the
wall clock that asks for it (TFD_TIMER_CANCEL_ON_SET, timerfd_create(2)) when that clock is set, and
a resume counts as that. A clock that is set is reported as well, which does no harm.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time

_CANCEL_ON_SET = 0x2
_ABSOLUTE = 0x1
# Seconds of the wall clock: in the year 2106.
_NEVER = 1 << 32


class _Interval(ctypes.Structure):
    """A struct itimerspec: the period, then the first end, in seconds and nanoseconds."""

    _fields_ = [(name, ctypes.c_long) for name in ("period", "period_ns", "first", "first_ns")]


class Resumes:
    """A file that can be read after each resume."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.timerfd_create(time.CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
        how = _ABSOLUTE | _CANCEL_ON_SET
        ends = _Interval(first=_NEVER)
        if self._fd < 0 or libc.timerfd_settime(self._fd, how, ctypes.byref(ends), None) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def fileno(self) -> int:
        """Return the number of the file, for the event loop."""
        return self._fd

    def read(self) -> None:
        """Wait for the next resume from now on."""
        # ECANCELED is the answer to what the timer is for.
        with contextlib.suppress(OSError):
            os.read(self._fd, 8)

    def close(self) -> None:
        """Tell nothing any more."""
        os.close(self._fd)
