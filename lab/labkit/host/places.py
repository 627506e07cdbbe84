# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Where the lab keeps things. Everything it writes lies under one ignored folder of the checkout.

`cache` outlives the lab (binaries, images); `run` belongs to the running one and is gone after
`lab down`. Nothing else of the machine is written to. Labs of several numbers share the cache.
"""

import os
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from labkit.errors import Problem
from labkit.topology import MAX_LABS

SOURCES = Path(__file__).resolve().parents[2]
NETNS_DIR = Path("/run/netns")


@dataclass(frozen=True)
class Places:
    """The folders of this checkout's lab of a number, which also decides its names (topology)."""

    cache: Path
    number: int = 0

    @property
    def run(self) -> Path:
        """What the running lab writes."""
        return self.cache / f"run{self.number or ''}"

    @property
    def others(self) -> list[Path]:
        """The run folders of this checkout's other labs."""
        runs = (replace(self, number=n).run for n in range(MAX_LABS) if n != self.number)
        return [run for run in runs if run.exists()]

    @property
    def lock(self) -> Path:
        """Held by whoever changes the lab."""
        return lock_of(self.run)

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
        """Parent of the containers' cgroups."""
        return cgroup_of(self.run)


def lock_of(run: Path) -> Path:
    """Return the lock of the lab of a run folder; it lies beside it, as that comes and goes."""
    return run.with_name(f"{run.name}.lock")


def cgroup_of(run: Path) -> str:
    """Return the name of a lab's cgroups, which tells labs of two checkouts apart."""
    return f"purelb-lab-{sha256(str(run).encode()).hexdigest()[:8]}"


def places() -> Places:
    """Read number and folder from the environment; the defaults are 0, and in the checkout."""
    text = os.environ.get("LAB_NUMBER") or "0"
    if text not in map(str, range(MAX_LABS)):
        raise Problem(f"LAB_NUMBER {text!r} is no lab's: use 0 to {MAX_LABS - 1}")
    cache = Path(os.environ.get("PURELB_LAB_CACHE") or SOURCES.parent / ".cache/lab").absolute()
    return Places(cache=cache, number=int(text))
