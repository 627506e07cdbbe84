# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The first process of a virtual machine: loads modules, runs a program, switches the machine off.

Needs nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
import traceback
from pathlib import Path

FINIT_MODULE = 313  # the system call's number on x86-64
POWER_OFF = 0x4321FEDC  # reboot(2)


def load(module: Path, libc: ctypes.CDLL) -> None:
    """Load a kernel module from its file."""
    with module.open("rb") as file:
        if libc.syscall(FINIT_MODULE, file.fileno(), b"", 0):
            raise OSError(ctypes.get_errno(), f"{module.name} cannot be loaded")


def main() -> None:
    """Run the program that the kernel's command line names."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        for module in sorted(Path("/modules").iterdir()):
            load(module, libc)
        runpy.run_path(sys.argv[1], run_name="__main__")
    except BaseException:  # noqa: BLE001 - if the first process ends, the kernel panics
        traceback.print_exc(file=sys.stdout)
    finally:
        sys.stdout.flush()
        os.sync()
        libc.reboot(POWER_OFF)


if __name__ == "__main__":
    main()
