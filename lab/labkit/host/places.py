# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The lab's folders: one in the checkout, and one in the user's cache for what setup builds.

`builds` (programs, base images) is shared by all checkouts: each build is named by the hash of its
inputs. `cache` belongs to the checkout and is shared by its labs of all numbers; `run` belongs to a
running lab, and `lab down` removes it.
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
    """The folders of this checkout's lab of one number."""

    cache: Path
    number: int = 0
    shared: Path | None = None

    @property
    def builds(self) -> Path:
        """The folder of what setup builds; in `cache` unless the user's cache is used."""
        return self.shared or self.cache

    @property
    def run(self) -> Path:
        """The folder of the running lab."""
        return self.cache / f"run{self.number or ''}"

    @property
    def others(self) -> list[Path]:
        """The existing run folders of this checkout's other labs."""
        runs = (replace(self, number=n).run for n in range(MAX_LABS) if n != self.number)
        return [run for run in runs if run.exists()]

    @property
    def lock(self) -> Path:
        """The lock file that a command holds while it changes the lab."""
        return lock_of(self.run)

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig, for kubectl and client libraries on this machine."""
        return self.run / "admin.kubeconfig"

    @property
    def audit_log(self) -> Path:
        """The audit log: a JSON line per API request of a ServiceAccount outside kube-system."""
        return self.run / "logs" / "audit.jsonl"

    @property
    def cgroup(self) -> str:
        """The parent of the containers' cgroups."""
        return cgroup_of(self.run)


def lock_of(run: Path) -> Path:
    """Return the lock file of a run folder; it is next to the folder, which `down` removes."""
    return run.with_name(f"{run.name}.lock")


def cgroup_of(run: Path) -> str:
    """Return the name of a lab's parent cgroup, which is unique to the checkout."""
    return f"purelb-lab-{sha256(str(run).encode()).hexdigest()[:8]}"


def places() -> Places:
    """Return the folders for LAB_NUMBER (default 0) and PURELB_LAB_CACHE.

    Without the latter they are .cache/lab of the checkout, and `purelb-lab` in the user's cache.
    """
    text = os.environ.get("LAB_NUMBER") or "0"
    if text not in map(str, range(MAX_LABS)):
        raise Problem(f"LAB_NUMBER {text!r} is not a lab's number: use 0 to {MAX_LABS - 1}")
    if folder := os.environ.get("PURELB_LAB_CACHE"):
        return Places(cache=Path(folder).absolute(), number=int(text))
    of_user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    shared = Path(of_user).absolute() / "purelb-lab"
    return Places(cache=SOURCES.parent / ".cache/lab", number=int(text), shared=shared)
