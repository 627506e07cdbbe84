# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Where the lab keeps things. Everything it writes lies under one ignored folder of the checkout.

`cache` outlives the lab (binaries, images); `run` belongs to the running one and is gone after
`lab down`. Nothing else of the machine is written to.
"""

import os
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from labkit.errors import Problem

SOURCES = Path(__file__).resolve().parent.parent
NETNS_DIR = Path("/run/netns")

# The longest link name that we derive is "<prefix>host", and the kernel allows 15 characters.
_PREFIX = re.compile(r"[a-z][a-z0-9-]{0,10}")


@dataclass(frozen=True)
class Places:
    """The folders of this checkout's lab, and the prefix of every name it takes on the machine."""

    cache: Path
    run: Path
    prefix: str

    @property
    def lock(self) -> Path:
        """Held by whoever changes the lab; lies beside `run` because `run` comes and goes."""
        return self.run.with_name(f"{self.run.name}.lock")

    @property
    def kubeconfig(self) -> Path:
        """The admin's, for any kubectl or client library on this machine."""
        return self.run / "admin.kubeconfig"

    @property
    def audit_log(self) -> Path:
        """One JSON line for each API request of a ServiceAccount outside kube-system."""
        return self.run / "logs" / "audit.jsonl"

    @property
    def cgroup(self) -> str:
        """Parent of the containers' cgroups: the name tells labs of two checkouts apart."""
        return f"purelb-lab-{sha256(str(self.run).encode()).hexdigest()[:8]}"


def places() -> Places:
    """Read the folders from the environment; the defaults are in the checkout."""
    prefix = os.environ.get("LAB_PREFIX", "lab-")
    if not _PREFIX.fullmatch(prefix):
        raise Problem(
            f"LAB_PREFIX {prefix!r} cannot start a link name: use up to 11 of a-z, 0-9 and '-'"
        )
    cache = Path(os.environ.get("PURELB_LAB_CACHE") or SOURCES.parent / ".cache/lab").absolute()
    run = Path(os.environ.get("PURELB_LAB_RUN") or cache / "run").absolute()
    return Places(cache=cache, run=run, prefix=prefix)
