# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""PureLB and keepalived on the same nodes: each fault comes to both at once.

A stranger with an empty neighbor cache asks for every address, a client with a warm one sends HTTP
requests. Both systems have the same number of addresses; about a third are on the node that fails.
"""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench import bed, failover, keepalived
from bench.figures import RESULTS, Figure, progress
from bench.picture import DARK, LIGHT, Line, draw
from labkit.lab import Lab
from labkit.probe.pinger import longest_gap
from labkit.probe.prober import Answer, Prober
from labkit.probe.stranger import Stranger

SERVICES = 25
VICTIM = failover.VICTIM
OURS, THEIRS = "PureLB", "keepalived"
_LOST = "node lost"
# Seconds from a fault to its repair; of which the requests are shown in the picture.
_FAULT, _SHOWN, _BEFORE = 20.0, 16, 2
_EVERY, _PAUSE = 0.05, 0.02
# Seconds in which nothing moves before the next fault; keepalived sends two advertisements.
_QUIET = 2
# Seconds between the points of the picture.
_STEP = 0.5
_ASKED = 2
_SOURCES = ("172.29.0.250", "fe80::fefe")
_AGENT = "lbnodeagent"
_TITLE = "Requests answered, by the time after a node is lost"
Moments = Sequence[tuple[float, str]]
Window = tuple[float, float]
# When a request was sent, in seconds after the fault, and whether it failed.
Requests = Sequence[tuple[float, bool]]


def seconds_on_two(answers: Moments, *, every: float, since: float, until: float) -> float:
    """Return for how many seconds two MAC addresses answered, to the length of a question."""
    rounds: dict[int, set[str]] = defaultdict(set)
    for moment, mac in answers:
        if since <= moment < until:
            rounds[int((moment - since) / every)].add(mac)
    return every * sum(len(macs) > 1 for macs in rounds.values())


def shares(requests: Requests, *, length: float) -> dict[float, float]:
    """Return the percentage of requests that failed, by the start of each window that has any."""
    windows: dict[float, list[bool]] = defaultdict(list)
    for sent, has_failed in requests:
        windows[sent // length * length].append(has_failed)
    return {start: 100 * sum(failed) / len(failed) for start, failed in sorted(windows.items())}


@dataclass(frozen=True)
class System:
    """A system, with its addresses on the node that fails."""

    name: str
    moving: tuple[str, ...]

    def asked(self) -> list[str]:
        """Return the addresses that get HTTP requests, of each family."""
        families = [[v for v in self.moving if (":" in v) == is_v6] for is_v6 in (False, True)]
        return [vip for family in families for vip in family[:_ASKED]]


class Comparison:
    """Both systems on one lab, and what was measured of them."""

    def __init__(self, lab: Lab, vips: Sequence[str]) -> None:
        self._lab, self._vips = lab, list(vips)
        self._theirs = keepalived.addresses(SERVICES)
        lab.api.create(keepalived.service(self._theirs))
        folder = RESULTS / "keepalived"
        self._daemons = {
            node: keepalived.Keepalived(lab, node, self._theirs, folder) for node in lab.nodes
        }
        self._preferred = keepalived.preferred(self._theirs, list(lab.nodes))
        wanted = bed.winners(self._vips, lab.nodes)
        self._systems = [
            System(OURS, tuple(v for v, node in wanted.items() if node == VICTIM)),
            System(THEIRS, tuple(v for v, node in self._preferred.items() if node == VICTIM)),
        ]
        # (system, fault, what, family) -> seconds by address and run.
        self._seconds: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
        # system -> the requests of each run around the loss of the node.
        self._requests: dict[str, list[Requests]] = defaultdict(list)

    def start(self) -> None:
        """Start keepalived everywhere."""
        for daemon in self._daemons.values():
            daemon.start()
        self._settle()

    def close(self) -> None:
        """End keepalived everywhere."""
        for daemon in self._daemons.values():
            daemon.kill()

    def run(self, phase: float) -> None:
        """Let all four faults happen; the node is lost `phase` seconds after a renewal."""
        self._fault(_LOST, partial(self._cut, phase), lambda: self._lab.mend(VICTIM))
        self._fault("process killed", self._kill, self._start)
        self._fault("process frozen", lambda: self._signal("STOP"), lambda: self._signal("CONT"))
        self._fault("planned move", self._stop, self._daemons[VICTIM].start)

    def _cut(self, phase: float) -> float:
        failover.wait_for_renewal(self._lab)
        time.sleep(phase)
        since = time.monotonic()
        self._lab.cut(VICTIM)
        return since

    def _kill(self) -> float:
        # The kubelet would start the agent again; nothing starts keepalived.
        self._lab.kill(VICTIM, "kubelet")
        since = time.monotonic()
        self._lab.kill(VICTIM, _AGENT)
        self._daemons[VICTIM].kill()
        return since

    def _start(self) -> None:
        self._lab.start(VICTIM, "kubelet")
        self._daemons[VICTIM].start()

    def _signal(self, name: str) -> float:
        since = time.monotonic()
        self._lab.kill(VICTIM, _AGENT, name)
        self._daemons[VICTIM].signal(signal.Signals[f"SIG{name}"])
        return since

    def _stop(self) -> float:
        since = time.monotonic()
        failover.delete_agent(self._lab)
        self._daemons[VICTIM].stop()
        return since

    def _fault(self, what: str, begin: Callable[[], float], end: Callable[[], object]) -> None:
        """Let a fault happen; `begin` returns when it did."""
        asked = [vip for system in self._systems for vip in system.asked()]
        moving = [vip for system in self._systems for vip in system.moving]
        stranger = Stranger(self._lab, *moving, sources=_SOURCES, every=_EVERY)
        with stranger, Prober(self._lab, *asked, pause=_PAUSE) as prober:
            time.sleep(_BEFORE)
            since = begin()
            try:
                time.sleep(max(0.0, since + _FAULT - time.monotonic()))
            finally:
                until = time.monotonic()
                end()
            found = stranger.stop()
        for system in self._systems:
            for vip in system.moving:
                self._take((system.name, what), vip, found[vip], (since, until))
            self._take_warm(system, what, prober, (since, until))
            if what == _LOST:
                self._take_requests(system, prober.answers, since)
        self._settle()

    def _take(self, series: tuple[str, str], vip: str, answers: Moments, window: Window) -> None:
        since, until = window
        gap = longest_gap([moment for moment, _mac in answers], since=since, until=until)
        two = seconds_on_two(answers, every=_EVERY, since=since, until=until)
        family = failover.family_of(vip)
        self._seconds[(*series, "no answer", family)].append(gap)
        self._seconds[(*series, "two answer", family)].append(two)

    def _take_warm(self, system: System, what: str, prober: Prober, window: Window) -> None:
        since, until = window
        for vip in system.asked():
            ends = [a.ended for a in prober.answers if a.address == vip and a.body is not None]
            gap = longest_gap(ends, since=since, until=until)
            self._seconds[system.name, what, "no HTTP answer", failover.family_of(vip)].append(gap)

    def _take_requests(self, system: System, answers: Sequence[Answer], since: float) -> None:
        asked = system.asked()
        self._requests[system.name].append(
            [
                (after, answer.body is None)
                for answer in answers
                if answer.address in asked and -_BEFORE <= (after := answer.sent - since) < _SHOWN
            ]
        )

    def _settle(self) -> None:
        bed.settle(self._lab, self._vips)

        def settled() -> bool:
            held = bed.on_nodes(self._lab)
            return all(
                (vip in held[n]) == (n == node)
                for vip, node in self._preferred.items()
                for n in held
            )

        bed.eventually(settled, "each address of keepalived on its node alone", 60)
        time.sleep(_QUIET)

    def figures(self, runs: int) -> list[Figure]:
        """Return the figures of all runs."""
        times = [
            Figure(name, f"{fault}: {what}, {family}", "s", tuple(values), runs=runs)
            for (name, fault, what, family), values in sorted(self._seconds.items())
        ]
        return times + [
            Figure(name, f"{_LOST}: requests failed in second {second:g}", "%", tuple(values))
            for name, by_run in self._requests.items()
            for second, values in _by_second(by_run).items()
        ]

    def lines(self) -> list[Line]:
        """Return the share of all runs' requests that were answered over time, by system."""
        failed = {
            name: shares([request for run in by_run for request in run], length=_STEP)
            for name, by_run in self._requests.items()
        }
        return [
            Line(name, [(start + _STEP / 2, 100 - percent) for start, percent in windows.items()])
            for name, windows in failed.items()
        ]


def _by_second(by_run: Sequence[Requests]) -> dict[float, list[float]]:
    """Return the percentages that failed in each second, a value for each run with requests."""
    values: dict[float, list[float]] = defaultdict(list)
    for requests in by_run:
        for second, percent in shares(requests, length=1).items():
            values[second].append(percent)
    return dict(sorted(values.items()))


def measure(*, runs: int) -> list[Figure]:
    """Measure both systems, and draw the picture."""
    keepalived.version()
    with bed.bed() as lab:
        comparison = Comparison(lab, bed.have_services(lab, SERVICES))
        try:
            comparison.start()
            for run, phase in enumerate(failover.phases(runs), start=1):
                progress(f"next to keepalived: run {run} of {runs}")
                comparison.run(phase)
        finally:
            comparison.close()
    for name, shade in (("light", LIGHT), ("dark", DARK)):
        file = RESULTS / f"node-lost-{name}.svg"
        file.write_text(draw(comparison.lines(), title=_TITLE, shade=shade))
    return comparison.figures(runs)
