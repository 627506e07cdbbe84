# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The cost of an idle agent: memory, processor time, requests to the API server, and their bytes.

Three agents are real; in a larger cluster the other nodes are Leases, renewed by the benchmark.
Each agent gives one value per period. A cluster without Services is the baseline.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import bed, crowd
from bench.figures import Figure, progress
from labkit.lab import Lab

_AGENT = f"system:serviceaccount:{bed.NAMESPACE}:lbnodeagent"
_NODE = "authentication.kubernetes.io/node-name"
# Seconds until the controllers have marked the simulated nodes, which have no kubelet, as unknown.
_UNKNOWN = 45.0
# Seconds to observe, and what an idle agent may send more often than its renewals: 1/s.
_LOOK, _MORE = 10.0, 0.2
_MEMORY, _CPU, _REQUESTS = "memory (RSS)", "processor time", "API requests"
_SENT, _RECEIVED = "sent to the API server", "received from it"
_KIB_PER_MIB, _NANO = 1024, 1e-9
# The connections to the API server, with owners and TCP's counters; one that is 0 is left out.
_CONNECTIONS = ("ss", "-tinpOH", "dport", "=", ":443")
_OWNER = re.compile(r"pid=(\d+)")
_COUNTERS = {_SENT: re.compile(r"bytes_sent:(\d+)"), _RECEIVED: re.compile(r"bytes_received:(\d+)")}


@dataclass(frozen=True)
class Size:
    """The size of a cluster: nodes and dual-stack Services."""

    nodes: int
    services: int

    def __str__(self) -> str:
        return f"{self.nodes} x {self.services}"

    @property
    def requests(self) -> float:
        """Most requests a second of an idle agent."""
        return 1 / bed.timing(self.nodes).renew_period + _MORE

    @property
    def aims(self) -> dict[str, float]:
        """Upper limits: MiB, seconds a minute, requests a second."""
        cpu = 0.11 if self.nodes <= bed.NODES else 0.6
        return {_MEMORY: 64.0, _CPU: cpu, _REQUESTS: self.requests}


SIZES = (Size(3, 0), Size(3, 50), Size(100, 500))
_UNITS = {_MEMORY: "MiB", _CPU: "s/min", _REQUESTS: "1/s", _SENT: "B/s", _RECEIVED: "B/s"}


def cpu_seconds(pid: int) -> float:
    """Return the processor time of all threads (schedstat, as clock ticks are too coarse)."""
    stats = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return _NANO * sum(int(stat.read_text().split()[0]) for stat in stats)


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    rss = next(line for line in lines if line.startswith("VmRSS:"))
    return int(rss.split()[1]) / _KIB_PER_MIB


def requests_since(lab: Lab, position: int) -> Counter[str]:
    """Count the agents' requests after a position in the audit log, by node."""
    with lab.audit_log.open() as log:
        log.seek(position)
        return requests_by_node(log.readlines())


def requests_by_node(lines: Sequence[str]) -> Counter[str]:
    """Count the agents' requests in an audit log, by node; a watch counts when it starts."""
    asked: Counter[str] = Counter()
    for line in lines:
        entry = json.loads(line)
        is_watch = entry["verb"] == "watch"
        stage = "ResponseStarted" if is_watch else "ResponseComplete"
        if entry["user"]["username"] == _AGENT and entry["stage"] == stage:
            asked[entry["user"]["extra"][_NODE][0]] += 1
    return asked


def traffic(listing: str, pid: int) -> dict[str, int]:
    """Return the bytes that a process has sent and received by TCP, from a listing of `ss`."""
    total = dict.fromkeys(_COUNTERS, 0)
    for line in listing.splitlines():
        if str(pid) not in _OWNER.findall(line):
            continue
        for what, counter in _COUNTERS.items():
            found = counter.search(line)
            total[what] += int(found[1]) if found else 0
    return total


