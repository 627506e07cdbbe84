# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The longest interruption of each address for a client on the segment while addresses move.

Every address is pinged continuously, and some get HTTP requests too. The addresses of the other
nodes, which do not move, are the baseline: the effect of the machine and of the measurement.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bench import bed
from bench.figures import Figure, progress
from labkit.lab import Lab
from labkit.probe.pinger import Pinger, Times, longest_gap
from labkit.probe.prober import Prober
from purelb.core.names import lease_name

SERVICES = (1, 25, 125)
VICTIM = bed.FIRST_NODE
FAMILIES = ("IPv4", "IPv6")
_AGENTS = f"/api/v1/namespaces/{bed.NAMESPACE}/pods"
# Addresses of each family that get HTTP requests: one costs a hundred times as much as a ping.
_ASKED = 2
_PAUSE = 0.02
_LEASE = f"{bed.LEASES}/{lease_name(VICTIM)}"
# Upper limits in seconds.
_AIMS = {"agent pod deleted": 5.0, "cable cut": 2.7}
# Seconds between the last move and the next fault.
_REST = 2.0
# Pings a second in total; with more addresses each is pinged less often.
_RATE = 5000
_SHORTEST = 0.01


@dataclass(frozen=True)
class Window:
    """A fault or repair, and the time window of its effect (monotonic)."""

    what: str
    since: float
    until: float


def pace(addresses: int) -> float:
    """Return the seconds between two pings of one address."""
    return max(_SHORTEST, addresses / _RATE)


def phases(runs: int) -> list[float]:
    """Return the seconds from the last renewal to the cut for each run, evenly spread.

    Other nodes take over when the Lease of the cut node expires, so the interruption depends mostly
    on this time. Without it, each cut would come at the same phase of the renewals.
    """
    period = bed.timing(bed.NODES).renew_period
    return [period * (run + 0.5) / runs for run in range(runs)]


def family_of(vip: str) -> str:
    """Return the family of an address."""
    return "IPv6" if ":" in vip else "IPv4"


def delete_agent(lab: Lab) -> None:
    """Delete the agent's Pod on the victim."""
    (pod,) = lab.api.items(
        _AGENTS, labelSelector="component=lbnodeagent", fieldSelector=f"spec.nodeName={VICTIM}"
    )
    lab.api.delete(f"{_AGENTS}/{pod['metadata']['name']}")


def wait_for_renewal(lab: Lab) -> None:
    """Wait until the victim has renewed its Lease."""

    def renewed() -> str:
        return str(lab.api.get(_LEASE)["spec"]["renewTime"])

    before = renewed()
    bed.eventually(lambda: renewed() != before, "renewal", 2 * bed.timing(bed.NODES).duration)


class Measure:
    """Moves the victim's addresses away and back repeatedly and collects the interruptions."""

    def __init__(self, lab: Lab, vips: Sequence[str]) -> None:
        self._lab = lab
        self._vips = list(vips)
        wanted = bed.winners(self._vips, lab.nodes)
        self._moving = frozenset(vip for vip, node in wanted.items() if node == VICTIM)
        # (fault, ping or HTTP, family) -> longest interruptions in seconds.
        self._gaps: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        self._still: dict[tuple[str, str, str], list[float]] = defaultdict(list)

    def run(self, phase: float) -> None:
        """Delete the agent, then cut the node `phase` seconds after a renewal of its Lease."""
        for lose in (self._lose_agent, lambda: self._lose_node(phase)):
            asked = [vip for family in FAMILIES for vip in self._moving_of(family)[:_ASKED]]
            pinger = Pinger(self._lab, *self._vips, every=pace(len(self._vips)))
            with pinger, Prober(self._lab, *asked, pause=_PAUSE) as prober:
                time.sleep(1)
                windows = lose()
                times = pinger.stop()
            for window in windows:
                self._take_pings(window, times)
                self._take_answers(window, prober, asked)

    def _moving_of(self, family: str) -> list[str]:
        return [vip for vip in self._vips if vip in self._moving and family_of(vip) == family]

    def _lose_agent(self) -> list[Window]:
        """Delete the agent's pod; its successor takes the addresses back."""
        begin = time.monotonic()
        delete_agent(self._lab)
        return self._go_and_return(begin, "agent pod deleted", "agent back")

    def _lose_node(self, phase: float) -> list[Window]:
        """Cut the node's cable, and mend it when other nodes have its addresses."""
        wait_for_renewal(self._lab)
        time.sleep(phase)
        begin = time.monotonic()
        self._lab.cut(VICTIM)
        try:
            self._wait_until_moved()
            # Wait for late answers before the node returns.
            time.sleep(_REST)
        finally:
            self._lab.mend(VICTIM)
        repaired = time.monotonic()
        self._wait_until_back()
        return [
            Window("cable cut", begin, repaired),
            Window("cable back", repaired, time.monotonic()),
        ]

    def _go_and_return(self, begin: float, gone: str, back: str) -> list[Window]:
        self._wait_until_moved()
        # The next pod starts when this one has ended, after two seconds.
        moved = time.monotonic() + _REST / 2
        self._wait_until_back()
        return [Window(gone, begin, moved), Window(back, moved, time.monotonic())]

    def _wait_until_moved(self) -> None:
        def moved() -> bool:
            held = bed.on_nodes(self._lab)
            others = frozenset[str]().union(*(v for node, v in held.items() if node != VICTIM))
            return self._moving <= others

        bed.eventually(moved, f"takeover of {len(self._moving)} addresses", 30)

    def _wait_until_back(self) -> None:
        bed.settle(self._lab, self._vips)
        time.sleep(_REST)

    def _take_pings(self, window: Window, times: Times) -> None:
        for vip in self._vips:
            gaps = self._gaps if vip in self._moving else self._still
            gap = longest_gap(times[vip], since=window.since, until=window.until)
            gaps[window.what, "ping", family_of(vip)].append(gap)

    def _take_answers(self, window: Window, prober: Prober, asked: Sequence[str]) -> None:
        for vip in asked:
            ends = [a.ended for a in prober.answers if a.address == vip and a.body is not None]
            gap = longest_gap(ends, since=window.since, until=window.until)
            self._gaps[window.what, "HTTP", family_of(vip)].append(gap)

    def figures(self, runs: int) -> list[Figure]:
        """Return the figures of all runs."""
        return [
            Figure(
                f"{len(self._vips)} addresses",
                f"{what}: no answer to {asked}, {family}",
                "s",
                tuple(gaps),
                baseline=tuple(self._still[what, asked, family]),
                aim=_AIMS.get(what),
                runs=runs,
            )
            for (what, asked, family), gaps in self._gaps.items()
        ]


def measure(services: Sequence[int] = SERVICES, *, runs: int) -> list[Figure]:
    """Measure with each of these numbers of Services."""
    figures: list[Figure] = []
    with bed.bed() as lab:
        for count in sorted(services):
            measured = Measure(lab, bed.have_services(lab, count))
            for run, phase in enumerate(phases(runs), start=1):
                progress(f"{bed.FAMILIES * count} addresses: run {run} of {runs}")
                measured.run(phase)
            figures += measured.figures(runs)
    return figures
