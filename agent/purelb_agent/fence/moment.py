# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Until when the fence is open, in a file for the next agent in the same Pod.

The file is in the Pod's own memory (a tmpfs), so it outlives a killed container, but neither
its Pod nor a boot of the machine, with which the clock begins again.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from purelb_agent.runtime import log

# Where the role mounts the memory.
FOLDER = Path("/run/purelb")
MOMENT = "fence-open-until"
MOMENT_BYTES = 8


def shared_moment(folder: Path = FOLDER) -> memoryview:
    """Return the 8 bytes of the file, with what the agent before this one stored in them.

    Without such a folder they end with the process: the next agent then removes what it finds.
    """
    try:
        opened = os.open(folder / MOMENT, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log.warning("fenceMomentNotKept", folder=folder, error=error)
        return memoryview(bytearray(MOMENT_BYTES))
    try:
        # Written and not only made longer, as a store into a page that is not there may fail.
        os.pwrite(opened, os.pread(opened, MOMENT_BYTES, 0).ljust(MOMENT_BYTES, b"\0"), 0)
        return memoryview(mmap.mmap(opened, MOMENT_BYTES))
    finally:
        os.close(opened)