@dataclass
class Meter:
    """Measures all agents over periods of time."""

    lab: Lab
    writer: int | None

    def __post_init__(self) -> None:
        """Find the agents' processes; start without values."""
        self.pids = {node: self.lab.pod_pid(node, "lbnodeagent") for node in self.lab.nodes}
        self.values: dict[str, list[float]] = defaultdict(list)
        self.writer_cpu: list[float] = []

    def measure(self, seconds: float) -> None:
        """Measure one period; adds a value per agent."""
        read, began = self.lab.audit_log.stat().st_size, time.monotonic()
        pids = [*self.pids.values(), *([self.writer] if self.writer else [])]
        before = {pid: cpu_seconds(pid) for pid in pids}
        carried = self._traffic()
        time.sleep(seconds)
        took = time.monotonic() - began
        cpu = {pid: (cpu_seconds(pid) - before[pid]) * 60 / took for pid in pids}
        asked = requests_since(self.lab, read)
        carries = self._traffic()
        for node, pid in self.pids.items():
            self.values[_MEMORY].append(resident_mib(pid))
            self.values[_CPU].append(cpu[pid])
            self.values[_REQUESTS].append(asked[node] / took)
            for what in _COUNTERS:
                self.values[what].append((carries[node][what] - carried[node][what]) / took)
        if self.writer:
            self.writer_cpu.append(cpu[self.writer])

    def _traffic(self) -> dict[str, dict[str, int]]:
        """Return the bytes of each node's agent, of the connections that it has now."""
        listings = {node: self.lab.run_in(node, _CONNECTIONS).stdout for node in self.pids}
        return {node: traffic(listings[node], pid) for node, pid in self.pids.items()}

    def figures(self, size: Size, baseline: Meter | None) -> list[Figure]:
        """Return the figures of a cluster of this size."""
        figures = [
            Figure(
                str(size),
                what,
                _UNITS[what],
                tuple(values),
                baseline=tuple(baseline.values[what]) if baseline else (),
                aim=size.aims.get(what),
            )
            for what, values in self.values.items()
        ]
        if self.writer_cpu:
            writer = "the benchmark itself: writing Leases"
            figures.append(Figure(str(size), writer, _UNITS[_CPU], tuple(self.writer_cpu)))
        return figures


def _wait_until_idle(lab: Lab, size: Size) -> None:
    """Wait until the agents are idle after the last change of the cluster."""
    progress(f"{size}: waiting until the agents are idle")
    if size.nodes > bed.NODES:
        time.sleep(_UNKNOWN)

    def is_idle() -> bool:
        read = lab.audit_log.stat().st_size
        time.sleep(_LOOK)
        return all(n <= size.requests * _LOOK for n in requests_since(lab, read).values())

    bed.eventually(is_idle, "idle agents", 120)


@contextmanager
def _others(size: Size) -> Iterator[int | None]:
    """Create the nodes beyond those of the lab; yield the pid that renews their Leases, or None."""
    if size.nodes <= bed.NODES:
        yield None
        return
    progress(f"{size}: creating {size.nodes - bed.NODES} nodes")
    with crowd.crowd(size.nodes - bed.NODES) as pid:
        yield pid


def measure(sizes: Sequence[Size] = SIZES, *, runs: int, seconds: float) -> list[Figure]:
    """Measure clusters of these sizes in ascending order."""
    figures: list[Figure] = []
    baseline: Meter | None = None
    with bed.bed() as lab:
        for size in sorted(sizes, key=lambda size: (size.nodes, size.services)):
            vips = bed.have_services(lab, size.services)
            with _others(size) as writer:
                members = dict.fromkeys([*lab.nodes, *crowd.names(size.nodes - bed.NODES)])
                bed.settle(lab, vips, members=members)
                _wait_until_idle(lab, size)
                meter = Meter(lab, writer)
                for run in range(runs):
                    progress(f"{size}: {seconds:g} s, run {run + 1} of {runs}")
                    meter.measure(seconds)
            figures += meter.figures(size, baseline)
            baseline = meter if size.services == 0 else baseline
    return figures
