# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Start and end a lab many times, to prove that it starts reliably and leaves nothing behind.

After each `down` the machine must look as before the first `up`: the lab finds nothing of its own,
and a snapshot of the machine is unchanged. No other lab may start or end meanwhile.
"""

import statistics
from pathlib import Path

from labkit import topology
from labkit.cluster import down, lifecycle, preflight, remnants, state
from labkit.errors import Problem
from labkit.host.places import NETNS_DIR, Places
from labkit.host.progress import Stopwatch

# Where components would write if a mount were missing (nodes.py).
_WATCHED = (
    "/run/containerd",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
    "/etc/cni",
)


def soak(at: Places, *, times: int, nodes: int) -> bool:
    """Run that many rounds; return whether each was clean."""
    wanted = topology.plan(number=at.number, nodes=nodes)
    with state.locked(at.lock, "soak"):
        if state.load_topology(at):
            raise Problem("a lab is up: take it down first with 'lab down'")
        down.take_down(at)
        remnants.remove_dead(at)
        preflight.check_up(at, wanted)
        before = snapshot()
        rounds = [_round(at, wanted, i, before) for i in range(1, times + 1)]
    ups = [seconds for seconds, left in rounds if not left]
    if ups:
        middle = statistics.median(ups)
        print(f"up: min {min(ups):.1f} s, median {middle:.1f} s, max {max(ups):.1f} s", end="; ")
    print(f"{len(ups)} of {times} clean")
    return len(ups) == times


def snapshot() -> frozenset[str]:
    """Return everything of the kinds that a lab could leave on the machine, with any owner."""
    seen = [f"link {p.name}" for p in Path("/sys/class/net").iterdir()]
    seen += [f"netns {p.name}" for p in NETNS_DIR.glob("*")]
    mounts = Path("/proc/self/mounts").read_text()
    seen += [f"mount {line.split()[1]}" for line in mounts.splitlines()]
    seen += [f"folder {name}" for name in _WATCHED if Path(name).exists()]
    seen += [f"cgroup {p}" for p in Path("/sys/fs/cgroup").glob("*/*/") if p.is_dir()]
    return frozenset(seen)


def _round(
    at: Places, wanted: topology.Topology, number: int, before: frozenset[str]
) -> tuple[float, list[str]]:
    up = Stopwatch()
    lifecycle.start(at, wanted, watch=Stopwatch(quiet=True))
    up_seconds = up.seconds
    ending = Stopwatch()
    down.take_down(at)
    down_seconds = ending.seconds
    left = [*down.leftovers(at), *sorted(snapshot() - before)]
    verdict = f"LEFT: {', '.join(left)}" if left else "clean"
    print(f"{number:3}: up {up_seconds:.1f} s, down {down_seconds:.1f} s, {verdict}", flush=True)
    return up_seconds, left
